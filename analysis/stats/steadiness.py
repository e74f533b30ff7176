"""How steady the machine was: scatter, drift, order, and runs that stand out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl
from scipy import special

from analysis.energy.energy import ALL
from analysis.stats.comparison import Comparison, compare
from analysis.stats.drifting import long_run_half_width
from analysis.stats.stats import LEVEL, Estimate, Floats
from analysis.stats.two_way import Layout, Slope, percent
from analysis.suite.clocks import TargetClock
from analysis.suite.records import DRIFT_CHECK, SYSTEM, Run, Suite

FLAGGED = 0.01  # chance of a flag in a workload without outliers
NS_PER_HOUR = 3.6e12


@dataclass(frozen=True)
class Outlier:
    """A run apart from what its block and its configuration lead to expect.

    `off_percent` is how far, `deviations` the same in standard errors that the others tell.
    """

    block: int
    configuration: str
    off_percent: float
    deviations: float


@dataclass(frozen=True)
class Beside:
    """A configuration's ratio to the baseline with all blocks, and without those flagged in it."""

    configuration: str
    with_all: Comparison | None
    without: Comparison | None
    left_out: tuple[int, ...]


@dataclass(frozen=True)
class Steadiness:
    """Of one workload. What too few blocks or times cannot tell is None, never a guess.

    `between_sd_percent` is the scatter of the blocks' means, `within_sd_percent` what is left of
    single runs, the place's effect in it. `drift_percent_per_hour` takes a block as one value, so
    it needs three. `place_percent` is the change from one place in the order within a block to the
    next; a steady drift shows in both. `carry_over_p` is the p-value of no configuration mattering
    for the one that runs after it. `blocks` are the blocks' own effects, from their mean;
    `long_run_percent` is how far, by their drift, the workload's mean joules may lie from those in
    the long run (95 %). `judged` are the configurations of the runs that were looked at.
    """

    workload: str
    n: int
    between_sd_percent: float | None
    within_sd_percent: float | None
    drift_percent_per_hour: Estimate | None
    place_percent: Estimate | None
    carry_over_p: float | None
    blocks: Mapping[int, Estimate]
    outliers: tuple[Outlier, ...]
    beside: tuple[Beside, ...]
    long_run_percent: float | None = None
    judged: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Cell:
    block: int
    configuration: str
    log: float
    hours: float | None
    place: float
    after: str | None  # the configuration that ran just before


def steadiness(
    suite: Suite, energy: pl.DataFrame, clock: TargetClock, component: str = SYSTEM
) -> list[Steadiness]:
    """By workload, in the plan's order; only workloads with joules of this component."""
    hours, places = hours_of(suite.runs, clock), places_of(suite.runs, clock)
    after = {entry: before for (_, before), entry in pairwise(places)}
    rows = energy.filter(pl.col("energy_j") > 0, component=component, phase=ALL)
    found = []
    for workload in suite.workloads:
        cells: dict[tuple[int, str], list[_Cell]] = {}
        of_workload = rows.filter(workload=workload)
        for run_id, block, name, joules in of_workload.select(
            "run_id", "block", "configuration", "energy_j"
        ).iter_rows():
            place = float(places.get((block, name), 0))
            one = _Cell(
                *(block, name, float(np.log(joules)), hours.get(run_id), place),
                after.get((block, name)),
            )
            cells.setdefault((block, name), []).append(one)
        if cells:
            means = [_mean_cell(cells[key]) for key in sorted(cells)]
            found.append(_of_workload(suite, workload, means))
    return found


def hours_of(runs: Sequence[Run], clock: TargetClock) -> dict[str, float]:
    """Hours from the first run's start to each one's; empty where boots cannot be set beside.

    Within one boot the target's own clock tells; across boots the controller's must.
    """
    starts: dict[str, int] = {}
    one_boot = len({run.boot_id for run in runs}) == 1
    for run in runs:
        at = run.t_start_ns if one_boot else clock.to_controller_ns(run.boot_id, run.t_start_ns)
        if at is None:
            return {}
        starts[run.run_id] = at
    first = min(starts.values(), default=0)
    return {run_id: (at - first) / NS_PER_HOUR for run_id, at in starts.items()}


def places_of(runs: Sequence[Run], clock: TargetClock) -> dict[tuple[int, str], int]:
    """Place of each configuration in the order of its block, from 0, by (block, configuration), and
    these in order of time.

    The drift check is none of a block's runs.
    """
    runs = [run for run in runs if run.workload != DRIFT_CHECK]
    hours = hours_of(runs, clock)
    # Without times the order of the plan stands in; `runs` come in it.
    order = sorted(runs, key=lambda run: hours[run.run_id]) if hours else list(runs)
    places: dict[tuple[int, str], int] = {}
    for run in order:
        key = run.block, run.configuration
        if key not in places:
            places[key] = sum(block == run.block for block, _ in places)
    return places


def _mean_cell(cells: Sequence[_Cell]) -> _Cell:
    times = [cell.hours for cell in cells if cell.hours is not None]
    return _Cell(
        cells[0].block,
        cells[0].configuration,
        sum(cell.log for cell in cells) / len(cells),
        sum(times) / len(times) if len(times) == len(cells) else None,
        cells[0].place,
        cells[0].after,
    )


def _of_workload(suite: Suite, workload: str, cells: list[_Cell]) -> Steadiness:
    blocks = sorted({cell.block for cell in cells})
    layout = _layout(cells)
    if layout is None or layout.freedom < 1:
        return Steadiness(workload, len(blocks), None, None, None, None, None, {}, (), ())
    logs = np.array([cell.log for cell in cells])
    places = np.array([cell.place for cell in cells])
    hours = [cell.hours for cell in cells if cell.hours is not None]
    drift = layout.slope_between(logs, np.array(hours)) if len(hours) == len(cells) else None
    outliers = _outliers(cells)
    wide = long_run_half_width(layout.block_effects(logs))
    return Steadiness(
        workload=workload,
        n=len(blocks),
        between_sd_percent=percent(float(np.std(layout.block_effects(logs), ddof=1))),
        within_sd_percent=percent(float(layout.within_sd(logs))),
        drift_percent_per_hour=_estimate(drift, len(blocks)),
        place_percent=_estimate(layout.slope_within(logs, places), len(blocks)),
        carry_over_p=_carry_over_p(layout, cells),
        blocks=_block_effects(layout, logs, blocks),
        outliers=tuple(outliers),
        beside=tuple(_beside(suite, cells, outliers)),
        long_run_percent=None if wide is None else percent(wide),
        judged=tuple(cell.configuration for cell in cells),
    )


def _layout(cells: Sequence[_Cell]) -> Layout | None:
    blocks = sorted({cell.block for cell in cells})
    names = sorted({cell.configuration for cell in cells})
    if len(blocks) < 2 or len(names) < 2:
        return None
    return Layout.of(
        tuple(blocks.index(cell.block) for cell in cells),
        tuple(names.index(cell.configuration) for cell in cells),
    )


def _carry_over_p(layout: Layout, cells: Sequence[_Cell]) -> float | None:
    """Of what ran just before, the last of the block before included."""
    logs, places = (np.array([getattr(cell, key) for cell in cells]) for key in ("log", "place"))
    names = sorted({cell.after for cell in cells if cell.after is not None})
    after = np.array([names.index(cell.after) if cell.after else -1 for cell in cells])
    p_value = float(layout.carry_over_p(logs, after, places))
    return p_value if np.isfinite(p_value) else None


def _estimate(slope: Slope | None, n: int) -> Estimate | None:
    if slope is None or not np.isfinite(slope.error):
        return None
    low, high = slope.interval()
    return Estimate(n, percent(float(slope.value)), percent(float(low)), percent(float(high)))


def _block_effects(layout: Layout, logs: Floats, blocks: Sequence[int]) -> dict[int, Estimate]:
    effects, halves = layout.block_effects(logs), layout.block_half_widths(logs)
    return {
        block: Estimate(
            len(logs) // len(blocks),
            percent(float(effect)),
            percent(float(effect - half)),
            percent(float(effect + half)),
        )
        for block, effect, half in zip(blocks, effects, halves, strict=True)
    }


def _outliers(cells: list[_Cell]) -> list[Outlier]:
    """The worst first, then the worst of the rest, while it is beyond what chance explains."""
    left, found = list(cells), []
    while (layout := _layout(left)) is not None and layout.freedom >= 2:
        logs = np.array([cell.log for cell in left])
        distance = layout.deleted_t(logs)
        worst = int(np.argmax(np.abs(distance)))
        chance = 2 * float(special.stdtr(layout.freedom - 1, -abs(distance[worst])))
        if chance * len(left) >= FLAGGED:
            break
        own = layout.residual[worst, worst]
        off = percent(float(layout.residuals(logs)[worst]) / float(own))
        cell = left.pop(worst)
        found.append(Outlier(cell.block, cell.configuration, off, float(distance[worst])))
    return found


def _beside(suite: Suite, cells: Sequence[_Cell], outliers: Sequence[Outlier]) -> list[Beside]:
    """The comparisons that a flagged run takes part in; one of the baseline is part of all."""
    values = {(cell.configuration, cell.block): float(np.exp(cell.log)) for cell in cells}
    found = []
    for name in suite.configurations:
        flagged = {o.block for o in outliers if o.configuration in (name, suite.baseline)}
        if name == suite.baseline or suite.baseline is None or not flagged:
            continue
        blocks = sorted(
            b for b in {c.block for c in cells} if {(suite.baseline, b), (name, b)} <= values.keys()
        )
        kept = [b for b in blocks if b not in flagged]
        with_all, without = (
            compare(
                [values[suite.baseline, b] for b in which],
                [values[name, b] for b in which],
                suite.margin,
                suite.any_look,
            )
            for which in (blocks, kept)
        )
        found.append(Beside(name, with_all, without, tuple(sorted(flagged & set(blocks)))))
    return found


# A stall is rare, so that the mean of few blocks is either without any or moved by one: neither
# tells what the next hundred runs take. Their frequency is a figure of its own.
@dataclass(frozen=True)
class Stalls:
    """How often runs of one configuration took more than they should have: `stalled` of `runs`.

    The true share lies within `low` and `high`; the largest one took `most_percent` more than its
    block and configuration lead to expect.
    """

    configuration: str
    runs: int
    stalled: int
    low: float
    high: float
    most_percent: float | None


def stalls(steady: Iterable[Steadiness], configurations: Sequence[str]) -> list[Stalls]:
    """By configuration over all workloads, those with runs that could be judged."""
    runs: Counter[str] = Counter()
    over: dict[str, list[float]] = {name: [] for name in configurations}
    for one in steady:
        runs.update(one.judged)
        for outlier in one.outliers:
            if outlier.off_percent > 0:
                over.setdefault(outlier.configuration, []).append(outlier.off_percent)
    return [
        Stalls(
            name,
            runs[name],
            len(over[name]),
            *share_within(len(over[name]), runs[name]),
            max(over[name], default=None),
        )
        for name in configurations
        if runs[name]
    ]


def share_within(count: int, total: int) -> tuple[float, float]:
    """95 % limits of the probability of what came `count` times of `total`, of `total` ≥ 1.

    C. J. Clopper and E. S. Pearson, Biometrika 26, 1934; never too narrow.
    """
    low = special.betaincinv(count, total - count + 1, LEVEL / 2) if count else 0.0
    high = special.betaincinv(count + 1, total - count, 1 - LEVEL / 2) if count < total else 1.0
    return float(low), float(high)
