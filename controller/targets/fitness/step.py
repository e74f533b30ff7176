"""The response of meters to a known step of load: rest, all processors of a target busy, rest.

At rest, readings show neither their age nor their averaging time, and a dead service may repeat its
last one for minutes. Only a load at known times shows whether the readings follow, and how late.
"""

from __future__ import annotations

import math
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from contract.plan import TargetDocument
from controller.targets import survey
from controller.targets.fitness.noise import SYSTEM, recording
from instrumentation.clock import monotonic_ns
from instrumentation.watermark import LEAST_RECEIVED

if TYPE_CHECKING:
    from analysis.stats.stats import Floats
    from instrumentation.meters.base import Meter

# Length of rest and load, in periods of the meter and at least in s, beyond its declared delay.
PERIODS, LEAST_S = 5, 3.0
START_S = 3.0  # that a target may take until its processors are busy
# Smallest rise: standard deviations of a mean at rest, and share of the power at rest.
SIGMAS, LEAST_SHARE = 4.0, 0.02
# Share of the rise that readings must show once the load has lasted for the declared delay, and
# must have lost once that has passed after it.
SHOWN_SHARE = 0.5


@dataclass(frozen=True)
class Load:
    """A load of `seconds`, between its request and the answer, on the controller's clock in ns.

    `received` is the share of the time of the target's processors that a hypervisor left them.
    """

    requested_ns: int
    answered_ns: int
    seconds: float
    received: float = 1.0


@dataclass(frozen=True)
class Declared:
    """What a meter declares: its readings are means of `period_s`, and over by at most `late_s`.

    `step_w` is the step of its display.
    """

    late_s: float
    period_s: float
    step_w: float

    @classmethod
    def of_driver(cls, driver: Meter) -> Declared:
        """Read the declarations of a driver with its settings."""
        half_steps_w = (term.limit for term in driver.accuracy.terms if term.name == "resolution")
        step_w = 2 * max((limit for limit in half_steps_w if limit), default=0.0)
        return cls(driver.arrival_delay_limit_s, driver.period_s, step_w)

    @property
    def delay_s(self) -> float:
        """The time after a step from which on readings show nothing of the power before it."""
        return self.late_s + self.period_s

    @property
    def level_s(self) -> float:
        """The length of a level of power, so that some readings show it."""
        return max(LEAST_S, PERIODS * self.period_s)


@dataclass(frozen=True)
class StepResponse:
    """Powers of a channel in W around a load; by its declaration readings are `delay_s` late.

    `begin_w` and `after_w` are of the first readings in which the meter shows nothing but load, and
    nothing but rest, if it is as declared. `peak_w` is the highest level during or after the load.
    `least_rise_w` is the rise that noise and the meter's step do not explain.
    """

    rest_w: float
    begin_w: float
    peak_w: float
    after_w: float
    least_rise_w: float
    delay_s: float

    @property
    def fault(self) -> str:
        """What is wrong with the response, as a clause; empty if the readings follow the load."""
        rise_w = self.peak_w - self.rest_w
        shown = f"from {self.rest_w:.4g} W at rest to {self.peak_w:.4g} W"
        if rise_w <= self.least_rise_w:
            return f"does not follow the load: all processors were busy, and it went {shown}"
        within = f"within {self.delay_s:.3g} s, its declared delay"
        if self.begin_w - self.rest_w < SHOWN_SHARE * rise_w:
            return (
                f"follows the load too late: it went {shown}, and only to {self.begin_w:.4g} W "
                f"{within}"
            )
        if self.after_w - self.rest_w > SHOWN_SHARE * rise_w:
            return (
                f"shows the load for too long: it went {shown}, and only back to "
                f"{self.after_w:.4g} W {within}"
            )
        return ""


def response(
    times_ns: Floats, power_w: Floats, load: Load, declared: Declared
) -> StepResponse | None:
    """Judge the readings around a load; None if they are too few, or the load too late or small.

    `times_ns` are the arrivals of the readings.
    """
    import numpy as np

    if load.received < LEAST_RECEIVED:
        return None
    delay_ns = declared.delay_s * 1e9
    level_ns = max(1.0, 3 * declared.period_s) * 1e9
    shown_from_ns = load.answered_ns - load.seconds * 1e9 + delay_ns
    shown_until_ns = min(shown_from_ns + level_ns, load.requested_ns + load.seconds * 1e9)
    over_ns = load.answered_ns + delay_ns

    def within(start_ns: float, end_ns: float) -> Floats:
        return power_w[(times_ns >= start_ns) & (times_ns < end_ns)]

    rest_w = within(0, load.requested_ns)
    begin_w, after_w = within(shown_from_ns, shown_until_ns), within(over_ns, over_ns + level_ns)
    later_w = within(load.requested_ns, math.inf)
    count = max(1, min(len(begin_w), len(after_w)))
    if min(len(begin_w), len(after_w), len(rest_w) - 1) < 1:
        return None
    means_w = np.convolve(later_w, np.ones(count) / count, "valid")
    noise_w = SIGMAS * float(np.std(rest_w, ddof=1)) / math.sqrt(count)
    rest_mean_w = float(rest_w.mean())
    return StepResponse(
        rest_mean_w,
        float(begin_w.mean()),
        float(means_w.max()),
        float(after_w.mean()),
        max(noise_w, LEAST_SHARE * abs(rest_mean_w), declared.step_w),
        declared.delay_s,
    )


def measure(target: TargetDocument) -> dict[str, StepResponse | None]:
    """Step the load of a target and return the response of each meter of the whole machine.

    None is the response of a meter with too few readings. Raises ControllerError.
    """
    from instrumentation.decode import decode
    from instrumentation.recorder_port import check_meter, driver_of

    meters = {m.name: m for m in target.meters if SYSTEM in m.channels.values()}
    if not meters:
        return {}
    declared = {n: Declared.of_driver(driver_of(check_meter(m))) for n, m in meters.items()}
    delay_s = max(each.delay_s for each in declared.values())
    level_s = max(each.level_s for each in declared.values())
    with tempfile.TemporaryDirectory(prefix="fde-step-") as name, ExitStack() as recordings:
        folders = {meter: Path(name) / meter for meter in meters}
        for meter, folder in folders.items():
            folder.mkdir()
            recordings.enter_context(recording(meters[meter], folder))
        time.sleep(level_s)
        seconds = level_s + delay_s + START_S
        requested_ns = monotonic_ns()
        received = survey.load(target, seconds)
        load = Load(requested_ns, monotonic_ns(), seconds, received)
        time.sleep(level_s + delay_s)
        recordings.close()
        responses: dict[str, StepResponse | None] = {}
        for meter, folder in folders.items():
            rows = decode(folder).samples
            times_ns = rows["t_mono_ns"].to_numpy().astype(float)
            power_w = rows[f"power_w_{SYSTEM}"].to_numpy()
            responses[meter] = response(times_ns, power_w, load, declared[meter])
    return responses
