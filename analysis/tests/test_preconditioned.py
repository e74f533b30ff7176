"""The state of the disks, as a suite's folder records it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from analysis.report import disks_section
from analysis.suite.suite_folder import read
from validation.synthetic.suite import Options, write_suite

STEADY = (400.0, 210.0, 100.0, 98.0, 101.0, 102.0, 99.0)
RESTLESS = (100.0, 150.0) * 4


def folder_of(
    folder: Path,
    settling: Mapping[str, Sequence[float]] | None = None,
    configurations: Sequence[str] = ("plain", "opal"),
    disks: Mapping[str, Any] | None = None,
) -> Path:
    options = Options(
        blocks=1,
        interval_ms=500,
        workloads=("idle",),
        configurations=configurations,
        settling=settling,
        machine={} if disks is None else {"disks": disks},
    )
    write_suite(folder, options, seal=False)
    return folder


def problems_of(folder: Path) -> list[str]:
    return list(disks_section.sentences(read(folder)))


def test_a_disk_that_settled_is_told_with_its_window(tmp_path: Path) -> None:
    plain, sed = problems_of(folder_of(tmp_path / "s", {"plain": STEADY, "sed": RESTLESS}))
    assert "17.2 GB written over 2 times, then 7 rounds of 128 KiB in order" in plain
    assert (
        "It was steady: 100 MiB/s in rounds 3 to 7, range 4.00 % of that (at most 20.0 %)" in plain
    )
    assert "Steady state was not reached in 8 rounds: 130 MiB/s in rounds 4 to 8" in sed
    assert "count all the same" in sed


def test_what_was_asked_for_and_is_not_there_is_a_problem_and_no_guess(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "s", {"plain": STEADY})
    suite = read(folder)
    assert "Disk sed was to be preconditioned, and there is no record of it." in suite.problems
    assert problems_of(folder)[1].endswith("there is no record that it was.")


def test_a_suite_without_it_has_no_such_problem(tmp_path: Path) -> None:
    suite = read(folder_of(tmp_path / "s"))
    assert suite.preconditioned == {}
    assert not [problem for problem in suite.problems if "precondition" in problem]


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(plan_sha256="0" * 64),
        lambda d: d.update(format="fde-precondition/2"),
        lambda d: d.update(written=[{"bytes": 0, "seconds": 1}]),
        lambda d: d.update(written=[{"bytes": 1, "seconds": 0}]),
        lambda d: d.update(written=[{"bytes": True, "seconds": 1}]),
        lambda d: d.update(written=[{"bytes": 1.5, "seconds": 1}]),
        lambda d: d.update(written=d["written"] * 9),
        lambda d: d.update(filled="none"),
        lambda d: d.update(size_bytes=-1),
        lambda d: d.pop("interrupted"),
        lambda d: d.clear(),
    ],
)
def test_a_record_that_is_none_says_nothing(tmp_path: Path, change: Change) -> None:
    folder = folder_of(tmp_path / "s", {"plain": STEADY, "sed": STEADY})
    path = folder / "precondition" / "plain.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")
    suite = read(folder)
    assert suite.preconditioned["plain"] is None and suite.preconditioned["sed"] is not None
    assert any("plain" in problem for problem in suite.problems)


def test_tries_before_are_told(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "s", {"plain": STEADY}, configurations=("plain",))
    path = folder / "precondition" / "plain.json"
    document = {**json.loads(path.read_text(encoding="utf-8")), "interrupted": 2}
    path.write_text(json.dumps({**document, "written": document["written"][:4]}), encoding="utf-8")
    (sentence,) = problems_of(folder)
    assert "begun 2 more times, and interrupted" in sentence
    assert "too few to show whether it was steady" in sentence


def changed(suite_folder: Path, **proof: Any) -> Path:
    for path in suite_folder.glob("runs/*-opal-*/run.json"):
        run = json.loads(path.read_text(encoding="utf-8"))
        run["proof"].update(proof)
        path.write_text(json.dumps(run), encoding="utf-8")
    return suite_folder


def test_without_it_a_disk_was_discarded_or_as_found(tmp_path: Path) -> None:
    disks = {"plain": {"written_bytes": 12_300_000_000_000, "used_percent": 4}}
    folder = changed(folder_of(tmp_path / "s", disks=disks), discard={"first_bytes": 2**30})
    plain, sed = problems_of(folder)
    assert plain == (
        "Disk plain was not preconditioned; it was as found: 12.3 TB written in its life, 4 % of "
        "its life used."
    )
    assert sed == (
        "Disk sed was not preconditioned; its whole extent was discarded each time before a "
        "configuration was made."
    )
    for outcome, bytes_, words in (
        ("discarded", 2**30, "was discarded each time"),
        ("asked", 2**30, "does not report whether it was done"),
        ("refused", 0, "It refused the discard before each configuration"),
        ("ignored", 0, "It ignored the discard before each configuration"),
    ):
        discard = {"first_bytes": bytes_, "first_outcome": outcome}
        assert words in problems_of(changed(folder, discard=discard))[1]
    odds: list[Any] = [{"first_bytes": 0}, {"first_bytes": "much"}, None, []]
    odds += [{"first_bytes": 0, "first_outcome": ["refused"]}]
    for odd in odds:
        assert problems_of(changed(folder, discard=odd))[1].endswith("what it has written so far.")


def test_a_range_that_is_made_anew_is_told_where_others_share_its_disk(tmp_path: Path) -> None:
    alone = folder_of(tmp_path / "a", {"plain": STEADY, "sed": STEADY})
    assert not any("made again" in sentence for sentence in problems_of(alone))
    shared = folder_of(tmp_path / "b", {"sed": STEADY}, configurations=("sed-unlocked", "opal"))
    (sentence,) = problems_of(shared)
    assert "its range is then made again each time" in sentence
