"""From the energy table to money and batteries: which runs are compared with which."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from analysis.inference.stats import Comparison, Estimate
from analysis.money.payback import Payback, Span, battery_runs, payback
from analysis.records import Suite
from analysis.summary import block_values, compare_blocks, estimate_of, joint_origin

SYSTEM = "system"
SED = "opal"
PAPER_WORKLOAD = "kernel_tree"  # the one the paper reckons with


@dataclass(frozen=True)
class Battery:
    """Runs that a full battery holds of one workload, by configuration."""

    workload: str
    configuration: str
    energy_j: Estimate
    runs: Span


def paybacks(suite: Suite, energy: pl.DataFrame) -> list[Payback]:
    """The self-encrypting disk against each software configuration, in each working workload.

    Empty where the plan has no assumptions, or no meter saw the whole system.
    """
    assumptions = suite.assumptions
    system = energy.filter(pl.col("component") == SYSTEM)
    if assumptions is None or system.is_empty():
        return []
    found = []
    for workload in working(suite):
        sed = block_values(system, workload, SED, SYSTEM)
        seconds = estimate_of(block_values(system, workload, SED, SYSTEM, column="duration_s"))
        for against in software(suite):
            base = block_values(system, workload, against, SYSTEM)
            both = sorted(sed.keys() & base.keys())
            if not both or seconds is None:
                continue
            found.append(
                payback(
                    workload,
                    against,
                    [base[b] for b in both],
                    [sed[b] for b in both],
                    run_s=seconds.mean,
                    assumptions=assumptions,
                    origin=joint_origin(system),
                )
            )
    return found


def batteries(suite: Suite, energy: pl.DataFrame) -> list[Battery]:
    """Runs on a battery, for each workload × configuration."""
    assumptions = suite.assumptions
    if assumptions is None:
        return []
    found = []
    for workload in working(suite):
        for configuration in suite.configurations:
            mean = estimate_of(block_values(energy, workload, configuration, SYSTEM))
            if mean is not None and mean.mean > 0:
                held = battery_runs(assumptions.battery_wh * 3600, mean)
                found.append(Battery(workload, configuration, mean, held))
    return found


def working(suite: Suite) -> list[str]:
    """The workloads that do something: idling saves nobody anything."""
    return [name for name in suite.workloads if name != "idle"]


def software(suite: Suite) -> list[str]:
    """The configurations that encrypt in software."""
    return [name for name in suite.configurations if name.startswith("dmcrypt")]


def headline_payback(found: list[Payback]) -> Payback | None:
    """The one to name first: the paper's workload, against the first software configuration."""
    return min(found, key=lambda p: p.workload != PAPER_WORKLOAD, default=None)


@dataclass(frozen=True)
class Overall:
    """A comparison over several workloads at once, and which they are."""

    comparison: Comparison
    workloads: tuple[str, ...]


def overall(suite: Suite, energy: pl.DataFrame, base: str, other: str) -> Overall | None:
    """Ratio over all working workloads that both have: per block the geometric mean, then paired.

    A block counts only where it has every one of these workloads on both sides, so that each block
    means the same.
    """
    pairs = {}
    for workload in working(suite):
        both = tuple(block_values(energy, workload, side, SYSTEM) for side in (base, other))
        if all(both):
            pairs[workload] = both
    if not pairs:
        return None
    sides = [side for both in pairs.values() for side in both]
    blocks = sorted(set.intersection(*(set(side) for side in sides)))
    if any(side[n] <= 0 for side in sides for n in blocks):
        return None
    means = [
        {n: _geometric([both[side][n] for both in pairs.values()]) for n in blocks}
        for side in (0, 1)
    ]
    comparison = compare_blocks(means[0], means[1], suite.margin)
    return None if comparison is None else Overall(comparison, tuple(pairs))


def _geometric(values: list[float]) -> float:
    product = 1.0
    for value in values:
        product *= value ** (1 / len(values))
    return product
