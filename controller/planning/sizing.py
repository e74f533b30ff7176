"""How many blocks a suite gets, by the hours that it may take and what runs took before."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from contract.errors import ControllerError
from contract.places import command_line
from contract.plan import FitBasis, Plan, Run, scale_of
from controller.planning.past_durations import PastDurations, key_of, rests_s
from controller.session.progress_text import minutes

# The bound that all blocks but one in twenty stay below.
CONFIDENCE = 0.95
# A deviation that fewer blocks tell is itself too uncertain; a tenth stands in.
FEWEST_BLOCKS, RESERVE_UNSEEN = 3, 0.10
# Start, fetch and end where no whole suite has been seen; more than any has taken so far.
ENDS_UNSEEN_S = 300.0


@dataclass(frozen=True)
class Fit:
    """A number of blocks, what it rests on (the plan's `basis`), and the same for people."""

    blocks: int
    basis: FitBasis
    sentences: tuple[str, ...]


def fit(plan: Plan, known: PastDurations, hours: float) -> Fit:
    """Return the largest number of blocks that ends within `hours`, by a plan of any number.

    Every block but one in twenty should stay below the bound that it is assumed. Raises
    ControllerError where a workload never ran here, or not even one block fits.
    """
    if not 0 < hours < math.inf:
        raise ControllerError("invalid-hours", hours=hours)
    drift_check = plan.drift_check
    check = drift_check.workload if drift_check else ""
    checks = [run for run in plan.runs if run.workload == check]
    measured = [run for run in plan.runs if run.workload != check]
    costs = {run.run_id: _cost_s(plan, known, run) for run in plan.runs}
    first = [run for run in measured if run.block == 0]
    parts_s = sum(costs[run.run_id] for run in first) + sum(
        _switch_s(known, name) for name in {run.configuration for run in first}
    )
    check_s = max(
        (costs[run.run_id] + _switch_s(known, run.configuration) for run in checks), default=0.0
    )
    # One runs before the first block, one after the last, the others between.
    once_s = 2 * check_s + _extra_s(plan, known, measured, costs)
    parts_s += check_s / drift_check.every if drift_check else 0.0

    ratios = known.ratios()
    factor = fmean(ratios) if ratios else 1.0
    reserve, why = _reserve(ratios)
    block_s, bound_s = parts_s * factor, parts_s * (factor + reserve)
    ends_s = (fmean(known.ends_s) if known.ends_s else ENDS_UNSEEN_S) + once_s
    ends_bound_s = max(known.ends_s, default=ENDS_UNSEEN_S) + once_s * (1 + reserve)
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
        suites=tuple(known.suites),
        block_s=round(block_s, 1),
        block_bound_s=round(bound_s, 1),
        ends_s=round(ends_s, 1),
        ends_bound_s=round(ends_bound_s, 1),
        expected_s=round(blocks * block_s + ends_s, 1),
        reserve=why,
    )
    return Fit(blocks, basis, _sentences(blocks, hours, basis, known))


def _sentences(blocks: int, hours: float, basis: FitBasis, known: PastDurations) -> tuple[str, ...]:
    ends = "as seen before" if known.ends_s else "a guess, none was seen yet"
    return (
        f"{_count(blocks, 'block')} in {minutes(hours * 3600)}: a block takes "
        f"{minutes(basis.block_s)}, calculated with {minutes(basis.block_bound_s)} "
        f"({basis.reserve}).",
        f"Start, drift check and end take {minutes(basis.ends_s)} ({ends}). "
        f"By {_count(len(known.suites), 'suite')} of this host it should end after "
        f"{minutes(basis.expected_s)}.",
    )


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _reserve(ratios: Sequence[float]) -> tuple[float, str]:
    """Return what a block may take longer than the mean, as a share of its parts, and why.

    With three blocks or more, the one-sided 95 % prediction bound by Student's t for one more
    block: s·t·√(1 + 1/n). All blocks to come are taken to be that slow, since what makes one slow
    (heat, a busy disk) often stays for the night.
    """
    count = len(ratios)
    if count < FEWEST_BLOCKS:
        return (
            RESERVE_UNSEEN,
            f"{RESERVE_UNSEEN:.0%} in reserve, {_count(count, 'whole block')} seen",
        )
    from scipy.special import stdtrit  # takes a second: not at the start of every command

    bound = stdev(ratios) * float(stdtrit(count - 1, CONFIDENCE)) * math.sqrt(1 + 1 / count)
    return bound, f"{CONFIDENCE:.0%} bound over {count} blocks seen"


def _cost_s(plan: Plan, known: PastDurations, run: Run) -> float:
    """Return the seconds from `running` to `finished`.

    Of a new configuration, those of the slowest other; of what cannot run there, none.
    """
    name, parameters, stack = key_of(plan, run)
    same = {key: costs for key, costs in known.runs_s.items() if key[:2] == (name, parameters)}
    if not same and name in known.skipped:
        return 0.0
    if not same:
        block = command_line("run", suite=plan.suite, blocks=1, scale=scale_of(plan.scale))
        raise ControllerError("duration-unknown", workload=name, host=plan.host, block=block)
    means = {key[2]: fmean(costs) for key, costs in same.items()}
    return rests_s(plan) + means.get(stack, max(means.values()))


def _extra_s(
    plan: Plan, known: PastDurations, measured: Sequence[Run], costs: Mapping[str, float]
) -> float:
    """Return the seconds of the blocks after the full ones, which come once in any plan."""
    if plan.extra_blocks is None:
        return 0.0
    runs = [run for run in measured if run.block >= plan.extra_blocks.first]
    entered = {(run.block, run.configuration) for run in runs}
    switches_s = sum(_switch_s(known, configuration) for _, configuration in entered)
    return sum(costs[run.run_id] for run in runs) + switches_s


def _switch_s(known: PastDurations, configuration: str) -> float:
    if configuration in known.switches_s:
        return fmean(known.switches_s[configuration])
    return max((fmean(costs) for costs in known.switches_s.values()), default=0.0)
