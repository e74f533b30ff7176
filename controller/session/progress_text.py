"""The progress of a suite in sentences for people."""

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
    """Return a line of the journal as a sentence; None of ordinary ones."""
    detail = entry.detail
    if entry.state == "suite-started":
        return "the agent starts" + (f": {detail}" if detail else "")
    if entry.state == "waiting":
        return f"waiting: {detail}"
    if entry.state == "void":
        words = _VOIDED.get(entry.cause, "is void") + (f": {detail}" if detail else "")
        return f"{name_of(plan, entry.run_id)} {words}"
    if entry.state in (*TERMINAL, PRECONDITIONING, PRECONDITIONED):
        text = f"{entry.facts.get('disk', '')} {detail}".strip()
        return entry.state.replace("-", " ") + (f": {text}" if text else "")
    return None


_VOIDED = {
    **dict.fromkeys(INTERRUPTIONS, "was interrupted"),
    REPEAT: "is run again",
    SKIPPED: "is skipped",
}


def name_of(plan: Plan, run_id: str) -> str:
    """`run 7 (opal sql)`; the id itself where the plan does not have it."""
    for run in plan.runs:
        if run.run_id == run_id:
            return f"run {run.index + 1} ({run.configuration} {run.workload})"
    return run_id


def minutes(seconds: float) -> str:
    """`1 h 02 min`, `3 min 20 s` or `45 s`."""
    seconds_left = round(seconds)
    if seconds_left >= 3600:
        return f"{seconds_left // 3600} h {seconds_left % 3600 // 60:02d} min"
    return (
        f"{seconds_left // 60} min {seconds_left % 60:02d} s"
        if seconds_left >= 60
        else f"{seconds_left} s"
    )


def about(seconds: float) -> str:
    """Time left, rounded up: `about 4 min`, `less than a minute`, `about 2 h 10 min`."""
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
    """`block 2 of 4, run 9 of 28`; empty between runs."""
    if not status.run_index:
        return ""
    return f"block {status.block} of {status.blocks}, run {status.run_index} of {status.runs}"


def doing(status: SuiteStatus) -> str:
    """Return what is done now, as `measuring sql on opal`."""
    if status.waiting:
        return f"waiting: {status.waiting}"
    words = DOING.get(status.state) if status.run_index else None
    return words.format_map(vars(status)) if words else status.state.replace("-", " ")


def compact(status: SuiteStatus) -> str:
    """Return a status in one line; counts of nothing are left out."""
    where = position(status)
    parts = [f"{where}: {doing(status)}" if where else doing(status)]
    if status.left_s is not None and status.state not in TERMINAL:
        parts.append(f"{about(status.left_s)} left")
    watts = [f"{name} {w:.1f} W" for name, w in status.watts.items()]
    return ", ".join([*parts, *troubles(status), *watts])


def troubles(status: SuiteStatus) -> list[str]:
    """State that the target is off, and count of void, skipped and repeated runs, if any."""
    counts = {"void": status.void, "skipped": status.skipped, "repeated": status.repeated}
    off = ["the target is OFF"] if status.target_off else []
    return [*off, *(f"{count} {what}" for what, count in counts.items() if count)]


def left(status: SuiteStatus) -> str:
    """Time left and when that will be, by this machine's time zone."""
    if status.state in TERMINAL:
        return "nothing"
    if status.left_s is None or status.ends_wall is None:
        return "unknown before the first run has finished"
    return f"{about(status.left_s)}, until {clock(status.ends_wall)}"


MOST_CHANGES = 4


def changes(answer: RunningAnswer) -> str:
    """Return the changes so far, of many configurations the first: `Opal +0.6 % after block 2`."""
    shown = [f"{label} {100 * (r - 1):+.1f} %" for label, r in answer.ratios.items()]
    shown[MOST_CHANGES:] = ["more in status.json"] if len(shown) > MOST_CHANGES else []
    origin = "" if answer.origin == "measured" else f" ({answer.origin})"
    return f"{', '.join(shown) or 'nothing to compare'} after block {answer.blocks}{origin}"


def clock(wall: str) -> str:
    """Hours, minutes and seconds here, of a time in UTC."""
    return datetime.fromisoformat(wall).astimezone().strftime("%H:%M:%S")


def utc(moment: datetime) -> str:
    """As status.json has times."""
    return moment.isoformat(timespec="seconds")
