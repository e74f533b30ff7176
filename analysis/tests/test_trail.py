"""Finished runs are those that the journal closed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis.report.verification import verify
from analysis.stats.results import load, results, write
from analysis.suite.manifest import trail
from analysis.tests.known import analysed
from contract.files import sha256_of
from validation.synthetic.folder import dump, write_lines, write_manifest
from validation.synthetic.suite import Options

Lines = list[dict[str, Any]]
SMALL = Options(blocks=2, interval_ms=100, configurations=("plain", "opal"), workloads=("idle",))


def numbered(lines: Lines) -> Lines:
    """Return the lines as if they had been written so."""
    return [{**line, "seq": seq} for seq, line in enumerate(lines)]


def journal(folder: Path) -> Lines:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(analysed(tmp_path / "s", SMALL))
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
    assert "4 finished runs have the sums that the journal closed them with" in outcome.confirmed[1]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (other_run_json, "is not the one that the journal closed"),
        (other_samples, "is not the one that its run.json names"),
        (no_samples, "is not the one that its run.json names"),
        (other_boot, "did not begin and finish in one boot"),
    ],
)
def test_damage_that_was_sealed_is_found_all_the_same(
    folder: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(folder)
    write_manifest(folder)
    write(results(folder))
    *order, problem = verify(folder).problems
    assert len(order) == (damage is other_boot)  # a boot that comes again is out of order, too
    assert message in problem
    assert first(folder).name in problem


def test_a_try_before_in_another_boot_is_no_fault(folder: Path) -> None:
    lines = journal(folder)
    begun = next(i for i, line in enumerate(lines) if line["state"] == "running")
    cut = {**lines[begun], "boot_id": "another"}
    void = {**cut, "state": "void", "cause": "target-down"}
    before = [{**line, "boot_id": "another"} for line in lines[:begun]]
    write_lines(folder / "journal.jsonl", numbered([*before, cut, void, *lines[begun:]]))
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
        lines.insert(-1, {**lines[-2], "state": state, "run_id": name, "cause": cause})
    write_lines(folder / "journal.jsonl", numbered(lines))
    counted = {path.name for path in (folder / "runs").iterdir()}
    *cut, problem = trail(folder, counted).problems
    assert problem.startswith(f"Run {name} is counted, but the journal leaves it at")
    assert len(cut) == (state != "void")
    kept = pl.read_parquet(folder / "energy.parquet")
    assert name in set(kept["run_id"])  # of before: so the old table does not pass either
    write_manifest(folder)
    problems = " ".join(verify(folder).problems)
    assert re.search(r"energy\.parquet\b.* not what the raw data give", problems)
    assert name not in {run.run_id for run in results(folder).suite.runs}


def without_end(lines: Lines) -> Lines:
    return lines[:-1]


def without_middle(lines: Lines) -> Lines:
    return [*lines[:3], *lines[4:]]


def swapped(lines: Lines) -> Lines:
    return [*lines[:2], lines[3], lines[2], *lines[4:]]


def boots_mixed(lines: Lines) -> Lines:
    return [{**line, "boot_id": "ab"[i == 4]} for i, line in enumerate(lines)]


def other_place(lines: Lines) -> Lines:
    """Return the lines of the first run at the end, with times that fit there."""
    run, rest = lines[1:4], [lines[0], *lines[4:-1]]
    moved = [{**line, "t_mono_ns": rest[-1]["t_mono_ns"]} for line in run]
    return [*rest, *moved, {**lines[-1], "t_mono_ns": rest[-1]["t_mono_ns"]}]


@pytest.mark.parametrize("again", [False, True], ids=["as-it-was", "numbered-again"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_end, "has no closing line"),
        (without_middle, "not numbered one by one|leaves it at"),
        (swapped, "not numbered one by one|run backwards"),
        (boots_mixed, "run backwards"),
        (other_place, "not numbered one by one|was not measured between its lines"),
    ],
)
def test_a_journal_that_was_cut_or_reordered_is_found(
    folder: Path,
    change: Callable[[Lines], Lines],
    message: str,
    again: bool,
) -> None:
    lines = change(journal(folder))
    write_lines(folder / "journal.jsonl", numbered(lines) if again else lines)
    write_manifest(folder)
    write(results(folder))
    assert re.search(message, " ".join(verify(folder).problems))


def void_try(folder: Path) -> None:
    (folder / "runs" / f"{first(folder).name}.void-1").mkdir()


def unknown_run(folder: Path) -> None:
    (folder / "runs" / "0099-b09-plain-idle").mkdir()


def lost_run_json(folder: Path) -> None:
    (first(folder) / "run.json").unlink()


def kept_file(folder: Path) -> None:
    path = first(folder) / "run.json"
    dump(path, {**json.loads(path.read_text()), "kept": {}})
    dump(path.parent / "kept" / "other.json", {})
    lines = journal(folder)
    sha256 = sha256_of(path)
    facts = [line["facts"] for line in lines if line["run_id"] == first(folder).name]
    facts[-1]["sha256"] = sha256
    write_lines(folder / "journal.jsonl", lines)


def other_plan(folder: Path) -> None:
    document = json.loads((folder / "plan.json").read_text())
    dump(folder / "plan.json", {**document, "tail_s": 99})


def other_steady_state(folder: Path) -> None:
    *lines, last = journal(folder)
    facts = {"disk": "plain", "sha256": "0" * 64}
    line = {**last, "state": "preconditioned", "facts": facts}
    dump(folder / "precondition" / "plain.json", {})
    write_lines(folder / "journal.jsonl", numbered([*lines, line, last]))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (void_try, "has 1 void tries, the journal has 0"),
        (unknown_run, "does not name runs/0099-b09-plain-idle"),
        (lost_run_json, "its run.json cannot be read"),
        (kept_file, "are not those that its run.json names"),
        (other_plan, "plan.json is not what was frozen"),
        (other_steady_state, "precondition/plain.json is not the one"),
    ],
)
def test_every_file_is_held_against_what_closed_it(
    folder: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(folder)
    write_manifest(folder)
    write(results(folder))
    assert message in " ".join(verify(folder).problems)


def test_samples_that_do_not_follow_from_the_raw_bytes_are_found_and_not_used(folder: Path) -> None:
    """Whatever seal and sums a stranger makes for them."""
    path = folder / "meters/meter0/samples.parquet"
    honest = load(folder)
    wrong = pl.read_parquet(path).with_columns(pl.col("power_w_system") * 2)
    wrong.write_parquet(path)
    write_manifest(folder)
    assert load(folder).drop("suite_id").equals(honest.drop("suite_id"))
    (problem,) = verify(folder).problems
    assert problem.startswith("meters/meter0/samples.parquet does not follow from the raw bytes")
    write(results(folder))
    path.write_bytes(b"PAR1")
    write_manifest(folder)
    assert "cannot be compared" in verify(folder).problems[0]
    assert load(folder).equals(honest)
