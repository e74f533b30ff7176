"""What the figures of a suite bear from the night that they were taken in, as sentences."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analysis.energy.energy import RAPL
from analysis.stats.canary import MOVED, Canary
from analysis.suite.records import TAIL, Suite

COVERED = 0.98  # of each measured phase, by every meter; below it the rest is filled in


def uncovered_phases(energy: pl.DataFrame) -> pl.DataFrame:
    """The rows of measured phases that a meter did not see enough of."""
    return energy.filter(
        ~pl.col("phase").is_in(["all", "between", TAIL])
        & (pl.col("source") != RAPL)
        & (pl.col("coverage") < COVERED)
    )


def uncovered(energy: pl.DataFrame) -> list[str]:
    """Runs with such a phase."""
    return sorted(uncovered_phases(energy)["run_id"].unique())


def doubts(suite: Suite, energy: pl.DataFrame, canary: Canary | None) -> list[str]:
    """One sentence each for runs void to the end, runs that a meter missed, a canary that moved."""
    return list(_doubts(suite, energy, canary))


def _doubts(suite: Suite, energy: pl.DataFrame, canary: Canary | None) -> Iterator[str]:
    if suite.void:
        blocks = sorted({run.block + 1 for run in suite.void})
        where = f"block{'s' * (len(blocks) > 1)} {', '.join(map(str, blocks))}"
        yield f"{_runs(len(suite.void))} void to the end, in {where}: pairs with them are missing."
    missed = uncovered(energy)
    if missed:
        yield (
            f"{_runs(len(missed))} finished, but not seen whole by every meter (less than "
            f"{COVERED:.0%} of a phase): what is missing is filled in where there is anything to "
            f"fill it with, and flagged: {', '.join(missed[:3])}{' …' * (len(missed) > 3)}."
        )
    if canary is not None and canary.verdict == MOVED:
        yield (
            f"The canary moved by {abs(canary.worst.change) * 100:.1f} % from first to last (limit "
            f"{canary.limit * 100:g} %): ratios within blocks hold, joules are those of a machine "
            "that changed."
        )


def _runs(number: int) -> str:
    return f"{number} run{'s are' if number != 1 else ' is'}"
