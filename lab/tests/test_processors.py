"""The processor of a guest, and the exclusion of other processes from it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lab import processors

TWO = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor may be used here")


def status(place: Path, pid: int, name: str, allowed: str) -> None:
    folder = place / str(pid)
    folder.mkdir()
    lines = {"Name": name, "VmSize": "1 kB", "Cpus_allowed_list": allowed}
    text = "".join(f"{key}:\t{value}\n" for key, value in lines.items())
    (folder / "status").write_text(text, encoding="utf-8")


def test_only_bound_guests_take_processors(tmp_path: Path) -> None:
    status(tmp_path, 10, "linux", "1")
    status(tmp_path, 11, "linux", "0-3")  # not bound
    status(tmp_path, 12, "python", "2")  # no guest
    (tmp_path / "13").mkdir()  # has ended
    assert processors.taken(tmp_path) == {1}


@pytest.mark.parametrize(
    ("taken", "busy", "chosen"),
    [
        (set(), {}, 3),
        (set(), {0: 5, 1: 0, 2: 9, 3: 2}, 1),
        ({1}, {0: 5, 1: 0, 2: 9, 3: 2}, 3),
        ({0, 1, 2, 3}, {0: 5, 1: 1, 2: 9, 3: 2}, 1),
    ],
)
def test_free_before_taken_and_idle_before_busy(
    taken: set[int], busy: dict[int, int], chosen: int
) -> None:
    assert processors.best(range(4), taken, busy) == chosen


def test_siblings_are_of_one_core(tmp_path: Path) -> None:
    topology = tmp_path / "cpu2" / "topology"
    topology.mkdir(parents=True)
    (topology / "thread_siblings_list").write_text("2,6-7\n", encoding="ascii")
    assert processors.siblings(2, tmp_path) == {2, 6, 7}
    assert processors.siblings(3, tmp_path) == {3}


@TWO
def test_processes_are_bound_to_the_guests_or_other_processors(tmp_path: Path) -> None:
    usable = sorted(os.sched_getaffinity(0))
    with processors.chosen(tmp_path / "below" / "lock") as processor:
        assert processor in usable
    show = ["sh", "-c", "grep Cpus_allowed_list /proc/self/status"]

    def allowed(*, guest: bool) -> str:
        command = processors.bound(show, processor, guest=guest)
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        return result.stdout.split()[1]

    assert allowed(guest=True) == str(processor)
    assert str(processor) not in allowed(guest=False).replace("-", ",").split(",")
    assert processors.bound(show, None, guest=True) == show
