"""Marked loads of a real machine, by a real instrument: data/traces, and its README.

An energy counter that moves ten times a second was read every 5 ms while a program marked where it
began and ended its loads. A meter is made of it that reads the counter every 0.1 to 2 s, from ten
different moments on. The truth at a mark is the counter at its movement on the side of the rest,
continued at the power of the rest: between two movements the load steps, and a straight line
through both would give the load up to 30 J too little.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import polars as pl

from analysis.energy.curve import Edge
from analysis.energy.metered import Metered
from analysis.suite.clocks import Floats, Ints
from analysis.suite.samples import of_table
from lab.state import REPOSITORY
from validation.bench import Figure, at_least
from validation.metrology.loads import Trial

FOLDER = REPOSITORY / "data" / "traces"
WINDOWS_S = (0.1, 0.2, 0.5, 1.0, 2.0)
SLOW_S = 2.0  # windows as long as the rests, which tell nothing of an edge
LONG_S = 10.0  # loads that are compared
RESTING = 2  # movements of the counter that tell the power of a rest
BOUND_NS, DELAY_S = 20_000, 0.002
LEAST_HELD = 93.0


@dataclass(frozen=True, eq=False)
class Trace:
    """The counter's readings in ns and J, its movements among them, and the marked loads."""

    read_ns: Ints
    read_j: Floats
    moved: Ints
    loads_ns: list[tuple[int, int]]

    def truth_j(self, begin_ns: int, end_ns: int) -> float:
        """Return the energy of a load between two rests of at least `RESTING` movements."""
        t_ns, energy_j = self.read_ns[self.moved], self.read_j[self.moved]
        first = int(np.searchsorted(t_ns, begin_ns, side="right")) - 1
        last = int(np.searchsorted(t_ns, end_ns, side="left"))
        before, after = first - RESTING, last + RESTING
        before_w = (energy_j[first] - energy_j[before]) / (t_ns[first] - t_ns[before])
        after_w = (energy_j[after] - energy_j[last]) / (t_ns[after] - t_ns[last])
        between_j = energy_j[last] - energy_j[first]
        rests_j = before_w * (begin_ns - t_ns[first]) + after_w * (t_ns[last] - end_ns)
        return float(between_j - rests_j)

    def meter(self, window_s: float, offset: float) -> pl.DataFrame:
        """Return the readings of a meter that reads the counter every `window_s`, after a share."""
        step_ns = window_s * 1e9
        first_ns = self.read_ns[0] + (1 + offset) * step_ns
        ends_ns = np.arange(first_ns, self.read_ns[-1], step_ns)
        place = np.searchsorted(self.read_ns, ends_ns, side="right") - 1
        power_w = np.diff(self.read_j[place]) / window_s
        return pl.DataFrame(
            {
                "epoch": np.ones(len(power_w), np.int32),
                "t_mono_ns": np.rint(ends_ns[1:] + 1e6).astype(np.int64),
                "t_device_us": np.rint(ends_ns[1:] / 1e3).astype(np.int64),
                "window_s": np.full(len(power_w), window_s),
                "power_w_system": np.rint(power_w * 1e3) / 1e3,
            }
        )


@cache
def trace() -> Trace:
    """Return the recording."""
    read = pl.read_csv(FOLDER / "h100-trace.csv.gz")
    marks = pl.read_csv(FOLDER / "h100-marks.csv")
    read_j = read["energy_mj"].to_numpy() / 1e3
    moved = np.concatenate([[0], np.flatnonzero(np.diff(read_j) > 0) + 1])
    loads = marks.select("begin_ns", "end_ns").iter_rows()
    return Trace(read["t_ns"].to_numpy(), read_j, moved, [(a, b) for a, b in loads])


def measure(quick: bool = False) -> list[Figure]:
    """Return by window how often the interval of a long load held, and the error."""
    offsets = (0.0,) if quick else tuple(np.arange(0, 1, 0.1))
    figures, all_held = [], []
    for window_s in WINDOWS_S:
        trials = [trial for offset in offsets for trial in run_trials(window_s, float(offset))]
        held = [trial.held for trial in trials]
        p95 = float(np.quantile([trial.error_percent for trial in trials], 0.95))
        name = f"a real load of 10 s and more beside rests, windows of {window_s:g} s"
        figures.append(Figure(f"{name}: truth held", 100 * float(np.mean(held)), "%"))
        figures.append(Figure(f"{name}: error p95", p95, "%"))
        all_held += held * (window_s < SLOW_S)
    title = "real loads beside rests, windows of 0.1 to 1 s: truth held"
    figures.append(at_least(title, 100 * float(np.mean(all_held)), "%", LEAST_HELD))
    return figures


def run_trials(window_s: float, offset: float) -> Iterator[Trial]:
    """Yield the trial of each long load."""
    recorded = trace()
    ends = [
        recorded.read_ns[0],
        *(t for load in recorded.loads_ns for t in load),
        recorded.read_ns[-1],
    ]
    rests_ns = [int(b - a) for a, b in zip(ends[::2], ends[1::2], strict=True)]
    edges: set[Edge] = set()
    for (begin, end), (before, after) in zip(recorded.loads_ns, pairwise(rests_ns), strict=True):
        edges.add(Edge(begin, "before", before, BOUND_NS))
        edges.add(Edge(end, "after", after, BOUND_NS))
    metered = Metered.from_samples(
        of_table(recorded.meter(window_s, offset)), "device", DELAY_S, ["system"], edges
    )
    for begin, end in recorded.loads_ns:
        if end - begin >= LONG_S * 1e9:
            yield Trial(recorded.truth_j(begin, end), metered.energy("system", [(begin, end)]))
