"""What the journal says of a running suite: where it is, what was voided, how long it will take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from agent.journal import Entry, last_states
from agent.plan import Plan, Run

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
        if entry.state in ("suite-started", "finished", "void"):
            before = entry
        elif entry.state == "running":
            before = None
    return costs


def remaining_s(plan: Plan, entries: Sequence[Entry]) -> float | None:
    """Seconds that the rest will take, from the runs finished so far; None before the first.

    A run costs the mean of its workload's finished runs (of all, where it has none yet), and the
    mean of what came before each run: that holds the switches too, which fall on one run in a block
    and configuration.
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
    return sum(
        (fmean(by_workload[run.workload]) if run.workload in by_workload else overall) + overhead
        for run in unfinished(plan, entries)
    )


def unfinished(plan: Plan, entries: Sequence[Entry]) -> list[Run]:
    """Runs whose last state is not `finished`, in order."""
    states = last_states(list(entries))
    return [run for run in plan.runs if states.get(run.run_id) != "finished"]


def line(plan: Plan, entries: Sequence[Entry], watts: Mapping[str, float]) -> str:
    """One line for people: block, run, what it is, state, watts, voided runs, time left."""
    last = entries[-1]
    runs = {run.run_id: run for run in plan.runs}
    run = runs.get(last.run_id)
    if run is None:
        return f"{last.state}{': ' + last.detail if last.detail else ''}"
    blocks = plan.runs[-1].block + 1
    parts = [
        f"block {run.block + 1}/{blocks}",
        f"run {run.index + 1}/{len(plan.runs)}",
        f"{run.configuration} {run.workload}: {last.state}",
    ]
    if last.state == "void" and last.detail:
        parts[-1] += f" ({last.detail})"
    parts += [f"{name} {power_w:.2f} W" for name, power_w in watts.items()]
    voided = list(last_states(list(entries)).values()).count("void")
    if voided:
        parts.append(f"{voided} voided")
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
