"""How long runs, switches and the rest of suites took on a host before."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from contract import names, strict_json
from contract import plan as plans
from contract.attempts import NS, History
from contract.documents import Phase
from contract.errors import AgentError
from contract.journal import PRECONDITIONED, SKIPPED, Entry, read
from contract.plan import Plan, Run
from controller.session.session_times import read_sessions
from workloads import registry
from workloads.base import WorkloadError

# Older suites than these may come from another disk or firmware.
NEWEST_SUITES = 20
# Of each of them, for what runs write: that differs little from block to block.
BLOCKS_READ = 2
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


def read_durations(folder: Path, host: str, origin: str) -> PastDurations:
    """Collect what the suites of this host in `folder` took; damaged ones are left out."""
    durations = PastDurations()
    for suite_dir, plan in reversed(list(_read_suites(folder, host, origin))):
        try:
            entries = read(suite_dir / "journal.jsonl")
            _learn(durations, plan, entries)
        except (AgentError, OSError, KeyError, TypeError, ValueError):
            continue
        if any(attempt.finished and not attempt.void for attempt in History(entries).latest):
            durations.suites.append(plan.suite_id)
            with suppress(OSError, KeyError, TypeError, ValueError):
                durations.ends_s.extend(_ends_s(suite_dir, entries))
    return durations


def read_writes(folder: Path, plan: Plan, least: Mapping[str, int]) -> dict[str, int]:
    """Return by entry the most that a run wrote here before at these sizes, where known.

    It is never less than in `least`, which the workloads' files need.
    """
    written = dict(least)
    entries = {run.workload: key_of(plan, run)[:2] for run in plan.runs}
    for suite_dir, earlier in _read_suites(folder, plan.host, plan.origin):
        for run in (run for run in earlier.runs if run.block < BLOCKS_READ):
            what = key_of(earlier, run)[:2]
            alike = [name for name, wanted in entries.items() if wanted == what]
            document = strict_json.load(_Phases, suite_dir / "runs" / run.run_id / "run.json")
            if document is not None:
                count = sum(round(phase.disk_written_bytes or 0) for phase in document.phases)
                written.update((name, max(written.get(name, 0), count)) for name in alike)
    return written


def _read_suites(folder: Path, host: str, origin: str) -> Iterator[tuple[Path, Plan]]:
    """Yield folder and plan of the newest suites of this host, the newest first."""
    suites = []
    for path in folder.glob("*/plan.json"):
        head = None if names.stranger(path.parent) else strict_json.load(plans.PlanHead, path)
        if head and (head.host, head.origin) == (host, origin):
            suites.append((head.created_wall, path.parent))
    for _, suite_dir in sorted(suites, key=lambda suite: suite[0], reverse=True)[:NEWEST_SUITES]:
        with suppress(AgentError, OSError, KeyError, TypeError, ValueError):
            yield suite_dir, plans.load(suite_dir / "plan.json")


@dataclass(frozen=True)
class _Phases:
    """What a run.json has of its phases."""

    phases: tuple[Phase, ...]


def _learn(durations: PastDurations, plan: Plan, entries: Sequence[Entry]) -> None:
    runs = {run.run_id: run for run in plan.runs}
    for attempt in History(entries).attempts:
        if (run := runs.get(attempt.run_id)) is None:
            continue
        for seconds in attempt.switches_s:
            durations.switches_s.setdefault(run.configuration, []).append(seconds)
        if attempt.finished and attempt.worked_s is not None:
            seconds = max(0.0, attempt.worked_s - rests_s(plan))
            durations.runs_s.setdefault(key_of(plan, run), []).append(seconds)
    skipped = {entry.run_id for entry in entries if entry.cause == SKIPPED}
    durations.skipped.update(key_of(plan, runs[run_id])[0] for run_id in skipped & set(runs))
    left = [run for run in plan.runs if run.run_id not in skipped]
    durations.blocks.extend(_blocks(plan, left, [e for e in entries if e.run_id not in skipped]))


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
        history = History(mine)
        timed = [a for a in history.attempts if a.finished and a.worked_s is not None]
        finished = {a.run_id for a in history.latest if a.finished and not a.void}
        if apart or finished != wanted.keys():
            continue
        yield Block(
            (mine[-1].t_mono_ns - mine[0].t_mono_ns) / NS,
            tuple(key_of(plan, wanted[a.run_id]) for a in timed),
            tuple(wanted[a.run_id].configuration for a in history.attempts for _ in a.switches_s),
            rests_s(plan) * len(wanted),
        )


def _ends_s(suite_dir: Path, entries: Sequence[Entry]) -> Iterator[float]:
    """Yield what a suite took besides its runs.

    Only of one that went through in one session without preconditioning its disks.
    """
    known = read_sessions(suite_dir)
    of_runs = [entry for entry in entries if entry.run_id]
    complete = entries[-1].state == "suite-finished" and len({e.boot_id for e in entries}) == 1
    longer = any(entry.state == PRECONDITIONED for entry in entries)
    if len(known) != 1 or known[0].killed or not complete or longer:
        return
    yield max(0.0, known[0].wall_s - (of_runs[-1].t_mono_ns - of_runs[0].t_mono_ns) / NS)


def longest_s(durations: PastDurations, plan: Plan) -> dict[str, float]:
    """Return by entry the seconds of its longest run, with rests and the longest switch."""
    switch_s = max((s for costs in durations.switches_s.values() for s in costs), default=0.0)
    longest: dict[str, float] = {}
    for name, run in {run.workload: run for run in plan.runs}.items():
        what = key_of(plan, run)[:2]
        costs = [s for key, all_s in durations.runs_s.items() if key[:2] == what for s in all_s]
        if costs:
            longest[name] = max(costs) + switch_s + rests_s(plan)
    return longest


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
