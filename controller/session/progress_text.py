"""Describe the progress of a suite in sentences for people."""

from __future__ import annotations

import math
from datetime import datetime

from contract.journal import (
    INTERRUPTIONS,
    PRECONDITIONED,
    PRECONDITIONING,
    REPEAT,
    SKIPPED,
    TERMINAL,
    Entry,
)
from contract.plan import Plan
from contract.status import RunningAnswer, SuiteStatus


def event(plan: Plan, entry: Entry) -> str | None:
    """Return a line of the journal as a sentence; None for an ordinary one."""
    detail = entry.detail
    if entry.state == "suite-started":
        return "the agent starts" + (f": {detail}" if detail else "")
    if entry.state == "waiting":
        return f"waiting: {detail}"
    if entry.state == "void":
        words = _VOIDED.get(entry.cause, "is void") + (f": {detail}" if detail else "")
        return f"{run_name(plan, entry.run_id)} {words}"
    if entry.state in (*TERMINAL, PRECONDITIONING, PRECONDITIONED):
        text = f"{entry.facts.get('disk', '')} {detail}".strip()
        return entry.state.replace("-", " ") + (f": {text}" if text else "")
    return None


_VOIDED = {
    **dict.fromkeys(INTERRUPTIONS, "was interrupted"),
    REPEAT: "is run again",
    SKIPPED: "is skipped",
}


def run_name(plan: Plan, run_id: str) -> str:
    """Return a run as `run 7 (opal sql)`, or its id if the plan does not contain it."""
    for run in plan.runs:
        if run.run_id == run_id:
            return f"run {run.index + 1} ({run.configuration} {run.workload})"
    return run_id


def minutes(seconds: float) -> str:
    """Format a duration as `1 h 02 min`, `3 min 20 s` or `45 s`."""
    total_min, rest_s = divmod(round(seconds), 60)
    if total_min >= 60:
        return f"{total_min // 60} h {total_min % 60:02d} min"
    return f"{total_min} min {rest_s:02d} s" if total_min else f"{rest_s} s"


def about(seconds: float) -> str:
    """Round a remaining time up to `about 4 min`, `less than a minute`, `about 2 h 10 min`."""
    total_min = math.ceil(seconds / 60)
    if total_min >= 100:
        rounded_min = math.ceil(total_min / 10) * 10
        return f"about {rounded_min // 60} h {rounded_min % 60:02d} min"
    return f"about {total_min} min" if seconds >= 60 else "less than a minute"


DOING = {
    "switching": "setting up {configuration}",
    "running": "measuring {workload} on {configuration}",
    "proving": "checking that {configuration} is what was measured",
    "finished": "{workload} on {configuration} is finished",
    "void": "{workload} on {configuration} is void",
}


def position(status: SuiteStatus) -> str:
    """Return a position as `block 2 of 4, run 9 of 28`; empty between runs."""
    if not status.run_index:
        return ""
    return f"block {status.block} of {status.blocks}, run {status.run_index} of {status.runs}"


def doing(status: SuiteStatus) -> str:
    """Return the current activity, such as `measuring sql on opal`."""
    if status.waiting:
        return f"waiting: {status.waiting}"
    words = DOING.get(status.state) if status.run_index else None
    return words.format_map(vars(status)) if words else status.state.replace("-", " ")


def compact(status: SuiteStatus) -> str:
    """Return a status in one line, without counts of zero."""
    where = position(status)
    parts = [f"{where}: {doing(status)}" if where else doing(status)]
    if status.left_s is not None and status.state not in TERMINAL:
        parts.append(f"{about(status.left_s)} left")
    watts = [f"{name} {w:.1f} W" for name, w in status.watts.items()]
    return ", ".join([*parts, *troubles(status), *watts])


def troubles(status: SuiteStatus) -> list[str]:
    """List the numbers of void, skipped and repeated runs if not zero."""
    counts = {"void": status.void, "skipped": status.skipped, "repeated": status.repeated}
    return [f"{count} {kind}" for kind, count in counts.items() if count]


def remaining(status: SuiteStatus) -> str:
    """Return the remaining time and the end by this machine's time zone."""
    if status.state in TERMINAL:
        return "nothing"
    if status.left_s is None or status.ends_wall is None:
        return "unknown before the first run has finished"
    return f"{about(status.left_s)}, until {clock(status.ends_wall)}"


MOST_CHANGES = 4


def changes(answer: RunningAnswer) -> str:
    """Return the changes so far, such as `Opal +0.6 % after block 2`; of many, only the first."""
    shown = [f"{label} {100 * (r - 1):+.1f} %" for label, r in answer.ratios.items()]
    shown[MOST_CHANGES:] = ["more in status.json"] if len(shown) > MOST_CHANGES else []
    origin = "" if answer.origin == "measured" else f" ({answer.origin})"
    return f"{', '.join(shown) or 'nothing to compare'} after block {answer.blocks}{origin}"


def clock(wall: str) -> str:
    """Convert a time in UTC to hours, minutes and seconds of this machine's time zone."""
    return datetime.fromisoformat(wall).astimezone().strftime("%H:%M:%S")


def utc(moment: datetime) -> str:
    """Format a time as in status.json."""
    return moment.isoformat(timespec="seconds")
