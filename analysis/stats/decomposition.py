"""Is it time or power? A difference in joules split in two, the tail's energy, the share of idling.

ΔE = P̄·Δt + t̄·ΔP holds exactly with P̄ and t̄ the means of both sides (Bennet's decomposition), in
every block and so for the means over blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from analysis.energy.energy import ALL
from analysis.stats.contrasts import IDLE
from analysis.stats.stats import Estimate, estimate
from analysis.stats.summary import rows_of
from analysis.suite.records import TAIL


@dataclass(frozen=True)
class Decomposition:
    """`other` less the base in joules, over `n` blocks: what the time and what the power explain.

    `delta_j` = `by_time_j` + `by_power_j` for the means, exactly; the intervals are each their own.
    """

    other: str
    component: str
    n: int
    delta_j: Estimate
    by_time_j: Estimate
    by_power_j: Estimate
    delta_s: Estimate
    delta_w: Estimate


@dataclass(frozen=True)
class IdleShare:
    """What of a run's joules the machine at rest would have taken in the same time.

    `share` is a share of the run's joules, `above_j` the joules beyond those of the rest.
    """

    share: Estimate
    above_j: Estimate


@dataclass(frozen=True)
class _Taken:
    """Joules and seconds of one block."""

    energy_j: float
    seconds: float

    @property
    def power_w(self) -> float:
        return self.energy_j / self.seconds


def decompose(
    energy: pl.DataFrame, workload: str, base: str, other: str, component: str, *, phase: str = ALL
) -> Decomposition | None:
    """Over the blocks that have both sides; None where there is none."""
    sides = [_taken(energy, workload, name, component, phase) for name in (base, other)]
    blocks = sorted(sides[0].keys() & sides[1].keys())
    if not blocks:
        return None
    pairs = [(sides[0][block], sides[1][block]) for block in blocks]

    def over_blocks(figure: Callable[[_Taken, _Taken], float]) -> Estimate:
        return estimate([figure(a, b) for a, b in pairs])

    return Decomposition(
        other,
        component,
        len(blocks),
        delta_j=over_blocks(lambda a, b: b.energy_j - a.energy_j),
        by_time_j=over_blocks(lambda a, b: (a.power_w + b.power_w) / 2 * (b.seconds - a.seconds)),
        by_power_j=over_blocks(lambda a, b: (a.seconds + b.seconds) / 2 * (b.power_w - a.power_w)),
        delta_s=over_blocks(lambda a, b: b.seconds - a.seconds),
        delta_w=over_blocks(lambda a, b: b.power_w - a.power_w),
    )


def tail(
    energy: pl.DataFrame, workload: str, configuration: str, component: str
) -> Estimate | None:
    """Joules above rest in the tail after a run: what the work left to be done later.

    Rest is the workload `idle` of the same configuration and block; None without it.
    """
    after = _taken(energy, workload, configuration, component, TAIL)
    rest = _taken(energy, IDLE, configuration, component, ALL)
    blocks = sorted(after.keys() & rest.keys())
    above = [after[b].energy_j - rest[b].power_w * after[b].seconds for b in blocks]
    return estimate(above) if above else None


def idle_share(
    energy: pl.DataFrame, workload: str, configuration: str, component: str
) -> IdleShare | None:
    """Share of a run's joules that rest would have taken; rest as in `tail`."""
    run = _taken(energy, workload, configuration, component, ALL)
    rest = _taken(energy, IDLE, configuration, component, ALL)
    blocks = [b for b in sorted(run.keys() & rest.keys()) if run[b].energy_j > 0]
    if not blocks:
        return None
    at_rest = {b: rest[b].power_w * run[b].seconds for b in blocks}
    return IdleShare(
        share=estimate([at_rest[b] / run[b].energy_j for b in blocks]),
        above_j=estimate([run[b].energy_j - at_rest[b] for b in blocks]),
    )


def _taken(
    energy: pl.DataFrame, workload: str, configuration: str, component: str, phase: str
) -> dict[int, _Taken]:
    """Mean joules and seconds by block, of the runs that have both."""
    rows = (
        rows_of(energy, workload, configuration, component, phase)
        .filter(pl.col("energy_j").is_not_null() & (pl.col("duration_s") > 0))
        .group_by("block")
        .agg(pl.col("energy_j").mean(), pl.col("duration_s").mean())
        .sort("block")
    )
    return {int(block): _Taken(float(e), float(s)) for block, e, s in rows.iter_rows()}
