"""What is sampled of a user's own day: totals, and what is kept of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from contract.assumptions import parse_assumptions
from controller.cli.app import main
from controller.planning.duty import Totals, read_totals, sampled_duty
from validation.synthetic.suite import ASSUMPTIONS

DISKSTATS = """\
   7       0 loop0 9 9 9000 9 9 9 9000 9 0 9 9
 259       0 nvme0n1 1 0 2048 1 1 0 4096 1 0 1 1
 259       1 nvme0n1p1 1 0 2048 1 1 0 4096 1 0 1 1
 253       0 dm-0 1 0 2048 1 1 0 4096 1 0 1 1
"""


def test_disks_are_counted_once_and_guests_are_not(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  10 1 5 80 4 0 0 0 7 0\ncpu0 10 1 5 80 4 0 0 0 7 0\n")
    (tmp_path / "diskstats").write_text(DISKSTATS)
    (tmp_path / "block" / "nvme0n1" / "device").mkdir(parents=True)
    (tmp_path / "block" / "loop0").mkdir()
    totals = read_totals(tmp_path, tmp_path / "block")
    assert (totals.cpu_ticks, totals.idle_ticks) == (100, 84)
    assert (totals.read_bytes, totals.written_bytes) == (2048 * 512, 4096 * 512)


def test_figures_are_by_the_hour() -> None:
    first = Totals(100.0, 1000, 500, 0, 2**30)
    sampled = sampled_duty(first, Totals(7300.0, 3000, 2100, 4 * 2**30, 2 * 2**30))
    assert (sampled.hours, sampled.idle_share) == (2.0, 0.8)
    assert (sampled.read_gib, sampled.written_gib) == (2.0, 0.5)


@pytest.mark.parametrize("kept", [True, False])
def test_what_is_kept_is_an_assumption_and_only_where_it_is_agreed_to(
    kept: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "duty.yml"
    argv = ["duty", "record", "--json", "--hours", "0.0002", "--out", str(out)]
    assert main([*argv, *["--yes"] * kept]) == 0
    result = json.loads(capsys.readouterr().out)
    assert out.exists() == kept and result["file"] == (str(out) if kept else None)
    assert set(result) == {"ok", "hours", "idle_share", "battery_hour", "file"}
    if kept:
        declared = yaml.safe_load(out.read_text())
        assumed = parse_assumptions({**ASSUMPTIONS, **declared})
        assert assumed.battery_hour == pytest.approx(result["battery_hour"], rel=0.01)
