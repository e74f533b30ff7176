"""The journal survives a power cut, and a follower sees every line once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from contract import journal
from contract.tests.refusal import refuses


def _write(path: Path, *states: tuple[str, str]) -> None:
    writer = journal.Journal(path)
    for state, run_id in states:
        writer.append(state, run_id)
    writer.close()


@pytest.mark.parametrize("torn", [b'{"seq": 2, "t_mo', b"\0" * 60, b"\0\0\0\n", b"{}\n"])
def test_a_torn_last_line_is_cut_off_and_numbers_go_on(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    _write(path, ("suite-started", ""), ("running", "r1"))
    with path.open("ab") as file:
        file.write(torn)
    assert [e.state for e in journal.read(path)] == ["suite-started", "running"]
    _write(path, ("finished", "r1"))
    entries = journal.read(path)
    assert [e.seq for e in entries] == [0, 1, 2]
    assert journal.last_states(entries) == {"r1": "finished"}


def test_every_cut_leaves_whole_entries(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    _write(path, ("suite-started", ""), ("running", "r1"), ("finished", "r1"))
    data = path.read_bytes()
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        entries, whole_bytes = journal.scan(path)
        assert whole_bytes == data[:cut].rfind(b"\n") + 1
        assert [e.seq for e in entries] == list(range(data[:cut].count(b"\n")))


def test_damage_in_the_middle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    _write(path, ("suite-started", ""), ("running", "r1"), ("finished", "r1"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"rubbish\n" + lines[2])
    with refuses("journal-damaged", line=2):
        journal.read(path)


def test_an_unknown_state_is_refused(tmp_path: Path) -> None:
    writer = journal.Journal(tmp_path / "journal.jsonl")
    with pytest.raises(ValueError):
        writer.append("done")


def test_follow_continues_after_a_resumed_suites_end(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    _write(path, ("suite-started", ""), ("suite-failed", ""))
    steps = iter([[("suite-started", "")], [("running", "r1")], [("suite-finished", "")]])

    def write_next(_seconds: float) -> None:
        _write(path, *next(steps))

    followed = [e.seq for e in journal.follow(path, 2, sleep=write_next)]
    assert followed == [2, 3, 4]
    assert [e.seq for e in journal.follow(path, 1, sleep=write_next)] == [1, 2, 3, 4]


def test_follow_waits_for_a_missing_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    steps = iter([[], [("suite-started", ""), ("suite-finished", "")]])

    def write_next(_seconds: float) -> None:
        states = next(steps)
        if states:
            _write(path, *states)

    assert [e.state for e in journal.follow(path, 0, sleep=write_next)] == [
        "suite-started",
        "suite-finished",
    ]


def test_follow_yields_only_flushed_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.jsonl"
    _write(path, ("suite-started", ""), ("suite-failed", ""))
    synced: list[str] = []
    fsync = os.fsync

    def watched(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", watched)
    for _ in journal.follow(path, 0):
        assert synced == [str(path)]
