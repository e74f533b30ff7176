"""How steady the machine was: scatter and carry-over.

Blocks and configurations are two sets of additive effects on the logarithm of joules; the residual
without both shows carry-over. Functions work along the last axis, so that a suite and many
simulated ones use the same code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import special

from analysis.energy.energy import ALL
from analysis.stats.stats import LEVEL, Floats
from analysis.suite.clocks import TargetClock
from analysis.suite.records import DRIFT_CHECK, SYSTEM, Run, Suite

NS_PER_HOUR = 3.6e12


@dataclass(frozen=True)
class Steadiness:
    """Scatter and carry-over of one workload; None for figures that need more blocks.

    `between_sd_percent` is the scatter of the blocks' means, `within_sd_percent` the residual
    scatter of single runs. `carry_over_p` is the p-value of no effect of a configuration on the one
    that runs after it, `carry_over_least_percent` the smallest such effect that this test detects
    with 80 % power.
    """

    workload: str
    n: int
    between_sd_percent: float | None
    within_sd_percent: float | None
    carry_over_p: float | None
    carry_over_least_percent: float | None


def steadiness(
    suite: Suite, energy: pl.DataFrame, clock: TargetClock, component: str = SYSTEM
) -> list[Steadiness]:
    """Compute scatter and carry-over of each workload with joules of this component."""
    places = places_of(suite.runs, clock)
    after = {entry: before for before, entry in pairwise(places)}
    rows = energy.filter(pl.col("energy_j") > 0, component=component, phase=ALL)
    workloads = []
    for workload in suite.workloads:
        logs = (
            rows.filter(workload=workload)
            .group_by("block", "configuration")
            .agg(pl.col("energy_j").log().mean())
            .sort("block", "configuration")
        )
        if len(logs):
            cells = list(zip(logs["block"], logs["configuration"], strict=True))
            at = np.array([float(places.get(cell, 0)) for cell in cells])
            before = [after[cell][1] if cell in after else "" for cell in cells]
            workloads.append(_of_workload(workload, cells, logs["energy_j"].to_numpy(), at, before))
    return workloads


def hours_of(runs: Sequence[Run], clock: TargetClock) -> dict[str, float]:
    """Return the hours from the first run's start to each run's, by run.

    Within one boot the target's clock is enough; across boots the controller's is needed, and
    without it the result is empty.
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
    """Return each configuration's place in its block, from 0, by (block, configuration).

    The order is that of time. The drift check is not part of a block.
    """
    runs = [run for run in runs if run.workload != DRIFT_CHECK]
    hours = hours_of(runs, clock)
    # Without times, take the order of the plan, in which `runs` are.
    order = sorted(runs, key=lambda run: hours[run.run_id]) if hours else list(runs)
    places: dict[tuple[int, str], int] = {}
    for run in order:
        key = run.block, run.configuration
        if key not in places:
            places[key] = sum(block == run.block for block, _ in places)
    return places


def _of_workload(
    workload: str,
    cells: Sequence[tuple[int, str]],
    logs: Floats,
    places: Floats,
    before: Sequence[str],
) -> Steadiness:
    """Compute scatter and carry-over from logarithms, places and preceding configurations."""
    blocks, names = (np.unique(side, return_inverse=True)[1] for side in zip(*cells, strict=True))
    n = int(blocks.max()) + 1
    layout = None
    if n > 1 and names.max() > 0:
        layout = Layout.from_cells(tuple(blocks.tolist()), tuple(names.tolist()))
    if layout is None or layout.freedom < 1:
        return Steadiness(workload, n, None, None, None, None)
    kinds = sorted({*before} - {""})
    after = np.array([kinds.index(name) if name else -1 for name in before])
    p_value, least = map(float, layout.carry_over(logs, after, places))
    testable = np.isfinite(p_value)
    return Steadiness(
        workload=workload,
        n=n,
        between_sd_percent=percent(float(np.std(logs @ layout.solve.T, ddof=1))),
        within_sd_percent=percent(
            float(np.sqrt(np.sum((logs @ layout.residual) ** 2) / layout.freedom))
        ),
        carry_over_p=p_value if testable else None,
        carry_over_least_percent=percent(least) if testable and np.isfinite(least) else None,
    )


Ints = npt.NDArray[np.int64]
POWER = 0.8
ROUNDING = 1e-12  # of a logarithm: a residual as small counts as 0


@dataclass(frozen=True, eq=False)
class Layout:
    """The least-squares solution for N values by block and configuration.

    `solve` (effects × N) gives the mean, then the blocks' effects, which sum to 0; `residual`
    (N × N) removes both sets of effects and leaves `freedom` degrees of freedom.
    """

    solve: Floats
    residual: Floats
    freedom: int

    @classmethod
    @lru_cache(maxsize=8)  # the workloads of a suite mostly share one
    def from_cells(cls, block: tuple[int, ...], configuration: tuple[int, ...]) -> Layout | None:
        """Solve for cells whose numbers start at 0 without gaps; None if effects are confounded."""
        blocks, configurations = max(block) + 1, max(configuration) + 1
        design = np.hstack(
            [np.ones((len(block), 1)), _coded(block, blocks), _coded(configuration, configurations)]
        )
        if np.linalg.matrix_rank(design) < design.shape[1]:
            return None
        inverse = np.linalg.pinv(design)
        residual = np.eye(len(block)) - design @ inverse
        solve = _coded(range(blocks), blocks) @ inverse[1:blocks]
        return cls(solve, residual, len(block) - design.shape[1])

    def carry_over(self, values: Floats, after: Ints, places: Floats) -> tuple[Floats, Floats]:
        """Test that the preceding configuration has no effect; return p and detectable effect.

        The detectable effect is that of one configuration that the F test detects with 80 % power.
        First-order carry-over: additive effects, tested all at once in addition to those of block,
        configuration and place (B. Jones and M. G. Kenward, Design and Analysis of Cross-Over
        Trials). Arguments are … × N, `after` the number of the preceding configuration, −1 if
        nothing ran before; results are …, NaN if the order does not allow the test.
        """
        kinds = np.arange(-1, int(after.max(initial=0)) + 1)
        columns = np.concatenate([places[..., None], after[..., None] == kinds], axis=-1)
        residuals, along = values @ self.residual, self.residual @ columns
        reduced, reduced_rank = _explained(residuals, along[..., :2])
        full, full_rank = _explained(residuals, along)
        tested, freedom = full_rank - reduced_rank, self.freedom - full_rank
        unexplained = np.maximum(np.sum(residuals**2, axis=-1) - full, ROUNDING**2)
        testable = (tested > 0) & (freedom > 0)
        numerator, denominator = np.where(testable, tested, 1), np.where(testable, freedom, 1)
        variance = unexplained / denominator
        p_values = special.fdtrc(
            numerator, denominator, np.maximum(full - reduced, 0.0) / numerator / variance
        )
        # A configuration's effect shows in the part of its column that place and blocks lack.
        least = np.full(np.shape(p_values), np.inf)
        for kind in range(2, columns.shape[-1]):
            column = along[..., kind]
            square = np.sum(column**2, axis=-1) - _explained(column, along[..., :2])[0]
            least = np.minimum(least, np.where(square > ROUNDING, square, np.inf))
        needed = special.ncfdtrinc(
            numerator, denominator, 1 - POWER, special.fdtri(numerator, denominator, 1 - LEVEL)
        )
        effect = np.sqrt(needed * unexplained / denominator / least)
        detectable = testable & np.isfinite(least)
        return np.where(testable, p_values, np.nan), np.where(detectable, effect, np.nan)


def _explained(values: Floats, columns: Floats) -> tuple[Floats, Floats]:
    """Return the squares of values (… × N) that columns (… × N × K) explain, and their rank."""
    basis, weights, _ = np.linalg.svd(columns, full_matrices=False)
    independent = weights > 1e-9  # the columns are of the order of 1
    along = np.einsum("...nk,...n->...k", basis, values)
    return np.sum(along**2 * independent, axis=-1), np.sum(independent, axis=-1, dtype=float)


def _coded(index: Sequence[int], levels: int) -> Floats:
    """Return the design matrix of effects that sum to 0 over the levels."""
    coded: npt.NDArray[np.float64] = np.vstack([np.eye(levels - 1), -np.ones((1, levels - 1))])
    return coded[list(index)]


def percent(log: float) -> float:
    """Return a log-ratio as a change in %."""
    return 100 * math.expm1(max(-700.0, min(700.0, log)))
