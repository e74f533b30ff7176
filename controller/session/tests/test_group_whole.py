"""Whole sessions of two hosts at once: two meters, two recorders, two clocks, two journals."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.suite.group import members
from contract import journal, schema
from contract.files import sha256_of
from controller.session import group, seal
from controller.session.tests.test_group import Planner, host
from controller.session.tests.test_recorders import meter, speaking
from controller.tests.standin import Standin

RUN_S = "1.0"
HOSTS = ("alder", "birch")


@pytest.fixture
def planner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Planner]:
    """Plan a group of two hosts, whose meters speak."""
    standin = Standin(tmp_path / "there", monkeypatch)
    session = ("-m", "controller.tests.stand_in_session", str(standin.suites), RUN_S)
    monkeypatch.setattr(group, "SESSION", (sys.executable, *session))
    hosts = [
        host(name, meters=[schema.write(meter(tmp_path / f"meter-{name}"))], secrets_file="none")
        for name in HOSTS
    ]
    planner = Planner(tmp_path / "here", hosts, blocks=1, inventory=tmp_path / "inventory")
    planner.options.suite_dir = planner.plan()
    with speaking(tmp_path / "meter-alder"), speaking(tmp_path / "meter-birch"):
        yield planner


def require_sealed(folder: Path) -> None:
    """Every run finished, and the seal in order."""
    document = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    states = journal.last_states(journal.read(folder / "journal.jsonl"))
    assert {states.get(run["run_id"]) for run in document["runs"]} == {"finished"}
    sums = json.loads((folder / seal.MANIFEST).read_text(encoding="utf-8"))["files"]
    assert all(sha256_of(folder / name) == digest for name, digest in sums.items())
    assert "meters/meter0/stream.raw" in sums


def test_two_hosts_are_measured_at_once_each_by_its_own_meter(
    planner: Planner, capsys: pytest.CaptureFixture[str]
) -> None:
    assert group.run(planner.options) is True
    output = capsys.readouterr().out
    assert planner.options.suite_dir is not None
    suites = members(planner.options.suite_dir)
    for folder in suites:
        require_sealed(folder)
    began, ended = zip(
        *(
            (entries[0].t_mono_ns, entries[-1].t_mono_ns)
            for entries in (journal.read(folder / "journal.jsonl") for folder in suites)
        ),
        strict=True,
    )
    assert max(began) < min(ended)
    ports = {
        json.loads((folder / "meters" / "meter0" / "meter.json").read_text(encoding="utf-8"))[
            "port"
        ]
        for folder in suites
    }
    assert len(ports) == 2
    assert "alder | " in output
    assert "birch | " in output
    assert "all hosts succeeded" in output
