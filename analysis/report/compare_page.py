"""The comparison of suites, for the terminal and as a small page."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from analysis.report import answer, render, view, words
from analysis.report.texts import say
from analysis.report.view import Blocks, Fields, Page, Section
from analysis.stats.compare import LEAST_NIGHTS, NIGHT_SD, Compared
from analysis.suite.records import worst_origin
from contract import files
from contract.command_results import Difference, Ratio

MOST = 20  # differences that are shown; the reports have the complete plans
NAMED = 5  # increases that a sentence names
LONGEST = 60  # characters of one


def write(pairs: Sequence[Compared], folder: Path) -> Path:
    """Write the page to `folder` and return its path. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    last = pairs[0].b.suite_id
    if len(pairs) > 1:
        last = f"{len(pairs)}-suites-{files.short_digest(pair.b.suite_id for pair in pairs)}"
    path = folder / f"{pairs[0].a.suite_id}--{last}.html"
    files.write(path, [render.html(page(pairs)).encode()])
    return path


def text(pairs: Sequence[Compared]) -> str:
    """Return the page as text for a terminal."""
    shown = page(pairs)
    return render.text(
        shown.head + view.join(view.heading(s.title, 2) + s.blocks for s in shown.sections)
    )


def count_tested(pairs: Sequence[Compared]) -> int:
    """Count the ratios of joules that were tested, in all pairs."""
    return sum(len(pair.tested) for pair in pairs)


def failures(pairs: Sequence[Compared], percent: float) -> str:
    """Return a sentence on joules that rose significantly by more than `percent`, or nothing."""
    increases = [
        f"{ratio.workload} on {ratio.configuration} {words.change_in(ratio)} in {pair.b.suite_id}"
        for pair in pairs
        for ratio in pair.increases
        if ratio.ratio > 1 + percent / 100
    ]
    if not increases:
        return ""
    unnamed = f"; and {len(increases) - NAMED} more" if len(increases) > NAMED else ""
    return (
        f"Energy rose by more than {percent:g} % against {pairs[0].a.suite_id} (95 % intervals in "
        f"brackets, {worst_origin(pair.origin for pair in pairs)}): "
        f"{'; '.join(increases[:NAMED])}{unnamed}. "
        "See the page for what differs between the suites."
    )


def page(pairs: Sequence[Compared]) -> Page:
    """Return the comparison of one suite or several with the first, as a page."""
    first, origin = pairs[0].a, worst_origin(pair.origin for pair in pairs)
    lettered = [(_letter(i), pair) for i, pair in enumerate(pairs)]
    named = [("A", first), *((letter, pair.b) for letter, pair in lettered)]
    head = view.bullets(
        f"{letter}: {suite.suite_id}, {suite.plan.created_wall}".rstrip(", ")
        for letter, suite in named
    )
    caution = say("compare.caution", sd=f"{100 * NIGHT_SD:g} %", least=str(LEAST_NIGHTS))
    head += answer.banner(origin) + view.paragraph(caution)
    parts = [_pair(pair, letter) for letter, pair in lettered]
    differ, joules, costs = (view.join(part) for part in zip(*parts, strict=True))
    sections = [Section("What differs", "differs", differ)]
    rows = [(letter, ratio) for letter, pair in lettered for ratio in pair.increases]
    columns: Fields[tuple[str, Ratio]] = {
        "Suite": lambda row: row[0],
        "Workload": lambda row: words.name_of(row[1].workload),
        "Configuration": lambda row: first.label(row[1].configuration),
        "Change [95 % interval]": lambda row: words.change_in(row[1]),
        "p (Holm)": lambda row: words.p_value(row[1].p_adjusted),
    }
    caption = "Joules that rose significantly"
    increases = view.table_of(caption, rows, columns, words=3, origin=origin)
    increases = increases or view.paragraph("No joules rose significantly.")
    sections.append(Section("Increases", "increases", increases))
    if len(pairs) > 1:
        sections.append(Section("Over time", "history", _history(pairs, origin)))
    sections.append(Section("Joules", "joules", joules))
    sections += [Section("Cost of encryption", "costs", costs)] * bool(costs)
    title = " and ".join(suite.suite_id for _, suite in named)
    count = {1: "Two"}.get(len(pairs), str(len(pairs) + 1))
    return Page(title, f"{count} suites compared", head, tuple(sections))


def _history(pairs: Sequence[Compared], origin: str) -> Blocks:
    """Return the joules over all workloads, by suite."""
    caption = "Change of energy over all workloads beside the first suite, with 95 % intervals"
    names = dict.fromkeys(ratio.configuration for pair in pairs for ratio in pair.overall)
    rows = []
    for i, pair in enumerate(pairs):
        by = {ratio.configuration: words.change_in(ratio) for ratio in pair.overall}
        date = pair.b.plan.created_wall[:10]
        rows.append([_letter(i), date, *(by.get(name, words.NOTHING) for name in names)])
    headers = ["Suite", "Date", *map(pairs[0].a.label, names)]
    return view.table(caption, headers, rows, words=2, origin=origin)


def _letter(place: int) -> str:
    """Return B, C, … Z, then S27, S28 and so on."""
    return chr(ord("B") + place) if place < 25 else f"S{place + 2}"


def _pair(pair: Compared, letter: str) -> tuple[Blocks, Blocks, Blocks]:
    """Return the differences, the joules and the costs of one suite against the first."""
    differing: Fields[Difference] = {
        "What": lambda difference: difference.what,
        "A": lambda difference: _short(difference.a),
        letter: lambda difference: _short(difference.b),
    }
    caption = f"Plans, meters and machines: {letter} beside A"
    count, text = len(pair.differences), say("compare.alike", letter=letter)
    if count:
        hidden = f"; {count - MOST} more are not shown" if count > MOST else ""
        verb = "things differ" if count > 1 else "thing differs"
        text = f"{count} {verb} between A and {letter}{hidden}."
    differ = view.paragraph(text)
    differ += view.table_of(caption, pair.differences[:MOST], differing, words=3)
    if pair.other_work:
        works = ", ".join(map(words.name_of, pair.other_work))
        text = say("compare.other-work", works=works, letter=letter)
        differ += view.note("Not alike. ", view.paragraph(text), "warning")
    names: Fields[Ratio] = {
        "Workload": lambda ratio: words.name_of(ratio.workload),
        "Configuration": lambda ratio: pair.a.label(ratio.configuration),
    }
    joules_columns: Fields[Ratio] = {
        **names,
        f"{letter} / A [95 % interval]": _ratio,
        "n in A": lambda ratio: str(ratio.blocks_a),
        f"n in {letter}": lambda ratio: str(ratio.blocks_b),
    }
    costs_columns: Fields[Ratio] = {
        **names,
        "Cost in A": lambda ratio: _cost(ratio.cost_a),
        f"Cost in {letter}": lambda ratio: _cost(ratio.cost_b),
        f"{letter} beside A [95 % interval]": _ratio,
    }
    component, origin = words.name_of(pair.component), pair.origin
    caption = f"Energy of {component} in {letter} over that in A, runs without their tail"
    joules = view.table_of(caption, pair.joules, joules_columns, words=2, origin=origin, group=True)
    caption = say("compare.costs", letter=letter)
    costs = view.table_of(caption, pair.costs, costs_columns, words=2, origin=origin, group=True)
    return differ, joules, costs


def _short(value: str | None) -> str:
    return words.NOTHING if not value else textwrap.shorten(value, LONGEST, placeholder=" …")


def _cost(ratio: float | None) -> str:
    return words.NOTHING if ratio is None else words.percent(ratio)


def _ratio(ratio: Ratio) -> str:
    return words.ratio(ratio) + f" ({words.NO_INTERVAL})" * (ratio.low is None)
