"""Finished runs are those that the journal closed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis.stats.results import results, verify, write
from analysis.suite.manifest import trail
from validation.synthetic.folder import dump, write_lines, write_manifest
from validation.synthetic.suite import Options, write_suite

SMALL = Options(blocks=2, interval_ms=100, configurations=("plain", "opal"), workloads=("idle",))


def journal(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_suite(tmp_path / "s", SMALL)
    write(results(tmp_path / "s"))
    return tmp_path / "s"


def first(folder: Path) -> Path:
    return sorted((folder / "runs").iterdir())[0]


def other_run_json(folder: Path) -> None:
    path = first(folder) / "run.json"
    document = json.loads(path.read_text())
    dump(path, {**document, "checks": [{"name": "new", "ok": True}]})


def other_samples(folder: Path) -> None:
    with (first(folder) / "rapl.jsonl").open("a") as samples:
        samples.write('{"zone": "dram", "t_before_ns": 1, "error": "late"}\n')


def no_samples(folder: Path) -> None:
    (first(folder) / "rapl.jsonl").unlink()


def other_boot(folder: Path) -> None:
    lines = journal(folder)
    for line in lines:
        if line["state"] == "running" and line["run_id"] == first(folder).name:
            line["boot_id"] = "another"
    write_lines(folder / "journal.jsonl", lines)


def test_whole_runs_are_told_with_their_number(folder: Path) -> None:
    outcome = verify(folder)
    assert outcome.problems == ()
    assert "4 finished runs have the sums that the journal closed them with" in outcome.said[1]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (other_run_json, "is not the one that the journal closed"),
        (other_samples, "is not the one that its run.json names"),
        (no_samples, "is not the one that its run.json names"),
        (other_boot, "did not begin and finish in one boot"),
    ],
)
def test_damage_that_was_sealed_is_found_all_the_same(
    folder: Path, damage: Callable[[Path], None], said: str
) -> None:
    damage(folder)
    write_manifest(folder)
    write(results(folder))
    problems = verify(folder).problems
    assert len(problems) == 1
    assert said in problems[0]
    assert first(folder).name in problems[0]


def test_a_try_before_in_another_boot_is_no_fault(folder: Path) -> None:
    lines = journal(folder)
    begun = next(i for i, line in enumerate(lines) if line["state"] == "running")
    cut = {**lines[begun], "boot_id": "another"}
    void = {**cut, "state": "void", "cause": "target-down"}
    write_lines(folder / "journal.jsonl", [*lines[:begun], cut, void, *lines[begun:]])
    write_manifest(folder)
    write(results(folder))
    assert verify(folder).problems == ()


@pytest.mark.parametrize("state", ["void", "running", ""])
def test_a_run_is_not_counted_that_the_journal_does_not_leave_finished(
    folder: Path, state: str
) -> None:
    """Whatever reads the suite: its figures name no run but those that are closed."""
    name = first(folder).name
    lines = [line for line in journal(folder) if state or line["run_id"] != name]
    if state:
        cause = "failed" if state == "void" else ""
        lines.append({**lines[-1], "state": state, "run_id": name, "cause": cause})
    write_lines(folder / "journal.jsonl", lines)
    counted = {path.name for path in (folder / "runs").iterdir()}
    (problem,) = trail(folder, counted).problems
    assert problem.startswith(f"Run {name} is counted, but the journal leaves it at")
    kept = pl.read_parquet(folder / "energy.parquet")
    assert name in set(kept["run_id"])  # of before: so the old table does not pass either
    write_manifest(folder)
    assert any("does not follow from the raw bytes" in said for said in verify(folder).problems)
    assert name not in {run.run_id for run in results(folder).suite.runs}
