"""How many blocks a suite gets: by the hours there are and what runs took before, or by the
report of an earlier suite (`fde-next/1`, data/README.md).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from analysis.suite import manifest
from contract import names
from contract.errors import AgentError, ControllerError
from contract.journal import PRECONDITIONED, SKIPPED, Entry, last_states, read
from contract.places import step
from contract.plan import scale_of
from contract.strict_json import read_object
from controller import timing
from controller.progress import NS, minutes
from controller.suite_folder import require_plain
from workloads import registry
from workloads.base import WorkloadError

# Older suites than these may come from another disk or firmware.
NEWEST_SUITES = 20

Key = tuple[str, str, str]


@dataclass(frozen=True)
class Block:
    """A whole block: its wall time, and what ran in it; `rests_s` are those of its plan."""

    wall_s: float
    runs: tuple[Key, ...]
    switches: tuple[str, ...]
    rests_s: float


@dataclass
class Seen:
    """What was seen on a host.

    `runs_s`: seconds from `running` to `finished` less the plan's own rests and what was waited, by
    (workload, parameters, configuration); `switches_s` by configuration; `ends_s`: what a whole
    suite took besides its runs; `skipped`: workloads that could not run there.
    """

    runs_s: dict[Key, list[float]] = field(default_factory=dict)
    switches_s: dict[str, list[float]] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    ends_s: list[float] = field(default_factory=list)
    suites: list[str] = field(default_factory=list)
    skipped: set[str] = field(default_factory=set)

    def ratios(self) -> list[float]:
        """Of every whole block, its wall time over the means of all that ran in it: that holds the
        scatter, and what waiting and void tries have cost."""
        return [
            block.wall_s
            / (
                sum(fmean(self.runs_s[key]) for key in block.runs)
                + sum(fmean(self.switches_s[name]) for name in block.switches)
                + block.rests_s
            )
            for block in self.blocks
        ]


def seen(folder: Path, host: str, origin: str) -> Seen:
    """All that the suites of this host in `folder` tell; those that cannot be read tell nothing."""
    found = Seen()
    suites = []
    for path in folder.glob("*/plan.json"):
        plan = {} if names.stranger(path.parent) else read_object(path)
        if plan.get("host") == host and plan.get("origin") == origin:
            suites.append((str(plan.get("created_wall", "")), path.parent, plan))
    for _, suite_dir, plan in sorted(suites, key=lambda suite: suite[0])[-NEWEST_SUITES:]:
        try:
            entries = read(suite_dir / "journal.jsonl")
            _learn(found, plan, entries)
        except (AgentError, OSError, KeyError, TypeError, ValueError):
            continue
        if "finished" in last_states(entries).values():
            found.suites.append(str(plan["suite_id"]))
            with suppress(OSError, KeyError, TypeError, ValueError):
                found.ends_s.extend(_ends_s(suite_dir, entries))
    return found


def _learn(found: Seen, plan: Mapping[str, Any], entries: Sequence[Entry]) -> None:
    runs = {run["run_id"]: run for run in plan["runs"]}
    for run_id, state, seconds in _stretches(entries):
        if run_id not in runs:
            continue
        if state == "finished":
            key = key_of(plan, runs[run_id])
            found.runs_s.setdefault(key, []).append(max(0.0, seconds - rests_s(plan)))
        else:
            stack = runs[run_id]["configuration"]
            found.switches_s.setdefault(stack, []).append(seconds)
    skipped = {entry.run_id for entry in entries if entry.cause == SKIPPED}
    found.skipped.update(key_of(plan, runs[run_id])[0] for run_id in skipped & set(runs))
    runs = {run_id: run for run_id, run in runs.items() if run_id not in skipped}
    entries = [entry for entry in entries if entry.run_id not in skipped]
    found.blocks.extend(_blocks(plan, runs, entries))


def _stretches(entries: Sequence[Entry]) -> Iterator[tuple[str, str, float]]:
    """(run id, `finished`, seconds since `running`) and (run id, `switching`, its seconds), what
    was waited within them left out."""
    begun: dict[str, tuple[Entry, float]] = {}
    waited_s = 0.0
    for before, entry in pairwise(entries):
        same = before.boot_id == entry.boot_id
        seconds = (entry.t_mono_ns - before.t_mono_ns) / NS
        waited_s += seconds if before.state == "waiting" and same else 0.0
        if before.state == "switching" and same and entry.run_id == before.run_id:
            yield entry.run_id, "switching", seconds
        if entry.state == "running" and before.state != "waiting":
            begun[entry.run_id] = entry, waited_s
        elif entry.state == "finished" and entry.run_id in begun:
            start, waited_before_s = begun.pop(entry.run_id)
            if start.boot_id == entry.boot_id:
                whole_s = (entry.t_mono_ns - start.t_mono_ns) / NS
                yield entry.run_id, "finished", whole_s - (waited_s - waited_before_s)


def _blocks(
    plan: Mapping[str, Any], runs: Mapping[str, Mapping[str, Any]], entries: Sequence[Entry]
) -> Iterator[Block]:
    """Whole blocks that one start of the agent has gone through; the drift check left aside."""
    drift_check = plan["drift_check"]["workload"] if plan.get("drift_check") else ""
    by_block: dict[int, set[str]] = {}
    for run_id, run in runs.items():
        if run["workload"] != drift_check:
            by_block.setdefault(run["block"], set()).add(run_id)
    drift_checks = {run_id for run_id, run in runs.items() if run["workload"] == drift_check}
    inner = [entry for entry in entries if entry.run_id not in drift_checks]
    for wanted in by_block.values():
        places = [place for place, entry in enumerate(inner) if entry.run_id in wanted]
        mine = inner[places[0] : places[-1] + 1] if places else []
        apart = any(
            entry.boot_id != mine[0].boot_id
            or (entry.run_id not in wanted and entry.state != "waiting")
            for entry in mine
        )
        if apart or any(last_states(mine).get(run_id) != "finished" for run_id in wanted):
            continue
        stretches = list(_stretches(mine))
        yield Block(
            (mine[-1].t_mono_ns - mine[0].t_mono_ns) / NS,
            tuple(key_of(plan, runs[run]) for run, what, _ in stretches if what == "finished"),
            tuple(runs[run]["configuration"] for run, what, _ in stretches if what == "switching"),
            rests_s(plan) * len(wanted),
        )


def _ends_s(suite_dir: Path, entries: Sequence[Entry]) -> Iterator[float]:
    """What a suite that went through in one session took besides its runs, where its disks were
    not preconditioned."""
    known = timing.sessions_of(timing.lines(suite_dir / timing.SESSIONS), ())
    of_runs = [entry for entry in entries if entry.run_id]
    whole = entries[-1].state == "suite-finished" and len({e.boot_id for e in entries}) == 1
    longer = any(entry.state == PRECONDITIONED for entry in entries)
    if len(known) != 1 or known[0].killed or not whole or longer:
        return
    yield max(0.0, known[0].seconds["wall_s"] - (of_runs[-1].t_mono_ns - of_runs[0].t_mono_ns) / NS)


def key_of(plan: Mapping[str, Any], run: Mapping[str, Any]) -> Key:
    """What its duration goes by: the workload, whatever its entry is called, its sizes and where.

    A parameter that the plan does not name has its default. Raises KeyError for a run of a workload
    that the plan does not have.
    """
    load = {load["name"]: load for load in plan["workloads"]}[run["workload"]]
    workload, sizes = load.get("workload", load["name"]), dict(load["parameters"])
    with suppress(WorkloadError):
        sizes = registry.complete(workload, sizes)
    text = json.dumps({**sizes, "pad_s": plan.get("pad_s", 0)}, sort_keys=True)
    return workload, text, run["configuration"]


def rests_s(plan: Mapping[str, Any]) -> float:
    return float(plan["settle_s"]) + float(plan["tail_s"])


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
        raise ControllerError(f"HOURS is {hours:g}: say how long the suite may take, as HOURS=9.")
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
            f"HOURS={math.ceil(needed_s / 36) / 100} or more, or choose fewer CONFIGURATIONS."
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
        raise ControllerError(
            f"How long {name} takes at these sizes was never seen on {plan['host']}: run one block "
            f"first ({step('run', suite=plan['suite'], blocks=1, scale=scale_of(plan))})."
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


PILOT_FORMAT = "fde-next/1"
# The deviation that fewer blocks tell is itself too uncertain to plan by.
PILOT_BLOCKS = 10


@dataclass(frozen=True)
class Pilot:
    """The earlier suite, and the blocks that give its plan's precision."""

    suite_id: str
    blocks: int


def read_pilot(folder: Path) -> Pilot:
    """What the suite in `folder` says of the next; ControllerError where it says nothing."""
    require_plain(folder)
    path = folder / "next.json"
    if not path.exists():
        raise ControllerError(f"{folder} has no next.json: {step('report', folder)} writes it.")
    found = read_object(path)
    if found.get("format") != PILOT_FORMAT or not manifest.current(path):
        raise ControllerError(
            f"{path} was not made here by this version of a sealed suite: {step('report', folder)} "
            "makes it again."
        )
    blocks, seen = found.get("blocks"), found.get("from_blocks")
    if not isinstance(blocks, int) or not isinstance(seen, int) or seen < PILOT_BLOCKS:
        raise ControllerError(
            f"{folder} has {seen or 'too few'} blocks to plan by: run {PILOT_BLOCKS} of them "
            f"first (BLOCKS={PILOT_BLOCKS}), or say how many you want with BLOCKS=n."
        )
    return Pilot(str(found.get("suite_id", folder.name)), blocks)
