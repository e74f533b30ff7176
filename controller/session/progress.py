"""What the journal says of a running suite: where it is, what was voided, how long it will take;
the document of status.json of it, and sentences for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean
from typing import Any

from agent.attempts import Accounts
from contract.journal import (
    BEGUN,
    INTERRUPTIONS,
    PRECONDITIONED,
    REPEAT,
    SKIPPED,
    TERMINAL,
    Entry,
)
from contract.plan import Plan, Run
from controller.session.progress_text import _VOIDED, utc

NS = 1_000_000_000
FORMAT = "fde-status/1"


def run_costs_s(entries: Sequence[Entry]) -> dict[str, float]:
    """Seconds from `running` to `finished` of every finished run; the last attempt counts."""
    started: dict[str, Entry] = {}
    costs: dict[str, float] = {}
    for entry in entries:
        if entry.state == "running":
            started[entry.run_id] = entry
        elif entry.state == "finished" and entry.run_id in started:
            begin = started.pop(entry.run_id)
            if begin.boot_id == entry.boot_id:
                costs[entry.run_id] = (entry.t_mono_ns - begin.t_mono_ns) / NS
    return costs


def entry_costs_s(entries: Sequence[Entry]) -> list[float]:
    """Seconds spent before each `running`, since the line that ended the run before: switching the
    configuration, proving it, settling."""
    costs: list[float] = []
    before: Entry | None = None
    for entry in entries:
        if entry.state == "running" and before and before.boot_id == entry.boot_id:
            costs.append((entry.t_mono_ns - before.t_mono_ns) / NS)
        if entry.state in ("suite-started", PRECONDITIONED, "finished", "void"):
            before = entry
        elif entry.state == "running":
            before = None
    return costs


def remaining_s(plan: Plan, entries: Sequence[Entry]) -> float | None:
    """Seconds that the rest will take, from the runs finished so far; None before the first.

    A run costs the mean of its workload's finished runs (of all, where it has none yet), the mean
    of what came before each run (that holds the switches too, which fall on one run in a block and
    configuration), and a share of what tries that were void have cost so far.
    """
    done = run_costs_s(entries)
    if not done:
        return None
    by_workload: dict[str, list[float]] = {}
    for run in plan.runs:
        if run.run_id in done:
            by_workload.setdefault(run.workload, []).append(done[run.run_id])
    overall = fmean(done.values())
    before = entry_costs_s(entries)
    overhead = fmean(before) if before else 0.0
    overhead += sum(void_costs_s(entries)) / len(done)
    return sum(
        (fmean(by_workload[run.workload]) if run.workload in by_workload else overall) + overhead
        for run in unfinished(plan, entries)
    )


def void_costs_s(entries: Sequence[Entry]) -> list[float]:
    """Seconds from `running` to its end of every try that is void, but not by a power cut."""
    costs: list[float] = []
    tries: dict[str, tuple[Entry, Entry | None]] = {}  # how the last one began and, finished, ended
    for entry in entries:
        begin, end = tries.get(entry.run_id, (None, None))
        if entry.state == "running":
            tries[entry.run_id] = entry, None
        elif entry.state == "finished" and begin:
            tries[entry.run_id] = begin, entry
        elif entry.state == "void" and entry.cause not in INTERRUPTIONS and begin:
            end = end or entry
            if begin.boot_id == end.boot_id:
                costs.append((end.t_mono_ns - begin.t_mono_ns) / NS)
            del tries[entry.run_id]
    return costs


def complete_blocks(plan: Plan, entries: Sequence[Entry]) -> int:
    """How many blocks, from the first on, have no run that will still be tried."""
    left = unfinished(plan, entries)
    if left:
        return min(run.block for run in left)
    return plan.runs[-1].block + 1 if plan.runs else 0


def unfinished(plan: Plan, entries: Sequence[Entry]) -> list[Run]:
    """Runs that the agent will still try, in order: not those that have used up their tries."""
    accounts = Accounts(entries)
    boot_id = entries[-1].boot_id if entries else ""
    return [run for run in plan.runs if accounts.of(run.run_id).due(plan.attempts, boot_id)]


def counts(entries: Sequence[Entry]) -> dict[str, int]:
    """How many runs are `finished`, `void` and `skipped` (their workload cannot run there) now, and
    how many tries were `repeated`."""
    last = {entry.run_id: entry for entry in entries if entry.run_id}.values()
    states = [entry.state for entry in last]
    void = states.count("void")
    skipped = sum(e.cause == SKIPPED for e in last)
    tries = sum(entry.state == "void" for entry in entries)
    return {
        "finished": states.count("finished"),
        "void": void - skipped,
        "skipped": skipped,
        "repeated": tries - void,
    }


_VOIDED |= {REPEAT: "is run again", SKIPPED: "is skipped"}


@dataclass(frozen=True)
class Event:
    """Something worth telling, with the wall time at which it was heard here."""

    wall: str
    text: str


def document(
    plan: Plan,
    entries: Sequence[Entry],
    *,
    watts: Mapping[str, float],
    gaps: Mapping[str, int],
    events: Sequence[Event],
    since_s: float,
    now: datetime,
    holder: str = "",
    answer: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The document of status.json; `since_s` is how long the last line has stood."""
    last = entries[-1] if entries else None
    run = next((run for run in plan.runs if last and run.run_id == last.run_id), None)
    left_s = _left_s(plan, entries, since_s)
    return {
        "format": FORMAT,
        "suite_id": plan.suite_id,
        "suite": plan.suite,
        "host": plan.host,
        "state": last.state if last else "starting",
        "since_s": round(since_s, 1),
        "block": run.block + 1 if run else None,
        "blocks": plan.runs[-1].block + 1 if plan.runs else 0,
        "run_index": run.index + 1 if run else None,
        "runs": len(plan.runs),
        "run_id": run.run_id if run else "",
        "configuration": run.configuration if run else "",
        "workload": run.workload if run else "",
        **counts(entries),
        "waiting": last.detail if last and last.state == "waiting" else None,
        "waiting_for": last.cause if last and last.state == "waiting" else None,
        "left_s": None if left_s is None else round(left_s),
        "ends_wall": None if left_s is None else utc(now + timedelta(seconds=left_s)),
        "watts": dict(watts),
        "gaps": dict(gaps),
        "answer": answer,
        "events": [{"wall": event.wall, "text": event.text} for event in events],
        "updated_wall": utc(now),
        "holder": holder,
    }


def _left_s(plan: Plan, entries: Sequence[Entry], since_s: float) -> float | None:
    """Time left, less what the present state has taken, but for waiting: that is no"""
    if not entries or entries[-1].state in TERMINAL:
        return 0.0 if entries else None
    left_s = remaining_s(plan, entries)
    if left_s is None:
        return None
    costs_s = run_costs_s(entries).values()
    worked_s = min(since_s, max(costs_s)) if entries[-1].state in BEGUN else 0.0
    return max(0.0, left_s - worked_s)
