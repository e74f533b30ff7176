"""The comparison of two suites, for the terminal and as a small page."""

from __future__ import annotations

import textwrap
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
    differ += view.table_of(
        "Plans, meters and machines",
        found.differences[:MOST],
        {
            "What": lambda one: one.what,
            "A": lambda one: _short(one.a),
            "B": lambda one: _short(one.b),
        },
        words=3,
    )
    if found.other_work:
        differ += view.note("Not alike. ", view.paragraph(_other_work(found)), "warning")
    names: view.Fields[Ratio] = {
        "Workload": lambda one: words.name_of(one.workload),
        "Configuration": lambda one: found.a.label(one.configuration),
    }
    joules = view.table_of(
        f"Energy of {words.name_of(found.component)} in B over that in A, runs without their tail",
        found.joules,
        {
            **names,
            "B / A [95 % interval]": _ratio,
            "n in A": lambda one: str(one.blocks_a),
            "n in B": lambda one: str(one.blocks_b),
        },
        words=2,
        origin=found.origin,
        group=True,
    )
    costs = view.table_of(
        "Change of energy beside the baseline in the same block, in A and in B, and how many "
        "times as much a run takes beside its baseline in B as in A",
        found.costs,
        {
            **names,
            "Cost in A": lambda one: _cost(one.cost_a),
            "Cost in B": lambda one: _cost(one.cost_b),
            "B beside A [95 % interval]": _ratio,
        },
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


def _cost(ratio: float | None) -> str:
    return words.NOTHING if ratio is None else words.percent(ratio)


def _ratio(one: Ratio) -> str:
    shown = words.ratio_of(one.ratio, one.low, one.high)
    return shown if one.low is not None else f"{shown} ({words.NO_INTERVAL})"
