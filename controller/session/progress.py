"""Compute a running suite's progress from its journal: position, void runs, remaining time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from statistics import fmean

from contract.attempts import History
from contract.journal import BEGUN, INTERRUPTIONS, SKIPPED, TERMINAL, Entry
from contract.plan import Plan, Run
from contract.status import Event, RunningAnswer, SuiteStatus
from controller.session.progress_text import utc


def run_costs_s(history: History) -> dict[str, float]:
    """Return the seconds that each finished run worked, by run; the last attempt counts."""
    return {
        attempt.run_id: attempt.worked_s
        for attempt in history.attempts
        if attempt.finished and attempt.worked_s is not None
    }


def void_costs_s(history: History) -> list[float]:
    """Return the seconds that each void attempt worked, except those that a power cut ended."""
    return [
        attempt.worked_s
        for attempt in history.attempts
        if attempt.void and attempt.void.cause not in INTERRUPTIONS and attempt.worked_s is not None
    ]


def remaining_s(plan: Plan, history: History) -> float | None:
    """Predict the seconds of the remaining runs from those finished; None before the first.

    A run costs the mean of its workload's finished runs (of all runs, if there are none yet), the
    mean time before a run (which contains the switches: one per block and configuration), and a
    share of what void attempts have cost so far.
    """
    costs_s = run_costs_s(history)
    if not costs_s:
        return None
    by_workload: dict[str, list[float]] = {}
    for run in plan.runs:
        if run.run_id in costs_s:
            by_workload.setdefault(run.workload, []).append(costs_s[run.run_id])
    overall = fmean(costs_s.values())
    leads = [lead for attempt in history.attempts if (lead := attempt.lead_s) is not None]
    overhead = (fmean(leads) if leads else 0.0) + sum(void_costs_s(history)) / len(costs_s)
    return sum(
        (fmean(by_workload[run.workload]) if run.workload in by_workload else overall) + overhead
        for run in unfinished(plan, history)
    )


def complete_blocks(plan: Plan, history: History) -> int:
    """Count the blocks, from the first on, without a run that will still be tried."""
    blocks = plan.runs[-1].block + 1 if plan.runs else 0
    return min((run.block for run in unfinished(plan, history)), default=blocks)


def unfinished(plan: Plan, history: History) -> list[Run]:
    """Return the runs that the agent will still try, in order."""
    boot_id = history.last.boot_id if history.last else ""
    return [run for run in plan.runs if history.account(run.run_id).due(plan.attempts, boot_id)]


def suite_status(
    plan: Plan,
    entries: Sequence[Entry],
    *,
    watts: Mapping[str, float],
    gaps: Mapping[str, int],
    events: Sequence[Event],
    since_s: float,
    moment: datetime,
    holder: str = "",
    answer: RunningAnswer | None = None,
) -> SuiteStatus:
    """Build the document status.json; `since_s` is the age of the journal's last line."""
    history = History(entries)
    last = history.last
    run = next((run for run in plan.runs if last and run.run_id == last.run_id), None)
    left_s = _left_s(plan, history, since_s)
    latest = history.latest
    void = sum(attempt.void is not None for attempt in latest)
    skipped = sum(a.void is not None and a.void.cause == SKIPPED for a in latest)
    return SuiteStatus(
        format="fde-status/1",
        suite_id=plan.suite_id,
        suite=plan.suite,
        host=plan.host,
        state=last.state if last else "starting",
        since_s=round(since_s, 1),
        block=run.block + 1 if run else None,
        blocks=plan.runs[-1].block + 1 if plan.runs else 0,
        run_index=run.index + 1 if run else None,
        runs=len(plan.runs),
        run_id=run.run_id if run else "",
        configuration=run.configuration if run else "",
        workload=run.workload if run else "",
        finished=sum(a.finished is not None and not a.void for a in latest),
        void=void - skipped,
        skipped=skipped,
        repeated=sum(attempt.void is not None for attempt in history.attempts) - void,
        waiting=last.detail if last and last.state == "waiting" else None,
        waiting_for=last.cause if last and last.state == "waiting" else None,
        left_s=None if left_s is None else round(left_s),
        ends_wall=None if left_s is None else utc(moment + timedelta(seconds=left_s)),
        watts=dict(watts),
        gaps=dict(gaps),
        events=tuple(events),
        updated_wall=utc(moment),
        holder=holder,
        answer=answer,
        void_in_a_row=history.void_in_a_row,
        interrupted=sum(
            attempt.void is not None and attempt.void.cause in INTERRUPTIONS
            for attempt in history.attempts
        ),
    )


def _left_s(plan: Plan, history: History, since_s: float) -> float | None:
    """Return the remaining seconds less those that the current run has worked already."""
    last = history.last
    if last is None or last.state in TERMINAL:
        return 0.0 if last else None
    left_s = remaining_s(plan, history)
    if left_s is None:
        return None
    costs_s = run_costs_s(history).values()
    worked_s = min(since_s, max(costs_s)) if last.state in BEGUN else 0.0
    return max(0.0, left_s - worked_s)
