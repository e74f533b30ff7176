"""One run: what is read at its edges, and what its rests show."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from controller.measured_command import measure
from controller.measured_command.evaluate import RawTrial
from controller.measured_command.execute import Execution
from controller.measured_command.measure import Measurement
from controller.measured_command.meters import following_rest_ns, quiet_span, record_meters
from controller.measured_command.options import Command, MeasureOptions, command_from_words
from instrumentation.sources.counter import ReadFailure, Reading
from instrumentation.sources.local import LocalSources
from instrumentation.sources.polled import PolledSource

MS, S = 10**6, 10**9


@dataclass
class SlowCard:
    """A counter that is brought up to date each 100 ms, at 100 W, on a clock of the test's."""

    now_ms: float = 1037.0
    names: Sequence[str] = ("gpu-0",)

    def read(self) -> dict[str, Reading | ReadFailure]:
        at_ns = round(self.now_ms * MS)
        return {"gpu-0": Reading(at_ns, at_ns, int(self.now_ms // 100) * 10**7, window_ns=100 * MS)}

    def close(self) -> None:
        """Leave nothing open."""

    def wait(self, seconds: float) -> None:
        self.now_ms += seconds * 1e3


def blocks_of(sources: LocalSources, count: int) -> Sequence[RawTrial]:
    """Measure so many blocks of a command without a meter."""
    options = MeasureOptions(runs=count, rest_s=1.0, seed=1)
    with record_meters((), None) as meters:
        measurement = Measurement([command_from_words(["true"])], options, sources, meters)
        for _ in range(count):
            measurement.measure_block()
    return measurement.trials


@pytest.mark.parametrize("run_ms", [537, 600, 1093])
def test_joules_of_a_slow_counter_are_those_of_the_run(
    run_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counter alone shows up to 10 J more or less, the same in each run of one length."""
    card = SlowCard()

    def execute(_command: Command, _output: int) -> Execution:
        card.now_ms += run_ms
        return Execution(0, 1, 0.0, 0.0, 0)

    monkeypatch.setattr(measure, "execute", execute)
    monkeypatch.setattr(time, "sleep", card.wait)
    sources = LocalSources({"nvml": card}, {})
    for trial in blocks_of(sources, 3):
        reading, rest_reading = trial.readings["gpu-0"], trial.rest_readings["gpu-0"]
        assert reading.energy_j == pytest.approx(run_ms / 10, abs=1.1)
        assert reading.seconds == pytest.approx(run_ms / 1e3)
        assert rest_reading.energy_j == pytest.approx(
            100, abs=1.1
        ) and rest_reading.seconds == pytest.approx(1.0)


@dataclass
class FastCard(SlowCard):
    """A counter that is always up to date, which counts how often it is read."""

    reads: int = 0

    def read(self) -> dict[str, Reading | ReadFailure]:
        self.reads += 1
        at_ns = round(self.now_ms * MS)
        return {"gpu-0": Reading(at_ns, at_ns, round(self.now_ms * 1e5), window_ns=MS)}


def test_the_counters_edge_is_the_last_read_before_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would be part of the command: to read the sensors of a board takes milliseconds."""
    card, reads_at_start = FastCard(), []

    def execute(_command: Command, _output: int) -> Execution:
        reads_at_start.append(card.reads)
        return Execution(0, 1, 0.0, 0.0, 0)

    monkeypatch.setattr(measure, "execute", execute)
    monkeypatch.setattr(time, "sleep", card.wait)
    blocks_of(LocalSources({"x": card}, {}), 2)
    assert reads_at_start == [2, 5] and card.reads == 6


class PolledCard(PolledSource):
    """A polled power, renewed each 100 ms: its sum rises with each read, and is no counter."""

    def __init__(self) -> None:
        super().__init__({"gpu-0": lambda: 10**8}, {}, 60.0, ("gpu-0",), {"gpu-0": 100 * MS})


def test_the_sum_of_a_polled_power_restarts_with_each_run() -> None:
    card = PolledCard()
    try:
        end, start = LocalSources({"nvml": card}, {}).edges()
        (reading,) = end.values()
        assert isinstance(reading, Reading) and reading.window_ns == 100 * MS
        assert start == end  # of one read
    finally:
        card.close()


def test_rests_beside_a_run() -> None:
    rests = [(0, 6 * S), (11 * S + 1_000_000, 17 * S), (30 * S, 36 * S)]
    assert [following_rest_ns(end * S, rests) for end in (11, 22)] == [6 * S, 0]
    # It counts from where the meter reports no more of the run, at least a half.
    assert quiet_span((10 * S, 16 * S), 1.5) == (11_500_000_000, 16 * S)
    assert quiet_span((10 * S, 12 * S), 1.5) == (11 * S, 12 * S)
