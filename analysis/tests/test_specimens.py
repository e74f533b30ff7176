from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis.money import costs
from analysis.report import first_page, tables
from analysis.report.texts import say
from analysis.stats import disks as specimens
from analysis.stats.comparison import LEAST_EQUIVALENT
from analysis.stats.results import Results
from analysis.stats.summary import block_values
from analysis.tests.known import analysed
from contract.command_results import AnswerLine

SOFT, ON_SED, UNLOCKED = "dmcrypt-aes256", "dmcrypt-aes256-on-sed", "sed-unlocked"
# The self-encrypting disk is slower by a tenth, whatever is on it; Opal costs nothing.
SLOWER = {"plain": 1.0, "opal": 1.1, SOFT: 1.3, UNLOCKED: 1.1, ON_SED: 1.43}
MODEL = {"model": "A1", "firmware": "7", "serial": "S1"}


def made(
    folder: Path, *configurations: str, sed: dict[str, Any] | None = None, blocks: int = 3
) -> Results:
    disks = {"plain": MODEL, "sed": {**MODEL, "serial": "S2", **(sed or {})}}
    return analysed(
        folder,
        blocks=blocks,
        interval_ms=100,
        workloads=("kernel_tree",),
        configurations=configurations,
        slower=SLOWER,
        machine={"disks": disks},
    )


def answered(derived: Results) -> list[AnswerLine]:
    """Return the lines on cost and on payback."""
    lines = first_page.lines(derived, derived.suite.folder)
    return [line for line in lines if line.question in ("cost", "payback")]


def test_one_disk_gives_a_verdict_and_a_payback(tmp_path: Path) -> None:
    derived = made(tmp_path / "s", UNLOCKED, "opal", ON_SED, blocks=LEAST_EQUIVALENT)
    hardware, software, *_, money = answered(derived)
    assert (hardware.code, hardware.facts["configuration"]) == ("equivalent", "opal")
    assert (software.code, software.facts["configuration"]) == ("more", ON_SED)
    assert "disk" not in money.reason
    assert {p.against for p in costs.paybacks(derived.suite, derived.energy)} == {ON_SED}
    assert specimens.table(derived.suite) == []


def test_fewer_blocks_leave_open_what_is_alike(tmp_path: Path) -> None:
    derived = made(tmp_path / "s", UNLOCKED, "opal", ON_SED, blocks=LEAST_EQUIVALENT - 1)
    software, hardware, *_ = answered(derived)
    assert (software.code, software.facts["configuration"]) == ("more", ON_SED)
    assert (hardware.code, hardware.facts["configuration"]) == ("unsettled", "opal")


@pytest.mark.parametrize(
    ("sed", "words"),
    [
        ({}, "two specimens of one model"),
        ({"firmware": "8"}, "they differ in firmware"),
        (
            {"model": "B2", "firmware": "8", "size_bytes": 1},
            "they differ in model, firmware and capacity",
        ),
    ],
)
def test_two_disks_give_no_verdict_on_encryption(
    tmp_path: Path, sed: dict[str, Any], words: str
) -> None:
    derived = made(tmp_path / "s", "plain", "opal", SOFT, sed=sed)
    software, hardware, *_, money = answered(derived)
    assert (hardware.code, hardware.facts["verdict"]) == ("two-disks", "differs")
    assert software.code == "more", "one disk with and without software"
    assert money.reason.endswith(say("answer.payback.with-disks", described=words))
    marked = say("verdict.two-disks", verdict="")
    rows = tables.headline_rows(derived, ("system",))
    verdicts = {row[1]: row[-1] for row in rows}
    assert [name for name, verdict in verdicts.items() if verdict.endswith(marked)] == [
        "Opal drive"
    ]


def test_what_the_disks_differ_by_without_encryption_is_taken_off(tmp_path: Path) -> None:
    derived = made(tmp_path / "s", "plain", "opal", SOFT, UNLOCKED, blocks=LEAST_EQUIVALENT)
    hardware, *_, money = answered(derived)
    assert (hardware.code, hardware.facts["configuration"]) == ("equivalent", "opal")
    energy = derived.energy.filter(pl.col("phase") != "tail")
    soft, plain, opal, unlocked = (
        block_values(energy, "kernel_tree", name, "system")
        for name in (SOFT, "plain", "opal", UNLOCKED)
    )
    (payback,) = costs.paybacks(derived.suite, energy)
    saved = [soft[b] - plain[b] - (opal[b] - unlocked[b]) for b in soft]
    assert payback.saving_j.mean == pytest.approx(sum(saved) / len(saved))
    assert money.reason.endswith(say("answer.payback.less-disks"))


def test_the_table_says_what_differs(tmp_path: Path) -> None:
    derived = made(tmp_path / "s", "plain", "opal", sed={"firmware": "8"})
    assert specimens.table(derived.suite) == [
        ["", "plain", "sed"],
        ["firmware", "7", "8"],
        ["serial number", "S1", "S2"],
    ]
