"""One run: what is read at its edges."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from controller.measured_command import MeasureOptions, of_words, trials
from controller.measured_command.execute import Execution, Output
from controller.measured_command.options import Command
from controller.measured_command.sources import LocalSources
from controller.measured_command.trials import Trials
from instrumentation.sources.counter import ReadFailure, Reading

MS = 10**6


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


@pytest.mark.parametrize("run_ms", [537, 600, 1093])
def test_a_slow_counter_s_joules_are_those_of_the_run(
    run_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counter alone shows up to 10 J more or less, the same in each run of one length."""
    card = SlowCard()

    def execute(_command: Command, _output: Output, _input: object) -> Execution:
        card.now_ms += run_ms
        return Execution(0, 1, 0.0, 0.0, 0)

    monkeypatch.setattr(trials, "execute", execute)
    monkeypatch.setattr(time, "sleep", card.wait)
    sources = LocalSources({"nvml": card}, {})
    run = Trials(
        [of_words(["true"])], MeasureOptions(runs=3, rest_s=1.0, seed=1), sources, 1, lambda _: None
    )
    run.extend(3)
    for trial in run.done:
        used, rest = trial.used["gpu-0"], trial.rest_used["gpu-0"]
        assert used.energy_j == pytest.approx(run_ms / 10, abs=1.1)
        assert used.seconds == pytest.approx(run_ms / 1e3)
        assert rest.energy_j == pytest.approx(100, abs=1.1) and rest.seconds == pytest.approx(1.0)
