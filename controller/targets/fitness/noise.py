"""The scatter of a machine's power at rest and under load, and the change that a suite can detect.

The mean power over T seconds has the variance S/T if T is much longer than the correlation time. S,
the long-run variance, is estimated from overlapping batch means (M. S. Meketon and B. Schmeiser,
Overlapping batch means: something for nothing?, WSC 1984). The variation of a workload from run to
run is not included: only a pilot measures that.
"""

from __future__ import annotations

import math
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from contract.errors import ControllerError
from contract.plan import DeclaredAnalysis, MeterEntry, TargetDocument
from controller.targets import survey
from instrumentation.clock import monotonic_ns

if TYPE_CHECKING:
    from analysis.stats.stats import Floats
    from instrumentation.accuracy import ErrorTerm

STRETCH_S = 120.0
SYSTEM = "system"  # the channel of a meter at the whole machine
# Cut off at both ends of a stretch, where the load begins or fans still react to it.
EDGE_S = 3.0
BATCH_S = 2.0
FEWEST_BATCHES = 10


@dataclass(frozen=True)
class Stretch:
    """The mean power of a stretch, and the long-run variance of its relative deviation, in s.

    The mean over T seconds has the relative variance `variance_s` / T.
    """

    power_w: float
    variance_s: float

    def scatter(self, seconds: float) -> float:
        """Return the relative standard deviation of the mean power over `seconds`."""
        return math.sqrt(self.variance_s / seconds)


@dataclass(frozen=True)
class Noise:
    """The scatter at rest and under load; `terms` are the errors of the meter, none for RAPL.

    `source` is the meter's name, or RAPL.
    """

    source: str
    idle: Stretch
    load: Stretch
    terms: tuple[ErrorTerm, ...] = ()


def stretch(times_s: Floats, power_w: Floats) -> Stretch:
    """Estimate mean and scatter from evenly spaced means of power, shape (n,) each.

    Raises ValueError if there are too few, or the mean is not above 0.
    """
    import numpy as np

    step_s = float(np.mean(np.diff(times_s))) if len(times_s) > 1 else 0.0
    size = max(1, round(BATCH_S / step_s)) if step_s else 0
    n = len(power_w)
    if not size or n < FEWEST_BATCHES * size:
        raise ValueError(f"{n} readings are too few to estimate the scatter of the power")
    mean_w = float(np.mean(power_w))
    if mean_w <= 0:
        raise ValueError("the power is not above 0")
    sums = np.concatenate([[0.0], np.cumsum(power_w)])
    means = (sums[size:] - sums[:-size]) / size
    spread = float(np.sum((means - mean_w) ** 2))
    # This factor makes the estimate from overlapping batches unbiased for independent readings.
    variance = n * size * spread / ((n - size + 1) * (n - size))
    return Stretch(mean_w, variance * step_s / mean_w**2)


def detectable_change(
    noise: Stretch, seconds: float, blocks: int, terms: Sequence[ErrorTerm] = ()
) -> float | None:
    """Return the smallest relative change that `blocks` detect with a power of 80 %.

    `seconds` is the length of the workload. Each block has two runs with this noise; of the meter's
    error terms those count whose errors the two readings do not share (a gain cancels). None if
    there are too few blocks for any bound.
    """
    from analysis.stats.budget import instrument_error
    from analysis.stats.comparison import Comparison, detectable

    if blocks < 2:
        return None
    energy_j = noise.power_w * seconds
    type_b = instrument_error(terms, [((energy_j, seconds), (energy_j, seconds))])
    error = math.sqrt(2) * noise.scatter(seconds) / math.sqrt(blocks)
    change = detectable(Comparison(blocks, 1.0, DeclaredAnalysis.margin, error, blocks - 1.0))
    return None if change is None else math.hypot(change - 1, 1.96 * type_b)


def measure(target: TargetDocument, seconds: float) -> Noise:
    """Measure rest and load, each for `seconds`, by the first meter with a channel `system`.

    Without such a meter RAPL is read. Raises ControllerError.
    """
    meter = next((m for m in target.meters if SYSTEM in m.channels.values()), None)
    if meter is None:
        return _by_rapl(target, seconds)
    with tempfile.TemporaryDirectory(prefix="fde-noise-") as folder:
        with recording(meter, Path(folder)):
            time.sleep(seconds)
            rested_ns = monotonic_ns()
            survey.load(target, seconds)
            worked_ns = monotonic_ns()
        return _by_meter(meter, Path(folder), (rested_ns, worked_ns), seconds)


@contextmanager
def recording(meter: MeterEntry, folder: Path) -> Iterator[None]:
    """Record a meter into a folder while the context is open; raises ControllerError."""
    from instrumentation.recorder import Recorder
    from instrumentation.recorder_port import RecorderError, check_meter

    ended = threading.Event()

    def record() -> None:
        Recorder(check_meter(meter), folder, folder / "status.json").run(ended.is_set)

    with ThreadPoolExecutor(1) as pool:
        recording = pool.submit(record)
        try:
            yield
        finally:
            ended.set()
    try:
        recording.result()
    except RecorderError as error:
        raise ControllerError(error) from None


def _by_meter(meter: MeterEntry, folder: Path, ends_ns: tuple[int, int], seconds: float) -> Noise:
    """Estimate the noise from a recording; `ends_ns` are the ends of rest and load."""
    from instrumentation.decode import decode
    from instrumentation.recorder_port import driver_of

    rows = decode(folder).samples
    times, power_w = rows["t_mono_ns"].to_numpy() / 1e9, rows["power_w_system"].to_numpy()

    def stretch_until(end_ns: int) -> Stretch:
        end_s = end_ns / 1e9 - min(EDGE_S, seconds / 8)
        begin_s = end_s - seconds + 2 * min(EDGE_S, seconds / 8)
        within = (times >= begin_s) & (times <= end_s)
        return stretch(times[within], power_w[within])

    if len(power_w) and power_w.min() == power_w.max():
        raise ControllerError("meter-stands-still", meter=meter.name, power_w=power_w[0])
    driver = driver_of(meter)
    terms = replace(driver.accuracy, calibrated=driver.calibrated).terms
    with _estimate_errors():
        return Noise(meter.name, stretch_until(ends_ns[0]), stretch_until(ends_ns[1]), terms)


def _by_rapl(target: TargetDocument, seconds: float) -> Noise:
    """Measure the noise of RAPL at rest and under load; raises ControllerError."""
    import numpy as np

    def stretch_of(rows: Sequence[tuple[int, float]]) -> Stretch:
        table = np.asarray(rows, float)
        times = table[:, 0] / 1e9
        return stretch(times[1:], np.diff(table[:, 1]) / np.diff(times))

    at_rest = survey.read_joules(target, seconds)
    with ThreadPoolExecutor(1) as pool:
        at_work = pool.submit(survey.read_joules, target, seconds)
        survey.load(target, seconds + 5)
    with _estimate_errors():
        return Noise("RAPL", stretch_of(at_rest), stretch_of(at_work.result()))


@contextmanager
def _estimate_errors() -> Iterator[None]:
    """Convert errors of an estimate into a ControllerError."""
    try:
        yield
    except (ValueError, IndexError) as error:
        raise ControllerError("noise-unmeasured", error=error) from None
