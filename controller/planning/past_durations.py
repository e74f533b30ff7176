"""How long runs, switches and the rest of suites took before on a host."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from contract import names
from contract.attempts import NS, History
from contract.errors import AgentError
from contract.journal import PRECONDITIONED, SKIPPED, Entry, read
from contract.strict_json import read_object
from controller.session.session_times import read_sessions
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
    durations = Seen()
    suites = []
    for path in folder.glob("*/plan.json"):
        plan = {} if names.stranger(path.parent) else read_object(path)
        if plan.get("host") == host and plan.get("origin") == origin:
            suites.append((str(plan.get("created_wall", "")), path.parent, plan))
    for _, suite_dir, plan in sorted(suites, key=lambda suite: suite[0])[-NEWEST_SUITES:]:
        try:
            entries = read(suite_dir / "journal.jsonl")
            _learn(durations, plan, entries)
        except (AgentError, OSError, KeyError, TypeError, ValueError):
            continue
        if any(attempt.finished and not attempt.void for attempt in History(entries).latest):
            durations.suites.append(str(plan["suite_id"]))
            with suppress(OSError, KeyError, TypeError, ValueError):
                durations.ends_s.extend(_ends_s(suite_dir, entries))
    return durations


def _learn(durations: Seen, plan: Mapping[str, Any], entries: Sequence[Entry]) -> None:
    runs = {run["run_id"]: run for run in plan["runs"]}
    for attempt in History(entries).attempts:
        if (run := runs.get(attempt.run_id)) is None:
            continue
        for seconds in attempt.switches_s:
            durations.switches_s.setdefault(run["configuration"], []).append(seconds)
        if attempt.finished and attempt.worked_s is not None:
            seconds = max(0.0, attempt.worked_s - rests_s(plan))
            durations.runs_s.setdefault(key_of(plan, run), []).append(seconds)
    skipped = {entry.run_id for entry in entries if entry.cause == SKIPPED}
    durations.skipped.update(key_of(plan, runs[run_id])[0] for run_id in skipped & set(runs))
    runs = {run_id: run for run_id, run in runs.items() if run_id not in skipped}
    entries = [entry for entry in entries if entry.run_id not in skipped]
    durations.blocks.extend(_blocks(plan, runs, entries))


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
        history = History(mine)
        timed = [a for a in history.attempts if a.finished and a.worked_s is not None]
        finished = {a.run_id for a in history.latest if a.finished and not a.void}
        if apart or finished != wanted:
            continue
        yield Block(
            (mine[-1].t_mono_ns - mine[0].t_mono_ns) / NS,
            tuple(key_of(plan, runs[a.run_id]) for a in timed),
            tuple(runs[a.run_id]["configuration"] for a in history.attempts for _ in a.switches_s),
            rests_s(plan) * len(wanted),
        )


def _ends_s(suite_dir: Path, entries: Sequence[Entry]) -> Iterator[float]:
    """What a suite that went through in one session took besides its runs, where its disks were
    not preconditioned."""
    known = read_sessions(suite_dir)
    of_runs = [entry for entry in entries if entry.run_id]
    complete = entries[-1].state == "suite-finished" and len({e.boot_id for e in entries}) == 1
    longer = any(entry.state == PRECONDITIONED for entry in entries)
    if len(known) != 1 or known[0].killed or not complete or longer:
        return
    yield max(0.0, known[0].wall_s - (of_runs[-1].t_mono_ns - of_runs[0].t_mono_ns) / NS)


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
