"""Test the load pattern: its sequence, and processes that follow it and always end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.tests.refusal import refuses
from instrumentation.watermark import (
    CHIPS,
    SHORTEST_CHIP_S,
    SHORTEST_DENSE_CHIP_S,
    chip_s,
    pad_s,
    play,
)

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
SPINNING_NS = 10**8  # of CPU time: more than children take to start


def test_the_sequence_is_balanced_and_correlates_with_nothing_but_itself() -> None:
    assert (CHIPS.count(1), CHIPS.count(0)) == (16, 15)
    assert CHIPS[:2] == CHIPS[-2:] == (0, 0)
    signs = [2 * chip - 1 for chip in CHIPS]
    products = [
        sum(a * b for a, b in zip(signs, signs[k:] + signs[:k], strict=True)) for k in range(31)
    ]
    assert products == [31] + [-1] * 30


@pytest.mark.parametrize(("period_s", "chip"), [(1, 1.3), (0.1, 0.25), (0.01, 0.105), (5, 6.5)])
def test_chips_of_usual_meters(period_s: float, chip: float) -> None:
    assert chip_s(period_s) == pytest.approx(chip)


@given(st.floats(1e-5, 100))
def test_a_chip_is_long_enough_and_never_near_a_multiple_of_the_period(period_s: float) -> None:
    chip = chip_s(period_s)
    assert chip >= (SHORTEST_DENSE_CHIP_S if period_s < 0.02 else SHORTEST_CHIP_S)
    assert chip <= max(1.3 * period_s, SHORTEST_CHIP_S + period_s, 2.5 * period_s) * (1 + 1e-9)
    beyond = chip / period_s % 1
    assert 0.29 < beyond < 0.71
    assert pad_s(period_s) >= 2 * period_s


@pytest.mark.parametrize("period_s", [0, -1, float("nan"), float("inf")])
def test_an_invalid_period_is_refused(period_s: float) -> None:
    with pytest.raises(ValueError):
        chip_s(period_s)


@pytest.mark.parametrize(("chips", "seconds"), [((0, 0), 0.1), ((1,), 0.0), ((), 0.1)])
def test_an_empty_watermark_is_refused(chips: tuple[int, ...], seconds: float) -> None:
    with pytest.raises(ValueError):
        play(chips, seconds)


def children() -> list[int]:
    """Return this process's children."""
    pids: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        pids += [int(pid) for pid in path.read_text().split()]
    return pids


def cpu_ns(pid: int) -> int:
    """Return the CPU time of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    except (OSError, IndexError):
        return 0


def alive(pid: int) -> bool:
    """Return whether a process runs; zombies do not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < limit, "it never came to pass"
        time.sleep(0.01)


class Watcher(threading.Thread):
    """A thread that samples the CPU time of this process's new children."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.before = set(children())
        self.samples: list[tuple[int, int]] = []
        self.pids: set[int] = set()
        self._over = threading.Event()
        self._seen: dict[int, int] = {}

    def __enter__(self) -> Watcher:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def wait_for_load(self) -> None:
        wait_for(lambda: sum(map(cpu_ns, self.pids)) > SPINNING_NS)

    def run(self) -> None:
        while not self._over.wait(0.005):
            self.pids |= set(children()) - self.before
            for pid in self.pids:
                self._seen[pid] = max(self._seen.get(pid, 0), cpu_ns(pid))
            self.samples.append((time.monotonic_ns(), sum(self._seen.values())))


def test_children_load_the_cpus_in_high_chips_and_rest_in_low_ones() -> None:
    with Watcher() as watcher:
        played = play((1, 0, 1), 0.25)
    assert played.cpus == len(os.sched_getaffinity(0)) == len(watcher.pids)
    assert [level for _, level in played.edges] == [1, 0, 1, 0]
    times = [t for t, _ in played.edges]
    assert times == sorted(times)
    busy = {1: 0.0, 0: 0.0}
    for (t, before), (_, after) in pairwise(watcher.samples):
        if times[0] <= t < times[-1]:
            level = [level for edge, level in played.edges if edge <= t][-1]
            busy[level] += after - before
    # One sample's time may fall to the wrong side of each edge.
    assert busy[1] > 5 * busy[0]
    assert not any(alive(pid) for pid in watcher.pids)


def test_stretches_that_touch_are_one() -> None:
    played = play((1, 1, 0, 1), 0.05, cpus={min(os.sched_getaffinity(0))})
    assert played.cpus == 1 and played.spread_ns == 0
    assert [level for _, level in played.edges] == [1, 0, 1, 0]


def test_an_absent_cpu_is_refused() -> None:
    before = set(children())  # a guest, where the whole suite of tests runs in this process
    with refuses("process-ended"):
        play((1, 0), 0.1, cpus={4095})
    assert not any(alive(pid) for pid in children() if pid not in before)


class StopPlayError(BaseException):
    """Raised by a signal's handler, as in the agent."""


def test_a_signal_that_raises_leaves_no_child_behind() -> None:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise StopPlayError

    before = signal.signal(signal.SIGUSR1, stop)

    def interrupt() -> None:
        watcher.wait_for_load()
        os.kill(os.getpid(), signal.SIGUSR1)

    interrupter = threading.Thread(target=interrupt)
    try:
        with Watcher() as watcher:
            interrupter.start()
            with pytest.raises(StopPlayError):
                play((1,), 3600.0)  # a child that is only waited for would hang this test
            interrupter.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert watcher.pids
    assert not any(alive(pid) for pid in watcher.pids)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_children_end_with_a_killed_parent(number: signal.Signals) -> None:
    code = f"from instrumentation.watermark import play; play((1,), {PATIENCE_S})"
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)

    def grandchildren() -> list[int]:
        path = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    try:
        wait_for(lambda: sum(map(cpu_ns, grandchildren())) > SPINNING_NS)
        spinning = grandchildren()
    finally:
        parent.send_signal(number)
        parent.wait()
    assert spinning
    wait_for(lambda: not any(alive(pid) for pid in spinning))


def test_a_killed_child_is_an_error_and_ends_the_others() -> None:
    def kill() -> None:
        watcher.wait_for_load()
        os.kill(min(watcher.pids), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    with Watcher() as watcher:
        killer.start()
        with refuses("process-ended"):
            play((1,), 3.0)
        killer.join()
    assert not any(alive(pid) for pid in watcher.pids)


def test_the_child_runs_from_its_file_only(tmp_path: Path) -> None:
    copy = tmp_path / "load.py"
    copy.write_text((ROOT / "instrumentation" / "watermark_load.py").read_text())
    process = subprocess.run(
        [sys.executable, "-I", "-S", copy, str(os.getpid()), str(min(os.sched_getaffinity(0)))],
        input="[]\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout == "ready\n[]\n"
