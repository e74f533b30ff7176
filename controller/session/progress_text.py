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
from contract.status import RunningAnswer, RunningContrast, SuiteStatus


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


MOST_ANSWERS = 4
LEFT_OUT = {
    "no-meter": "no meter measures the whole system",
    "no-workload": "no workload runs on both sides",
    "void": "a run of the block is void",
    "no-figure": "a run of the block has no joules",
    "no-block": "no block is complete",
}


def answers(answer: RunningAnswer | None) -> list[str]:
    """Return the running answer, one contrast each: `dm-crypt AES-128 +41 % ± 9`.

    Of many configurations the first few; then those that have none, and why.
    """
    if answer is None:
        return []
    texts = [f"{each.label} {change(each)}" for each in answer.contrasts[:MOST_ANSWERS]]
    more = len(answer.contrasts) - len(texts)
    texts += [f"{more} more in status.json"] if more else []
    for cause, why in LEFT_OUT.items():
        labels = [each.label for each in answer.left_out if each.cause == cause]
        if labels:
            texts.append(f"not for {', '.join(labels)}: {why}")
    return texts


# `±` stands where the middle of the interval is at most this share of its half width off the ratio.
UNEVEN = 0.2
MOST_PLACES = 4


def change(contrast: RunningContrast) -> str:
    """Format a ratio as `+41 % ± 9`, without an interval with the number of blocks.

    An interval that is too uneven for `±` is written as `+30 % [+1, +68]`.
    It has the digits that half the interval bears, and as many more as it takes to show whether the
    interval contains 0 %.
    """
    ratio, low, high, blocks = contrast.ratio, contrast.low, contrast.high, contrast.blocks
    if low is None or high is None:
        return f"{_percent(ratio, 0)} % ({'one block' if blocks == 1 else f'{blocks} blocks'})"
    half, excludes_1 = (high - low) / 2, not low <= 1 <= high
    even = abs(high + low - 2 * ratio) <= UNEVEN * half and (abs(ratio - 1) > half) == excludes_1
    shown = (ratio - half, ratio + half) if even else (low, high)
    for places in range(0 if half >= 0.02 else 1 if half >= 0.002 else 2, MOST_PLACES + 1):
        limits = [_percent(limit, places) for limit in shown]
        if (limits[0][0] == limits[1][0]) == excludes_1:
            break
    middle = f"{_percent(ratio, places)} %"
    return f"{middle} ± {100 * half:.{places}f}" if even else f"{middle} [{', '.join(limits)}]"


def _percent(ratio: float, places: int) -> str:
    """Return the change with its sign, without one where it rounds to none."""
    rounded = round(100 * (ratio - 1), places)
    return f"{rounded:+.{places}f}" if rounded else f"{0:.{places}f}"


def scope(answer: RunningAnswer) -> str:
    """Return whose joules the running answer compares, against what, and their origin."""
    bases = list(dict.fromkeys(each.base_label for each in answer.contrasts))
    base = bases[0] if len(bases) == 1 else "the same disk without encryption"
    origin = "" if answer.origin == "measured" else f"; {answer.origin}"
    return f"joules of the {answer.component}, against {base}{origin}"


def after_block(answer: RunningAnswer, blocks: int) -> str:
    """Return the running answer as a line."""
    where = f"after block {answer.blocks} of {blocks}"
    so_far = f" so far ({scope(answer)})" if answer.contrasts else ""
    return f"{where}: {'; '.join(answers(answer)) or 'nothing to compare'}{so_far}"


def clock(wall: str) -> str:
    """Hours, minutes and seconds here, of a time in UTC."""
    return datetime.fromisoformat(wall).astimezone().strftime("%H:%M:%S")


def utc(moment: datetime) -> str:
    """As status.json has times."""
    return moment.isoformat(timespec="seconds")
