"""The scatter of a machine's power at rest and under load, and the changes that a suite can find.

The mean power over T seconds scatters with the variance S/T where T is long against whatever ties
one moment to the next; S, the long-run variance, is estimated from overlapping batch means (M. S.
Meketon and B. Schmeiser, Overlapping batch means: something for nothing?, WSC 1984). What a
workload's own course adds from run to run is not in it: only a pilot shows that.
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
# Of a stretch, in which the load begins or fans still follow it.
EDGE_S = 3.0
BATCH_S = 2.0
FEWEST_BATCHES = 10


@dataclass(frozen=True)
class Stretch:
    """Mean power, and the long-run variance of its relative deviation, in s.

    The mean over T seconds has the relative variance `variance_s` / T.
    """

    power_w: float
    variance_s: float

    def scatter(self, seconds: float) -> float:
        """Return the relative standard deviation of the mean power over so long."""
        return math.sqrt(self.variance_s / seconds)


@dataclass(frozen=True)
class Noise:
    """`source` is the meter's name, or RAPL; `terms` are the meter's, none for RAPL."""

    source: str
    rest: Stretch
    load: Stretch
    terms: tuple[ErrorTerm, ...] = ()


def stretch(times_s: Floats, power_w: Floats) -> Stretch:
    """Estimate a stretch from evenly spaced means of power; raises ValueError for too few."""
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
    # The factor that makes the mean of overlapping batches unbiased for independent readings.
    variance = n * size * spread / ((n - size + 1) * (n - size))
    return Stretch(mean_w, variance * step_s / mean_w**2)


def detectable_change(
    noise: Stretch, seconds: float, blocks: int, terms: Sequence[ErrorTerm] = ()
) -> float | None:
    """Return the smallest relative change that so many blocks find with a power of 80 %.

    `seconds` are those of the workload; None where so few blocks bound nothing. Scatter as of two
    runs in each block; of the meter, the terms whose errors two readings do not share, at these
    joules (a gain cancels).
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


def measure(target: TargetDocument, seconds: float = STRETCH_S) -> Noise:
    """Measure rest and load of so long each, by the first meter with a channel `system`, or RAPL.

    Raises ControllerError.
    """
    meter = next((m for m in target.meters if "system" in m.channels.values()), None)
    if meter is None:
        return _by_rapl(target, seconds)
    with tempfile.TemporaryDirectory(prefix="fde-noise-") as folder:
        with _recorded(meter, Path(folder)):
            time.sleep(seconds)
            rested_ns = monotonic_ns()
            survey.load(target, seconds)
            worked_ns = monotonic_ns()
        return _by_meter(meter, Path(folder), (rested_ns, worked_ns), seconds)


@contextmanager
def _recorded(meter: MeterEntry, folder: Path) -> Iterator[None]:
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
    """Return the noise of a recording; `ends_ns` are those of rest and load."""
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
    with _worded():
        return Noise(meter.name, stretch_until(ends_ns[0]), stretch_until(ends_ns[1]), terms)


def _by_rapl(target: TargetDocument, seconds: float) -> Noise:
    import numpy as np

    def stretch_of(rows: Sequence[tuple[int, float]]) -> Stretch:
        table = np.asarray(rows, float)
        times = table[:, 0] / 1e9
        return stretch(times[1:], np.diff(table[:, 1]) / np.diff(times))

    at_rest = survey.read_joules(target, seconds)
    with ThreadPoolExecutor(1) as pool:
        at_work = pool.submit(survey.read_joules, target, seconds)
        survey.load(target, seconds + 5)
    with _worded():
        return Noise("RAPL", stretch_of(at_rest), stretch_of(at_work.result()))


@contextmanager
def _worded() -> Iterator[None]:
    try:
        yield
    except (ValueError, IndexError) as error:
        raise ControllerError("noise-unmeasured", error=error) from None
