"""What the journal says of a running suite: where it is, what was voided, how long it will take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from agent.tries import Accounts
from contract.journal import (
    INTERRUPTIONS,
    PRECONDITIONED,
    PRECONDITIONING,
    REPEAT,
    SKIPPED,
    TERMINAL,
    Entry,
)
from contract.plan import Plan, Run

NS = 1_000_000_000


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
    """Seconds from `running` to `void` of every try that failed by itself, not by a power cut."""
    costs: list[float] = []
    started: dict[str, Entry] = {}
    for entry in entries:
        if entry.state == "running":
            started[entry.run_id] = entry
        elif entry.state == "void" and entry.cause not in INTERRUPTIONS:
            begin = started.pop(entry.run_id, None)
            if begin and begin.boot_id == entry.boot_id:
                costs.append((entry.t_mono_ns - begin.t_mono_ns) / NS)
    return costs


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


def counted(found: Mapping[str, Any]) -> str:
    """`1 voided, 0 repeated` of these counts, and what was skipped, if anything was."""
    told = f"{found['void']} voided, {found['repeated']} repeated"
    return told + (f", {found['skipped']} skipped" if found.get("skipped") else "")


def event(plan: Plan, entry: Entry) -> str | None:
    """What is worth telling of a line of the journal, as a sentence; None of ordinary ones."""
    detail = entry.detail
    if entry.state == "suite-started":
        return "the agent starts" + (f": {detail}" if detail else "")
    if entry.state == "waiting":
        return f"waiting: {detail}"
    if entry.state == "void":
        return f"{name_of(plan, entry.run_id)} {_voided(entry)}"
    if entry.state in (*TERMINAL, PRECONDITIONING, PRECONDITIONED):
        told = f"{entry.facts.get('disk', '')} {detail}".strip()
        return entry.state.replace("-", " ") + (f": {told}" if told else "")
    return None


_VOIDED = dict.fromkeys(INTERRUPTIONS, "was interrupted")
_VOIDED |= {REPEAT: "is run again", SKIPPED: "is skipped"}


def _voided(entry: Entry) -> str:
    words = _VOIDED.get(entry.cause, "is void")
    return words + (f": {entry.detail}" if entry.detail else "")


def name_of(plan: Plan, run_id: str) -> str:
    """`run 7 (opal sql)`; the id itself where the plan does not have it."""
    for run in plan.runs:
        if run.run_id == run_id:
            return f"run {run.index + 1} ({run.configuration} {run.workload})"
    return run_id


def line(plan: Plan, entries: Sequence[Entry], watts: Mapping[str, float]) -> str:
    """One line for people: block, run, what it is, state, watts, voided runs, time left."""
    last = entries[-1]
    runs = {run.run_id: run for run in plan.runs}
    run = runs.get(last.run_id)
    if run is None or last.state == "waiting":
        return event(plan, last) or last.state
    blocks = plan.runs[-1].block + 1
    state = f" {_voided(last)}" if last.state == "void" else f": {last.state}"
    parts = [
        f"block {run.block + 1}/{blocks}",
        f"run {run.index + 1}/{len(plan.runs)}",
        f"{run.configuration} {run.workload}{state}",
    ]
    parts += [f"{name} {power_w:.2f} W" for name, power_w in watts.items()]
    found = counts(entries)
    parts += [f"{found['void']} voided"] if found["void"] else []
    parts += [f"{found[key]} {key}" for key in ("skipped", "repeated") if found[key]]
    left = remaining_s(plan, entries)
    if left is not None:
        parts.append(f"{minutes(left)} left")
    return ", ".join(parts)


def minutes(seconds: float) -> str:
    """`1 h 02 min`, `3 min 20 s` or `45 s`."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"
