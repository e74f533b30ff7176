"""The comparison of two suites, for the terminal and as a small page."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from analysis.report import answer, render, view, words
from analysis.report.view import Page, Section
from analysis.stats.compare import Compared
from contract import files
from contract.command_results import Ratio

MOST = 20  # differences that are shown; the whole plans stand in the reports
LONGEST = 60  # characters of one
CAUTION = (
    "One suite each: what else was different between the two times (temperature, updates, the "
    "state of the disks) is in B / A as well, and cannot be told from what was changed. The cost "
    "of encryption is a ratio within each suite, in which much of that cancels. Each interval "
    "stands for itself; there are no verdicts across suites."
)
JOULES = ("Workload", "Configuration", "B / A [95 % interval]", "n in A", "n in B")
COSTS = ("Workload", "Configuration", "Cost in A", "Cost in B", "B beside A [95 % interval]")


def write(found: Compared, folder: Path) -> Path:
    """The page, in `folder`; returns its path. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found.a.suite_id}--{found.b.suite_id}.html"
    files.write(path, [render.html(page(found)).encode()])
    return path


def text(found: Compared) -> str:
    """For the terminal: what stands on the page."""
    shown = page(found)
    return render.text(
        shown.head + view.join(view.heading(s.title, 2) + s.blocks for s in shown.sections)
    )


def page(found: Compared) -> Page:
    """The comparison as a page."""
    head = view.bullets([f"A: {found.a.suite_id}", f"B: {found.b.suite_id}"])
    head += answer.banner(found.origin) + view.paragraph(CAUTION)
    differ = view.paragraph(_differ(found))
    differ += view.table(
        "Plans, meters and machines",
        ("What", "A", "B"),
        [[one.what, _short(one.a), _short(one.b)] for one in found.differences[:MOST]],
        words=3,
    )
    if found.other_work:
        differ += view.note("Not alike. ", view.paragraph(_other_work(found)), "warning")
    joules = view.table(
        f"Energy of {words.name_of(found.component)} in B over that in A, runs without their tail",
        JOULES,
        _joules(found),
        words=2,
        origin=found.origin,
        group=True,
    )
    costs = view.table(
        "Change of energy beside the baseline in the same block, in A and in B, and how many "
        "times as much a run takes beside its baseline in B as in A",
        COSTS,
        _costs(found),
        words=2,
        origin=found.origin,
        group=True,
    )
    sections = [Section("What differs", "differs", differ), Section("Joules", "joules", joules)]
    sections += [Section("Cost of encryption", "costs", costs)] * bool(costs)
    title = f"{found.a.suite_id} and {found.b.suite_id}"
    return Page(title, "Two suites compared", head, tuple(sections))


def _other_work(found: Compared) -> str:
    names = ", ".join(words.name_of(name) for name in found.other_work)
    return f"Other parameters, so other work: {names}. There B / A says nothing of the machines."


def _differ(found: Compared) -> str:
    count = len(found.differences)
    if not count:
        return "Nothing that the plans and the machines tell differs but the time and the order."
    more = f"; {count - MOST} more are not shown" if count > MOST else ""
    return f"{count} thing{'s differ' if count > 1 else ' differs'} between them{more}."


def _short(value: str | None) -> str:
    return words.NOTHING if not value else textwrap.shorten(value, LONGEST, placeholder=" …")


def _joules(found: Compared) -> list[list[str]]:
    return [
        [*_names(found, one), _ratio(one), str(one.blocks_a), str(one.blocks_b)]
        for one in found.joules
    ]


def _costs(found: Compared) -> list[list[str]]:
    rows = []
    for one in found.costs:
        costs = [
            words.NOTHING if cost is None else words.percent(cost)
            for cost in (one.cost_a, one.cost_b)
        ]
        rows.append([*_names(found, one), *costs, _ratio(one)])
    return rows


def _names(found: Compared, one: Ratio) -> Sequence[str]:
    return words.name_of(one.workload), found.a.label(one.configuration)


def _ratio(one: Ratio) -> str:
    shown = words.ratio_of(one.ratio, one.low, one.high)
    return shown if one.low is not None else f"{shown} ({words.NO_INTERVAL})"
