"""Test update intervals of counters, and stretches that are too short for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Event
from time import sleep

import pytest

from instrumentation.sources.counter import COARSE, SHORTER, ReadFailure, Reading, total
from instrumentation.sources.polled import PolledSource, PowerSum
from instrumentation.sources.powercap import PowercapSource
from instrumentation.sources.updates import carry_forward, longest_intervals_ns, wait_for_lines
from instrumentation.tests.trees import TREES, counting

MS = 10**6
RANGE_UJ = 262_143_328_850


class Watch:
    """A clock that each pause advances by half a millisecond, sometimes by `away_ms` more."""

    def __init__(self, away_ms: int = 0) -> None:
        self.now_ns, self.pauses, self.away_ms = 0, 0, away_ms

    def pause(self) -> None:
        self.pauses += 1
        self.now_ns += MS // 2 + (self.away_ms * MS if self.pauses % 97 == 0 else 0)

    def count(self, every_ms: int) -> int:
        return self.now_ns // (every_ms * MS)

    def frozen_count(self) -> int:
        """Return a count of milliseconds that stops for 50 ms at 200 ms."""
        now_ms = self.now_ns // MS
        return now_ms if now_ms < 200 else max(200, now_ms - 50)


@pytest.mark.parametrize("every_ms", [1, 5, 50, 100, 900, 1500])
def test_the_update_interval_is_measured(every_ms: int) -> None:
    watch = Watch()
    (seen_ns,) = longest_intervals_ns(
        [lambda: watch.count(every_ms)], 1.0, 10_000, lambda: watch.now_ns, watch.pause
    )
    assert seen_ns is not None and every_ms <= seen_ns / MS <= every_ms + 1


def test_a_preempted_watcher_measures_no_longer_interval() -> None:
    watch = Watch(away_ms=20)
    (seen_ns,) = longest_intervals_ns(
        [lambda: watch.count(1)], 1.0, 10_000, lambda: watch.now_ns, watch.pause
    )
    assert seen_ns is not None and seen_ns <= 2 * MS


def test_a_counter_that_freezes_once_has_that_interval() -> None:
    watch = Watch()
    (seen_ns,) = longest_intervals_ns(
        [watch.frozen_count], 1.0, 10_000, lambda: watch.now_ns, watch.pause
    )
    assert seen_ns is not None and 50 <= seen_ns / MS <= 52


def test_a_watch_ends_after_enough_updates_and_a_still_counter_has_none() -> None:
    watch = Watch()
    intervals = longest_intervals_ns(
        [lambda: watch.count(1)], 1.0, 16, lambda: watch.now_ns, watch.pause
    )
    assert watch.now_ns < 20 * MS and intervals[0] is not None
    still = longest_intervals_ns([lambda: 7], 0.1, 16, lambda: watch.now_ns, watch.pause)
    assert still == [None]


def test_readings_of_open_counters_have_their_interval(tmp_path: Path) -> None:
    root = TREES["one socket"].lay_out(tmp_path)
    with PowercapSource.open(root, mirror_wait_s=0) as source:
        assert {zone.update_ns for zone in source.zones} == {None}
        assert {reading_of(r).window_ns for r in source.read().values()} == {0}
    with counting(tmp_path), PowercapSource.open(root, mirror_wait_s=0, watch_s=60) as source:
        for zone, reading in zip(source.zones, source.read().values(), strict=True):
            assert zone.update_ns and reading_of(reading).window_ns == zone.update_ns


def reading_of(reading: Reading | ReadFailure) -> Reading:
    assert isinstance(reading, Reading)
    return reading


@pytest.mark.parametrize(
    ("lasts_ms", "window_ms", "figure", "flag"),
    [
        (1000, 1, True, None),
        (1000, 50, True, COARSE),
        (40, 50, False, SHORTER),
        (5000, 300_000, False, SHORTER),
        (40, 0, True, None),
    ],
)
def test_a_stretch_shorter_than_its_window_is_lost(
    lasts_ms: int, window_ms: int, figure: bool, flag: str | None
) -> None:
    edges = [
        Reading(t * MS, t * MS, 20_000 * t + 5, window_ns=window_ms * MS) for t in (7, 7 + lasts_ms)
    ]
    difference = total(edges, RANGE_UJ)
    assert (difference.energy_uj is not None) == figure
    assert difference.flags == (() if flag is None else (flag,))
    assert total(edges, RANGE_UJ, windows=False).energy_uj == 20_000 * lasts_ms


def test_a_step_that_is_coarse_for_the_energy_is_flagged() -> None:
    """A unit of 2⁻⁶ J, and 0.3 J or 30 J."""
    range_uj = (2**32 - 1) * 15_625_000 // 1000
    for energy_uj, flags in ((300_000, (COARSE,)), (30_000_000, ())):
        difference = total([Reading(0, 0, 0), Reading(10**9, 10**9, energy_uj)], range_uj)
        assert (difference.energy_uj, difference.flags) == (energy_uj, flags)


def test_a_steadily_renewed_power_has_its_window() -> None:
    slow, moving = PowerSum(longest_ns=800 * MS), PowerSum(longest_ns=800 * MS)
    coarse = PowerSum(longest_ns=800 * MS)
    for poll in range(200):
        t = poll * 200 * MS
        last = slow.add(t, t, 10_000_000 + poll // 5)
        moving.add(t, t, 10_000_000 + poll)
        coarse.add(t, t, 10_000_000 + (poll % 17 > 8) * (poll % 3))
    assert last.window_ns == 1000 * MS
    assert moving.window_ns == coarse.window_ns == 0


def test_counters_of_a_polled_source_are_watched() -> None:
    ticks = iter(range(10**9))
    source = PolledSource(
        {}, {"gpu-0": lambda: Reading(0, 0, next(ticks) // 3)}, period_s=3600, names=("gpu-0",)
    )
    for thread in source._threads:
        thread.join()
    assert reading_of(source.read()["gpu-0"]).window_ns > 0
    source.close()


def test_the_first_update_of_a_slow_counter_sets_its_window() -> None:
    """It moves once, long after the opening: a run over that moment has no figure."""
    moved = Event()
    source = PolledSource(
        {}, {"Esocket0": lambda: Reading(0, 0, moved.is_set())}, period_s=3600, names=("Esocket0",)
    )
    watched = source._watches["Esocket0"]
    while watched.longest_ns < 20 * MS:
        sleep(0.001)
    moved.set()
    while not watched.updates:
        sleep(0.001)
    assert reading_of(source.read()["Esocket0"]).window_ns >= 20 * MS
    source.close()


class SlowCounter:
    """A counter that is updated every 100 ms, of a power with a step.

    A read takes no time; a pause moves the clock on.
    """

    def __init__(self, step_ms: float, window_ms: int = 100) -> None:
        self.now_ms, self.step_ms, self.window_ms = 0.0, step_ms, window_ms

    def energy_uj(self, at_ms: float) -> float:
        """Return the energy so far: 400 W before the step and 120 W after it."""
        return 1e3 * (400 * min(at_ms, self.step_ms) + 120 * max(0.0, at_ms - self.step_ms))

    def read(self) -> dict[str, Reading | ReadFailure]:
        at_ns = round(self.now_ms * MS)
        count_uj = round(self.energy_uj(self.now_ms // 100 * 100))
        return {"gpu": Reading(at_ns, at_ns, count_uj, window_ns=self.window_ms * MS)}

    def pause(self) -> None:
        self.now_ms += 10


@pytest.mark.parametrize("phase_ms", range(0, 100, 13))
def test_a_slow_counter_is_extrapolated_to_the_read(phase_ms: int) -> None:
    counter = SlowCounter(step_ms=1000 + phase_ms)
    counter.now_ms = 1000 + phase_ms  # the command has just ended
    shown = counter.read()
    lines = wait_for_lines(shown, counter.read, counter.pause)
    (reading,) = carry_forward(shown, lines).values()
    truth_uj = counter.energy_uj(1000 + phase_ms)
    assert isinstance(reading, Reading)
    assert abs(reading.energy_uj - truth_uj) <= 120 * 10_000  # the pause of 10 ms at 120 W
    assert reading.window_ns < 100 * MS


@pytest.mark.parametrize("fault", ["fast", "endless", "still", "fails", "falls"])
def test_only_a_rising_slow_counter_is_extrapolated(fault: str) -> None:
    windows_ms = {"fast": 1, "endless": 30_000}
    counter = SlowCounter(step_ms=0, window_ms=windows_ms.get(fault, 100))
    counter.now_ms = 1050
    reads = 0

    def read() -> dict[str, Reading | ReadFailure]:
        nonlocal reads
        reads += 1
        (reading,) = counter.read().values()
        assert isinstance(reading, Reading)
        if fault == "still":
            return {"gpu": replace(reading, energy_uj=5)}
        if fault == "falls" and reads > 8:
            return {"gpu": replace(reading, energy_uj=5)}
        if fault == "fails" and reads > 8:
            return {"gpu": ReadFailure(reading.t_before_ns, "gone")}
        return {"gpu": reading}

    assert wait_for_lines(counter.read(), read, counter.pause) == {}
    assert bool(reads) == (fault in ("still", "fails", "falls"))  # else there is no need to
    shown = counter.read()
    assert carry_forward(shown, {}) == shown
