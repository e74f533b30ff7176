"""The number of blocks that fits into given hours, by the durations of earlier runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from contract.errors import ControllerError
from contract.places import command_line
from contract.plan import FitBasis, Plan, Run, scale_of
from controller.planning.past_durations import PastDurations, key_of, rests_s
from controller.session.progress_text import minutes

# Share of blocks that stay below the bound.
CONFIDENCE = 0.95
# The deviation of fewer blocks is too uncertain; a tenth of the mean is reserved instead.
FEWEST_BLOCKS, RESERVE_UNSEEN = 3, 0.10
# Assumed seconds of start, fetch and end without an earlier suite; more than any has taken.
ENDS_UNSEEN_S = 300.0


@dataclass(frozen=True)
class Fit:
    """A number of blocks, the durations used for it (the plan's `basis`), and both in words."""

    blocks: int
    basis: FitBasis
    sentences: tuple[str, ...]


def fit(plan: Plan, durations: PastDurations, hours: float) -> Fit:
    """Return the largest number of blocks that ends within `hours`.

    `plan` may have any number of blocks. Each block is assumed to take as long as its 95 % bound.
    Raises ControllerError if a workload never ran on this host, or not even one block fits.
    """
    if not 0 < hours < math.inf:
        raise ControllerError("invalid-hours", hours=hours)
    drift_check = plan.drift_check
    check = drift_check.workload if drift_check else ""
    checks = [run for run in plan.runs if run.workload == check]
    measured = [run for run in plan.runs if run.workload != check]

    switches_s = {name: fmean(seconds) for name, seconds in durations.switches_s.items()}
    slowest_switch_s = max(switches_s.values(), default=0.0)  # assumed for a new configuration

    def duration_s(runs: Sequence[Run]) -> float:
        """Return the seconds of runs, with one switch to each configuration of a block."""
        entered = {(run.block, run.configuration) for run in runs}
        runs_s = sum(_run_s(plan, durations, run) for run in runs)
        return runs_s + sum(switches_s.get(name, slowest_switch_s) for _, name in entered)

    parts_s = duration_s([run for run in measured if run.block == 0])
    check_s = max((duration_s([run]) for run in checks), default=0.0)
    # One drift check runs before the first block, one after the last, the others between.
    once_s = 2 * check_s
    if plan.extra_blocks is not None:
        once_s += duration_s([run for run in measured if run.block >= plan.extra_blocks.first])
    parts_s += check_s / drift_check.every if drift_check else 0.0

    ratios = durations.ratios()
    factor = fmean(ratios) if ratios else 1.0
    reserve, reason = _reserve(ratios)
    block_s, bound_s = parts_s * factor, parts_s * (factor + reserve)
    ends_s = (fmean(durations.ends_s) if durations.ends_s else ENDS_UNSEEN_S) + once_s
    ends_bound_s = max(durations.ends_s, default=ENDS_UNSEEN_S) + once_s * (1 + reserve)
    blocks = math.floor((hours * 3600 - ends_bound_s) / bound_s)
    if blocks < 1:
        needed_s = ends_bound_s + bound_s
        raise ControllerError(
            "no-block-fits",
            hours=minutes(hours * 3600),
            bound_s=minutes(bound_s),
            needed_s=minutes(needed_s),
            needed_hours=math.ceil(needed_s / 36) / 100,
        )
    basis = FitBasis(
        suites=tuple(durations.suites),
        block_s=round(block_s, 1),
        block_bound_s=round(bound_s, 1),
        ends_s=round(ends_s, 1),
        ends_bound_s=round(ends_bound_s, 1),
        expected_s=round(blocks * block_s + ends_s, 1),
        reserve=reason,
    )
    ends = "as seen before" if durations.ends_s else "a guess, none was seen yet"
    sentences = (
        f"{_count(blocks, 'block')} in {minutes(hours * 3600)}: a block takes "
        f"{minutes(basis.block_s)}, calculated with {minutes(basis.block_bound_s)} "
        f"({basis.reserve}).",
        f"Start, drift check and end take {minutes(basis.ends_s)} ({ends}). "
        f"By {_count(len(durations.suites), 'suite')} of this host it should end after "
        f"{minutes(basis.expected_s)}.",
    )
    return Fit(blocks, basis, sentences)


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _reserve(ratios: Sequence[float]) -> tuple[float, str]:
    """Return the reserve for a block, as a share of the sum of its parts, and the reason.

    With three blocks or more it is the one-sided 95 % prediction bound of Student's t for one more
    block: s·t·√(1 + 1/n). It is applied to every future block, because a cause of slowness (heat, a
    busy disk) often lasts for the night.
    """
    count = len(ratios)
    if count < FEWEST_BLOCKS:
        return (
            RESERVE_UNSEEN,
            f"{RESERVE_UNSEEN:.0%} in reserve, {_count(count, 'whole block')} seen",
        )
    from scipy.special import stdtrit  # the import takes a second

    bound = stdev(ratios) * float(stdtrit(count - 1, CONFIDENCE)) * math.sqrt(1 + 1 / count)
    return bound, f"{CONFIDENCE:.0%} bound over {count} blocks seen"


def _run_s(plan: Plan, durations: PastDurations, run: Run) -> float:
    """Return the mean seconds of a run with its rests.

    A new configuration counts as the slowest known one; a workload that cannot run there as 0 s.
    Raises ControllerError without any duration of the workload.
    """
    name, parameters, stack = key_of(plan, run)
    load = name, parameters
    means = {key[2]: fmean(runs_s) for key, runs_s in durations.runs_s.items() if key[:2] == load}
    if not means and name in durations.skipped:
        return 0.0
    if not means:
        block = command_line("run", suite=plan.suite, blocks=1, scale=scale_of(plan.scale))
        raise ControllerError("duration-unknown", workload=name, host=plan.host, block=block)
    return rests_s(plan) + means.get(stack, max(means.values()))
