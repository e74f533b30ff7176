"""How long runs, switches and the rest of suites took on a host before."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from contract import names, schema
from contract import plan as plans
from contract.errors import AgentError
from contract.journal import PRECONDITIONED, SKIPPED, Entry, last_states, read
from contract.plan import Plan, Run
from contract.strict_json import read_object
from controller.session import session_times
from controller.session.progress import NS
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
class PastDurations:
    """How long things took on a host.

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
        """Return by whole block its wall time over the means of all that ran in it.

        They hold the scatter, and what waiting and void tries have cost.
        """
        return [
            block.wall_s
            / (
                sum(fmean(self.runs_s[key]) for key in block.runs)
                + sum(fmean(self.switches_s[name]) for name in block.switches)
                + block.rests_s
            )
            for block in self.blocks
        ]


@dataclass(frozen=True)
class _Head:
    """What decides whether a plan is read."""

    host: str
    origin: str
    created_wall: str = ""


def read_durations(folder: Path, host: str, origin: str) -> PastDurations:
    """Collect what the suites of this host in `folder` took; damaged ones are left out."""
    durations = PastDurations()
    suites = []
    for path in folder.glob("*/plan.json"):
        document = {} if names.stranger(path.parent) else read_object(path)
        with suppress(ValueError):
            head = schema.read(_Head, document)
            if (head.host, head.origin) == (host, origin):
                suites.append((head.created_wall, path.parent, document))
    for _, suite_dir, document in sorted(suites, key=lambda suite: suite[0])[-NEWEST_SUITES:]:
        try:
            plan = plans.parse(document)
            entries = read(suite_dir / "journal.jsonl")
            _learn(durations, plan, entries)
        except (AgentError, OSError, KeyError, TypeError, ValueError):
            continue
        if "finished" in last_states(entries).values():
            durations.suites.append(plan.suite_id)
            with suppress(OSError, KeyError, TypeError, ValueError):
                durations.ends_s.extend(_ends_s(suite_dir, entries))
    return durations


def _learn(durations: PastDurations, plan: Plan, entries: Sequence[Entry]) -> None:
    runs = {run.run_id: run for run in plan.runs}
    for run_id, state, seconds in _stretches(entries):
        if run_id not in runs:
            continue
        if state == "finished":
            key = key_of(plan, runs[run_id])
            durations.runs_s.setdefault(key, []).append(max(0.0, seconds - rests_s(plan)))
        else:
            stack = runs[run_id].configuration
            durations.switches_s.setdefault(stack, []).append(seconds)
    skipped = {entry.run_id for entry in entries if entry.cause == SKIPPED}
    durations.skipped.update(key_of(plan, runs[run_id])[0] for run_id in skipped & set(runs))
    left = [run for run in plan.runs if run.run_id not in skipped]
    durations.blocks.extend(_blocks(plan, left, [e for e in entries if e.run_id not in skipped]))


def _stretches(entries: Sequence[Entry]) -> Iterator[tuple[str, str, float]]:
    """Yield (run id, `finished`, seconds since `running`) and (run id, `switching`, its seconds).

    What was waited within them is left out.
    """
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


def _blocks(plan: Plan, runs: Collection[Run], entries: Sequence[Entry]) -> Iterator[Block]:
    """Yield whole blocks of one start of the agent; the drift check is left aside."""
    drift_check = plan.drift_check.workload if plan.drift_check else ""
    by_block: dict[int, dict[str, Run]] = {}
    for run in runs:
        if run.workload != drift_check:
            by_block.setdefault(run.block, {})[run.run_id] = run
    drift_checks = {run.run_id for run in runs if run.workload == drift_check}
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
            tuple(key_of(plan, wanted[run]) for run, what, _ in stretches if what == "finished"),
            tuple(wanted[run].configuration for run, what, _ in stretches if what == "switching"),
            rests_s(plan) * len(wanted),
        )


def _ends_s(suite_dir: Path, entries: Sequence[Entry]) -> Iterator[float]:
    """Yield what a suite took besides its runs.

    Only of one that went through in one session without preconditioning its disks.
    """
    known = session_times.sessions_of(session_times.lines(suite_dir / session_times.SESSIONS), ())
    of_runs = [entry for entry in entries if entry.run_id]
    complete = entries[-1].state == "suite-finished" and len({e.boot_id for e in entries}) == 1
    longer = any(entry.state == PRECONDITIONED for entry in entries)
    if len(known) != 1 or known[0].killed or not complete or longer:
        return
    yield max(0.0, known[0].seconds["wall_s"] - (of_runs[-1].t_mono_ns - of_runs[0].t_mono_ns) / NS)


def key_of(plan: Plan, run: Run) -> Key:
    """Return what a run's duration depends on: the workload, its sizes, the configuration.

    A parameter that an older plan does not name has its default.
    """
    entry = plan.entries[run.workload]
    workload, sizes = entry.workload_name, dict(entry.parameters)
    with suppress(WorkloadError):
        sizes = registry.complete(workload, sizes)
    text = json.dumps({**sizes, "pad_s": float(plan.pad_s)}, sort_keys=True)
    return workload, text, run.configuration


def rests_s(plan: Plan) -> float:
    """Return the rests before and after each run, in seconds."""
    return plan.settle_s + plan.tail_s
