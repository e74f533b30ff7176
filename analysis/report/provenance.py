"""The section on provenance, and where the time went."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from analysis.report import markup, words
from analysis.report.markup import Html
from analysis.stats import specimens
from analysis.stats.results import Results

MACHINE = {
    "os_release": "System",
    "uname": "Kernel",
    "cpu.model": "Processor",
    "lab_machine": "Virtual lab's machine",
    "lab_disks": "Virtual lab's model of its disks",
    "versions.cryptsetup": "cryptsetup",
}
TIMES = {
    "measuring_s": "Measuring (phases and tails)",
    "preparing_s": "Preparing and settling",
    "between_phases_s": "Between phases",
    "preconditioning_s": "Preconditioning the disks",
    "switching_s": "Switching configurations",
    "proving_s": "Proving configurations",
    "between_runs_s": "Between runs",
    "repeated_s": "Tries that were void or cut short",
    "waiting_s": "Waiting",
    "down_s": "Target or agent away",
    "start_s": "Starting",
    "fetch_s": "Fetching",
    "other_s": "Other",
    "wall_s": "All",
}


def provenance_section(found: Results) -> Html:
    """Plan, machine, packages, changes during the suite, time."""
    suite = found.suite
    plan = suite.plan
    before = dict(_flat(suite.before))
    facts = [
        ["Suite", str(plan.get("suite_id", ""))],
        ["Scale", str(plan.get("scale", ""))],
        ["Plan, SHA-256", str(plan.get("sha256", ""))],
        ["Seed of the order", str(plan.get("seed", ""))],
        ["Origin at best", str(plan.get("origin", ""))],
    ]
    facts += [
        [label, words.LAB_MACHINES.get(before[key], before[key])]
        for key, label in MACHINE.items()
        if key in before
    ]
    short = [[key, text] for key, text in before.items() if len(text) <= 120]
    after = dict(_flat(suite.after))
    changed = [
        [key, before.get(key, words.NOTHING), after.get(key, words.NOTHING)]
        for key in sorted(before.keys() | after.keys())
        if after and before.get(key) != after.get(key) and not key.startswith("locked_reads")
    ]
    page = _time(suite.timing)
    page += markup.table("Plan and machine", ["What", "Value"], facts, words=2)
    if disks := specimens.table(suite):
        page += markup.table(
            "What the disks differ in besides their encryption", *(disks[0], disks[1:]), words=3
        )
    page += markup.folded(
        f"Machine and packages before the first run ({_entries(len(before))})",
        markup.table("Before the first run", ["What", "Value"], short, words=2),
    )
    page += markup.folded(
        f"What was different after the last run ({_entries(len(changed))})",
        markup.table("Before and after", ["What", "Before", "After"], changed, words=3)
        if changed
        else markup.paragraph("Nothing, or no record of it."),
    )
    text = json.dumps(dict(plan), indent=1, ensure_ascii=False)
    return page + markup.folded(
        "The whole plan (on the screen only)", markup.preformatted(text), "screen"
    )


def _entries(number: int) -> str:
    return f"{number} entr{'y' if number == 1 else 'ies'}"


def _time(timing: Mapping[str, Any]) -> Html:
    wall = timing.get("wall_s")
    rows = [
        [label, words.number(float(timing[key]), 0), _part(timing[key], wall)]
        for key, label in TIMES.items()
        if isinstance(timing.get(key), int | float)
    ]
    return markup.table("Where the time went", ["Step", "Seconds", "Share"], rows)


def _part(value: float, wall: Any) -> str:
    return f"{value / wall * 100:.0f} %" if isinstance(wall, int | float) and wall > 0 else ""


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Leaves of nested records as `a.b.c` and text."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        yield path, ", ".join(v if isinstance(v, str) else json.dumps(v) for v in value)
    elif value is not None:
        yield path, str(value)
