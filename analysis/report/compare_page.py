"""The comparison of two suites, for the terminal and as a small page."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from analysis.report import answer, markup, tables, words
from analysis.report.markup import Html
from analysis.stats.compare import Compared, Ratio
from analysis.suite.records import MEASURED
from contract import files

WIDTH = 100
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


def text(found: Compared) -> str:
    """For the terminal."""
    parts = [f"A: {found.a.suite_id}", f"B: {found.b.suite_id}"]
    if found.origin != MEASURED:
        parts.append(f"{found.origin.upper()}: {answer.banner(found.origin)}")
    parts += ["", _differ(found)]
    if found.differences:
        parts += ["", tables.aligned(("what", "A", "B"), _differences(found), 3)]
    if found.other_work:
        parts += ["", textwrap.fill(_other_work(found), WIDTH)]
    parts += ["", _caption(found), "", tables.aligned(JOULES, _joules(found), 2)]
    if found.costs:
        parts += ["", "Cost of encryption: the change of energy beside the baseline", ""]
        parts += [tables.aligned(COSTS, _costs(found), 2)]
    return "\n".join([*parts, "", textwrap.fill(CAUTION, WIDTH)])


def write(found: Compared, folder: Path) -> Path:
    """The page, in `folder`; returns its path. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found.a.suite_id}--{found.b.suite_id}.html"
    title = f"{found.a.suite_id} and {found.b.suite_id}"
    page = markup.page(title, html(found))
    files.write(path, [page.encode()])
    return path


def html(found: Compared) -> Html:
    """What stands on the page."""
    page = markup.heading("Two suites compared", 1, "top")
    page += markup.bullets([f"A: {found.a.suite_id}", f"B: {found.b.suite_id}"])
    if found.origin != MEASURED:
        banner = markup.paragraph(answer.banner(found.origin))
        page += markup.note(f"{found.origin.capitalize()}. ", banner, "modelled")
    page += markup.paragraph(CAUTION)
    page += markup.heading("What differs", 2) + markup.paragraph(_differ(found))
    page += markup.table(
        "Plans, meters and machines", ("What", "A", "B"), _differences(found), words=3
    )
    if found.other_work:
        page += markup.note("Not alike. ", markup.paragraph(_other_work(found)), "warning")
    page += markup.heading("Joules", 2)
    page += markup.table(
        _caption(found), JOULES, _joules(found), words=2, origin=found.origin, group=True
    )
    if found.costs:
        page += markup.heading("Cost of encryption", 2)
        page += markup.table(
            "Change of energy beside the baseline in the same block, in A and in B, and how many "
            "times as much a run takes beside its baseline in B as in A",
            COSTS,
            _costs(found),
            words=2,
            origin=found.origin,
            group=True,
        )
    return page


def _caption(found: Compared) -> str:
    return (
        f"Energy of {words.name_of(found.component)} in B over that in A, runs without their tail"
    )


def _other_work(found: Compared) -> str:
    names = ", ".join(words.name_of(name) for name in found.other_work)
    return f"Other parameters, so other work: {names}. There B / A says nothing of the machines."


def _differ(found: Compared) -> str:
    count = len(found.differences)
    if not count:
        return "Nothing that the plans and the machines tell differs but the time and the order."
    more = f"; {count - MOST} more are not shown" if count > MOST else ""
    return f"{count} thing{'s differ' if count > 1 else ' differs'} between them{more}."


def _differences(found: Compared) -> list[list[str]]:
    return [
        [one.what, *(_short(side) for side in (one.a, one.b))] for one in found.differences[:MOST]
    ]


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
