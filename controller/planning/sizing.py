"""How many blocks a suite gets: by the hours there are and what runs took before, or by the
report of an earlier suite (`fde-next/1`, data/README.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from contract.errors import ControllerError
from contract.places import command_line
from contract.plan import scale_of
from controller.planning.past_durations import Seen, key_of, rests_s
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
    basis: dict[str, Any]
    sentences: tuple[str, ...]


def fit(plan: Mapping[str, Any], known: Seen, hours: float) -> Fit:
    """The largest number of blocks that ends within `hours`, by a plan of any number of them.

    Every block but one in twenty should stay below the bound that it is assumed. Raises
    ControllerError where a workload was never seen here, or not even one block fits.
    """
    if not 0 < hours < math.inf:
        raise ControllerError(f"HOURS is {hours:g}: say how long the suite may take, as --hours 9.")
    drift_checks = plan["drift_check"]["workload"] if plan["drift_check"] else ""
    first = [run for run in plan["runs"] if run["block"] == 0 and run["workload"] != drift_checks]
    costs = {run["run_id"]: _cost_s(plan, known, run) for run in plan["runs"]}
    stacks = {run["configuration"] for run in first}
    further_s = _further_s(plan, known, costs)
    runs_s = sum(costs[run["run_id"]] for run in first)
    parts_s = runs_s + sum(_switch_s(known, name) for name in stacks)
    check_s = max(
        (
            costs[run["run_id"]] + _switch_s(known, run["configuration"])
            for run in plan["runs"]
            if run["workload"] == drift_checks
        ),
        default=0.0,
    )
    # One stands before the first block, one after the last, the others between.
    drift_check_s = 2 * check_s
    parts_s += check_s / plan["drift_check"]["every"] if drift_checks else 0.0

    ratios = known.ratios()
    factor = fmean(ratios) if ratios else 1.0
    reserve, why = _reserve(ratios)
    block_s, bound_s = parts_s * factor, parts_s * (factor + reserve)
    ends_s = (fmean(known.ends_s) if known.ends_s else ENDS_UNSEEN_S) + drift_check_s + further_s
    ends_bound_s = max(known.ends_s, default=ENDS_UNSEEN_S) + (drift_check_s + further_s) * (
        1 + reserve
    )
    blocks = math.floor((hours * 3600 - ends_bound_s) / bound_s)
    if blocks < 1:
        needed_s = ends_bound_s + bound_s
        raise ControllerError(
            f"Not one block fits into {minutes(hours * 3600)}: one takes {minutes(bound_s)}, with "
            f"start, drift check and end {minutes(needed_s)}. Say "
            f"--hours {math.ceil(needed_s / 36) / 100} or more, or choose fewer CONFIGURATIONS."
        )
    expected_s = blocks * block_s + ends_s
    basis = {
        "suites": known.suites,
        "block_s": round(block_s, 1),
        "block_bound_s": round(bound_s, 1),
        "ends_s": round(ends_s, 1),
        "ends_bound_s": round(ends_bound_s, 1),
        "expected_s": round(expected_s, 1),
        "reserve": why,
    }
    return Fit(blocks, basis, _sentences(blocks, hours, basis, known))


def _sentences(blocks: int, hours: float, basis: Mapping[str, Any], known: Seen) -> tuple[str, ...]:
    ends = "as seen before" if known.ends_s else "a guess, none was seen yet"
    return (
        f"{_counted(blocks, 'block')} in {minutes(hours * 3600)}: a block takes "
        f"{minutes(basis['block_s'])}, calculated with {minutes(basis['block_bound_s'])} "
        f"({basis['reserve']}).",
        f"Start, drift check and end take {minutes(basis['ends_s'])} ({ends}). "
        f"By {_counted(len(known.suites), 'suite')} of this host it should end after "
        f"{minutes(basis['expected_s'])}.",
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _reserve(ratios: Sequence[float]) -> tuple[float, str]:
    """What a block may take longer than the mean, as a share of its parts, and why.

    With three blocks or more, the one-sided 95 % prediction bound by Student's t for one more
    block: s·t·√(1 + 1/n). All blocks to come are taken to be that slow, since what makes one slow
    (heat, a busy disk) often stays for the night.
    """
    count = len(ratios)
    if count < FEWEST_BLOCKS:
        return (
            RESERVE_UNSEEN,
            f"{RESERVE_UNSEEN:.0%} in reserve, {_counted(count, 'whole block')} seen",
        )
    from scipy.special import stdtrit  # takes a second: not at the start of every command

    bound = stdev(ratios) * float(stdtrit(count - 1, CONFIDENCE)) * math.sqrt(1 + 1 / count)
    return bound, f"{CONFIDENCE:.0%} bound over {count} blocks seen"


def _cost_s(plan: Mapping[str, Any], known: Seen, run: Mapping[str, Any]) -> float:
    """Seconds from `running` to `finished`; of a new configuration, those of the slowest other; of
    what cannot run there, none."""
    name, parameters, stack = key_of(plan, run)
    same = {key: costs for key, costs in known.runs_s.items() if key[:2] == (name, parameters)}
    if not same and name in known.skipped:
        return 0.0
    if not same:
        block = command_line("run", suite=plan["suite"], blocks=1, scale=scale_of(plan["scale"]))
        raise ControllerError(
            f"How long {name} takes at these sizes was never seen on {plan['host']}: run one block "
            f"first ({block})."
        )
    means = {key[2]: fmean(costs) for key, costs in same.items()}
    return rests_s(plan) + means.get(stack, max(means.values()))


def _further_s(plan: Mapping[str, Any], known: Seen, costs: Mapping[str, float]) -> float:
    """Seconds of the blocks after the full ones, which come once however many these are."""
    if not (blocks := plan.get("extra_blocks")):
        return 0.0
    drift_check = plan["drift_check"]["workload"] if plan["drift_check"] else ""
    runs = [
        r for r in plan["runs"] if r["block"] >= blocks["first"] and r["workload"] != drift_check
    ]
    entered = {(run["block"], run["configuration"]) for run in runs}
    switches_s = sum(_switch_s(known, configuration) for _, configuration in entered)
    return sum(costs[run["run_id"]] for run in runs) + switches_s


def _switch_s(known: Seen, configuration: str) -> float:
    if configuration in known.switches_s:
        return fmean(known.switches_s[configuration])
    return max((fmean(costs) for costs in known.switches_s.values()), default=0.0)
