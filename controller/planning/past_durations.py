"""Durations of runs, switches, blocks and suites on a host, read from earlier suites."""

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

# Suites older than the newest may come from another disk or firmware.
NEWEST_SUITES = 20
# Blocks of each suite that are read for written bytes, which differ little between blocks.
BLOCKS_READ = 2
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Block:
    """A complete block: its wall time, runs and switches; `rests_s` is the sum of its rests."""

    wall_s: float
    runs: tuple[Key, ...]
    switches: tuple[str, ...]
    rests_s: float


@dataclass
class PastDurations:
    """Durations of earlier suites on a host, in seconds.

    `runs_s` are times from `running` to `finished` without rests and waiting, by (workload,
    parameters, configuration); `switches_s` are by configuration; `ends_s` is the time of a whole
    suite before and after its runs; `skipped` are workloads that could not run on the host.
    """

    runs_s: dict[Key, list[float]] = field(default_factory=dict)
    switches_s: dict[str, list[float]] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    ends_s: list[float] = field(default_factory=list)
    suites: list[str] = field(default_factory=list)
    skipped: set[str] = field(default_factory=set)

    def ratios(self) -> list[float]:
        """Return the wall time of each complete block, relative to the sum of its parts' means.

        The ratios include scatter, waiting and void attempts.
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
    """Collect the durations of this host's suites in `folder`; skip damaged suites."""
    durations = PastDurations()
    for suite_dir, plan in reversed(list(_read_suites(folder, host, origin))):
        try:
            entries = read(suite_dir / "journal.jsonl")
            _add_suite(durations, plan, entries)
        except (AgentError, OSError, KeyError, TypeError, ValueError):
            continue
        if any(attempt.finished and not attempt.void for attempt in History(entries).latest):
            durations.suites.append(plan.suite_id)
            with suppress(OSError, KeyError, TypeError, ValueError):
                if (seconds := _ends_s(suite_dir, entries)) is not None:
                    durations.ends_s.append(seconds)
    return durations


def read_writes(folder: Path, plan: Plan, least: Mapping[str, int]) -> dict[str, int]:
    """Return by entry the most bytes that an earlier run of the same size wrote on this host.

    `least` are the bytes of the workloads' files, which are the minimum. Entries that neither has
    are missing.
    """
    written = dict(least)
    entries = {run.workload: key_of(plan, run)[:2] for run in plan.runs}
    for suite_dir, earlier in _read_suites(folder, plan.host, plan.origin):
        for run in (run for run in earlier.runs if run.block < BLOCKS_READ):
            load = key_of(earlier, run)[:2]
            same = [name for name, planned in entries.items() if planned == load]
            document = strict_json.load(_Phases, suite_dir / "runs" / run.run_id / "run.json")
            if document is not None:
                count = sum(round(phase.disk_written_bytes or 0) for phase in document.phases)
                written.update((name, max(written.get(name, 0), count)) for name in same)
    return written


def _read_suites(folder: Path, host: str, origin: str) -> Iterator[tuple[Path, Plan]]:
    """Yield the folders and plans of this host's newest suites, starting with the newest."""
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
    """The phases of a run.json."""

    phases: tuple[Phase, ...]


def _add_suite(durations: PastDurations, plan: Plan, entries: Sequence[Entry]) -> None:
    """Add the runs, switches, blocks and skipped workloads of a suite."""
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
    planned = [run for run in plan.runs if run.run_id not in skipped]
    durations.blocks.extend(_blocks(plan, planned, [e for e in entries if e.run_id not in skipped]))


def _blocks(plan: Plan, runs: Collection[Run], entries: Sequence[Entry]) -> Iterator[Block]:
    """Yield the complete blocks that ran without a reboot, without their drift checks."""
    drift_check = plan.drift_check.workload if plan.drift_check else ""
    by_block: dict[int, dict[str, Run]] = {}
    for run in runs:
        if run.workload != drift_check:
            by_block.setdefault(run.block, {})[run.run_id] = run
    drift_checks = {run.run_id for run in runs if run.workload == drift_check}
    inner = [entry for entry in entries if entry.run_id not in drift_checks]
    for block_runs in by_block.values():
        places = [place for place, entry in enumerate(inner) if entry.run_id in block_runs]
        block_entries = inner[places[0] : places[-1] + 1] if places else []
        interrupted = any(
            entry.boot_id != block_entries[0].boot_id
            or (entry.run_id not in block_runs and entry.state != "waiting")
            for entry in block_entries
        )
        history = History(block_entries)
        timed = [a for a in history.attempts if a.finished and a.worked_s is not None]
        finished = {a.run_id for a in history.latest if a.finished and not a.void}
        if interrupted or finished != block_runs.keys():
            continue
        switched = [a.run_id for a in history.attempts for _ in a.switches_s]
        yield Block(
            (block_entries[-1].t_mono_ns - block_entries[0].t_mono_ns) / NS,
            tuple(key_of(plan, block_runs[a.run_id]) for a in timed),
            tuple(block_runs[run_id].configuration for run_id in switched),
            rests_s(plan) * len(block_runs),
        )


def _ends_s(suite_dir: Path, entries: Sequence[Entry]) -> float | None:
    """Return the seconds of a suite before and after its runs.

    None if it took several sessions or boots, preconditioned disks, or did not finish.
    """
    sessions = read_sessions(suite_dir)
    run_entries = [entry for entry in entries if entry.run_id]
    complete = entries[-1].state == "suite-finished" and len({e.boot_id for e in entries}) == 1
    preconditioned = any(entry.state == PRECONDITIONED for entry in entries)
    if len(sessions) != 1 or sessions[0].killed or not complete or preconditioned:
        return None
    runs_ns = run_entries[-1].t_mono_ns - run_entries[0].t_mono_ns
    return max(0.0, sessions[0].wall_s - runs_ns / NS)


def longest_s(durations: PastDurations, plan: Plan) -> dict[str, float]:
    """Return by entry the seconds of its longest run, including rests and the longest switch."""
    switch_s = max((s for costs in durations.switches_s.values() for s in costs), default=0.0)
    longest: dict[str, float] = {}
    for name, run in {run.workload: run for run in plan.runs}.items():
        load = key_of(plan, run)[:2]
        runs_s = [s for key, all_s in durations.runs_s.items() if key[:2] == load for s in all_s]
        if runs_s:
            longest[name] = max(runs_s) + switch_s + rests_s(plan)
    return longest


def key_of(plan: Plan, run: Run) -> Key:
    """Return what determines a run's duration: workload, parameters, configuration.

    Parameters that an older plan lacks have their defaults.
    """
    entry = plan.entries[run.workload]
    workload, sizes = entry.workload_name, dict(entry.parameters)
    with suppress(WorkloadError):
        sizes = registry.complete(workload, sizes)
    text = json.dumps({**sizes, "pad_s": float(plan.pad_s)}, sort_keys=True)
    return workload, text, run.configuration


def rests_s(plan: Plan) -> float:
    """Return the sum of the rests before and after a run, in seconds."""
    return plan.settle_s + plan.tail_s
