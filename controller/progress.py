"""What the journal says of a running suite: where it is, what was voided, how long it will take;
the document of status.json of it, and sentences for people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean
from typing import Any

from agent.tries import Accounts
from contract.journal import (
    BEGUN,
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


def minutes(seconds: float) -> str:
    """`1 h 02 min`, `3 min 20 s` or `45 s`."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def about(seconds: float) -> str:
    """Time left as a person says it: `about 4 min`, `less than a minute`, `about 2 h 10 min`."""
    total_min = math.ceil(seconds / 60)
    if total_min >= 100:
        rounded_min = math.ceil(total_min / 10) * 10
        return f"about {rounded_min // 60} h {rounded_min % 60:02d} min"
    return f"about {total_min} min" if seconds >= 60 else "less than a minute"


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


DOING = {
    "switching": "setting up {configuration}",
    "running": "measuring {workload} on {configuration}",
    "proving": "checking that {configuration} is what was measured",
    "finished": "{workload} on {configuration} is finished",
    "void": "{workload} on {configuration} is void",
}


def position(status: Mapping[str, Any]) -> str:
    """`block 2 of 4, run 9 of 28`; empty between runs."""
    if not status.get("run_index"):
        return ""
    block = f"block {status['block']} of {status['blocks']}"
    return f"{block}, run {status['run_index']} of {status['runs']}"


def doing(status: Mapping[str, Any]) -> str:
    """What is done now, as `measuring sql on opal`."""
    if status.get("waiting"):
        return f"waiting: {status['waiting']}"
    state = str(status.get("state", ""))
    words = DOING.get(state) if status.get("run_index") else None
    return words.format_map(status) if words else state.replace("-", " ")


def compact(found: Mapping[str, Any]) -> str:
    """A status (`fde-status/1`) in one line; what a status does not say is left out."""
    where = position(found)
    parts = [f"{where}: {doing(found)}" if where else doing(found)]
    left_s = found.get("left_s")
    if left_s is not None and found.get("state") not in TERMINAL:
        parts.append(f"{about(left_s)} left")
    parts += [f"{found[key]} {key}" for key in ("void", "skipped", "repeated") if found.get(key)]
    parts += [f"{name} {watts:.1f} W" for name, watts in (found.get("watts") or {}).items()]
    return ", ".join(parts)


def now(found: Mapping[str, Any]) -> str:
    """What is done now, and for how long."""
    return f"{doing(found)} for {minutes(found['since_s'])}"


def left(found: Mapping[str, Any]) -> str:
    """Time left and when that will be, by this machine's time zone."""
    if found["state"] in TERMINAL:
        return "nothing"
    if found["left_s"] is None:
        return "not known before the first run has finished"
    return f"{about(found['left_s'])}, until {clock(found['ends_wall'])}"


MOST_ANSWERS = 4
LEFT_OUT = {
    "no-meter": "no meter measures the whole system",
    "no-workload": "no workload runs on both sides",
    "void": "a run of the block is void",
    "no-figure": "a run of the block has no joules",
    "no-block": "no block is complete",
}


def answers(answer: Mapping[str, Any] | None) -> list[str]:
    """The running answer of a status, one contrast each: `dm-crypt AES-128 +41 % ± 9`. Of many
    configurations the first few; then those that have none, and why."""
    answer = answer or {}
    contrasts = answer.get("contrasts", [])
    texts = [f"{each['label']} {change(each)}" for each in contrasts[:MOST_ANSWERS]]
    more = len(contrasts) - len(texts)
    texts += [f"{more} more in status.json"] if more else []
    for cause, why in LEFT_OUT.items():
        labels = [each["label"] for each in answer.get("left_out", []) if each["cause"] == cause]
        if labels:
            texts.append(f"not for {', '.join(labels)}: {why}")
    return texts


# `±` stands where the middle of the interval is at most this share of its half width off the ratio.
UNEVEN = 0.2


MOST_PLACES = 4


def change(contrast: Mapping[str, Any]) -> str:
    """Format a ratio as `+41 % ± 9`, where the interval is too uneven for that as
    `+30 % [+1, +68]`, and without an interval with the number of blocks.

    It has the digits that half the interval bears, and as many more as it takes to show whether the
    interval contains 0 %.
    """
    ratio, low, high = (contrast[key] for key in ("ratio", "low", "high"))
    if low is None or high is None:
        blocks = contrast["blocks"]
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
    """The change with its sign, without one where it rounds to none."""
    rounded = round(100 * (ratio - 1), places)
    return f"{rounded:+.{places}f}" if rounded else f"{0:.{places}f}"


def scope(answer: Mapping[str, Any]) -> str:
    """What the running answer is of: the joules of what, against what, and their origin."""
    bases = list(dict.fromkeys(each["base_label"] for each in answer["contrasts"]))
    base = bases[0] if len(bases) == 1 else "the same disk without encryption"
    origin = "" if answer["origin"] == "measured" else f"; {answer['origin']}"
    return f"joules of the {answer['component']}, against {base}{origin}"


def after_block(answer: Mapping[str, Any], blocks: int) -> str:
    """The running answer as a line."""
    where = f"after block {answer['blocks']} of {blocks}"
    so_far = f" so far ({scope(answer)})" if answer["contrasts"] else ""
    return f"{where}: {'; '.join(answers(answer)) or 'nothing to compare'}{so_far}"


def clock(wall: str) -> str:
    """Hours, minutes and seconds here, of a time in UTC."""
    return datetime.fromisoformat(wall).astimezone().strftime("%H:%M:%S")


def utc(moment: datetime) -> str:
    """As status.json has times."""
    return moment.isoformat(timespec="seconds")
