"""The comparison of suites, for the terminal and as a small page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analysis.report import answer, render, view, words
from analysis.report.figures import forest
from analysis.report.texts import catalogue, say
from analysis.report.view import Blocks, Fields, Group, Matrix, MatrixCell, Page, Section
from analysis.stats.compare import LEAST_NIGHTS, NIGHT_SD, Compared
from analysis.stats.stats import LEVEL
from analysis.suite.records import worst_origin
from contract import files
from contract.command_results import Difference, Ratio

NAMED = 5  # increases that a sentence names
MOST_NAMED = 6  # kinds of differences that the first screen names
SHORT = 40  # characters of values that it shows


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
    sections = view.join(view.heading(s.title, 2) + s.blocks for s in shown.sections)
    return render.text((*shown.facts, *shown.head, *sections))


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
    suites = [f"{letter}: {s.suite_id}, {s.plan.created_wall[:10]}" for letter, s in named]
    answers = view.join(_answer(pair, letter) for letter, pair in lettered)
    head = view.columns(answers, _picture(lettered, origin))
    head += view.join(_matrix(pair, letter) for letter, pair in lettered)
    head += view.key("compare.marks")
    sections = [
        Section(say("compare.differ"), "differs", view.join(_differ(p, at) for at, p in lettered)),
        Section(say("compare.joules"), "joules", view.join(_joules(p, at) for at, p in lettered)),
    ]
    if costs := view.join(_costs(pair, letter) for letter, pair in lettered):
        sections.append(Section(say("compare.cost"), "costs", costs))
    caution = say("compare.caution", sd=f"{100 * NIGHT_SD:g} %", least=str(LEAST_NIGHTS))
    sections.append(Section(say("compare.method"), "method", view.paragraph(caution)))
    count = {1: "Two"}.get(len(pairs), str(len(pairs) + 1))
    return Page(
        " and ".join(suite.suite_id for _, suite in named),
        f"{count} suites compared",
        (view.Facts(" · ".join(suites), answer.mark(origin)),),
        head,
        tuple(sections),
        origin,
    )


def _answer(pair: Compared, letter: str) -> Blocks:
    """Return how much the joules of one suite differ from the first's, and what else differs."""
    tested, rose = len(pair.tested), pair.increases
    fell = [r for r in pair.tested if r.ratio < 1 and (r.p_adjusted or 0.0) < LEVEL]
    code = "more" if rose else "less" if fell else "same" if tested else "untested"
    significant = rose or sorted(fell, key=lambda ratio: ratio.ratio)
    verdict = say(
        f"compare.answer.{code}", letter=letter, count=str(len(significant)), tested=str(tested)
    )
    reason = "."
    for largest in significant[:1]:
        reason = say(
            "compare.answer.largest",
            workload=words.name_of(largest.workload),
            configuration=pair.a.label(largest.configuration),
            change=words.change_in(largest),
        )
    shown: Blocks = (view.Answer("", verdict, reason),)
    if names := list(dict.fromkeys(map(_subject, pair.differences))):
        more = f" and {len(names) - MOST_NAMED} more" * (len(names) > MOST_NAMED)
        listed = words.listed(names[:MOST_NAMED]) if not more else ", ".join(names[:MOST_NAMED])
        shown += (view.Answer("", say("compare.answer.differ"), f" {listed}{more}."),)
    else:
        shown += (view.Answer("", say("compare.alike", letter=letter), ""),)
    if pair.other_work:
        works = ", ".join(map(words.name_of, pair.other_work))
        shown += view.note("Not alike. ", say("compare.other-work", works=works, letter=letter))
    return shown


def _subject(difference: Difference) -> str:
    """Return what differs in words, with both values if they are short: `blocks (4, then 3)`."""
    subject, _, rest = difference.what.partition(".")
    kind, _, name = subject.partition(" ")
    if kind == "workload":
        return f"workload {words.name_of(name.partition(':')[0])}"
    if subject == "disks":
        return f"disk {rest.partition('.')[0]}"
    named = catalogue().tables["compared"].get(subject, subject.replace("_", " "))
    values = [value or words.NOTHING for value in (difference.a, difference.b)]
    if rest or sum(map(len, values)) > SHORT:
        return named
    return f"{named} ({', then '.join(values)})"


def _picture(lettered: Sequence[tuple[str, Compared]], origin: str) -> Blocks:
    """Return the change of each configuration over all workloads, by suite."""
    groups = [
        (
            letter if len(lettered) > 1 else "",
            [
                (pair.a.label(ratio.configuration), ratio.configuration, ratio)
                for ratio in pair.overall
            ],
        )
        for letter, pair in lettered
    ]
    drawn = forest.draw_ratios(lettered[0][1].a, groups, origin)
    caption = say("compare.picture")
    return view.picture(drawn, caption + (forest.arrow_note(drawn) if drawn else ""))


def _matrix(pair: Compared, letter: str) -> Blocks:
    """Return workloads × configurations with each change and its mark."""
    by = {(ratio.workload, ratio.configuration): ratio for ratio in pair.joules}
    names = list(dict.fromkeys(ratio.configuration for ratio in pair.joules))
    workloads = list(dict.fromkeys(ratio.workload for ratio in pair.joules))
    tested = {(ratio.workload, ratio.configuration) for ratio in pair.tested}
    rows = tuple(
        (
            words.name_of(workload),
            tuple(_cell(by.get((workload, name)), (workload, name) in tested) for name in names),
        )
        for workload in workloads
    )
    part = words.name_of(pair.component)
    caption = say("compare.matrix", letter=letter, component=part)
    heads = ("Workload", *map(pair.a.label, names))
    return (Matrix(caption, heads, (Group("", rows),)),) if rows else ()


def _cell(ratio: Ratio | None, tested: bool) -> MatrixCell:
    if ratio is None:
        return MatrixCell(words.NOTHING)
    change, _, interval = words.change_in(ratio).partition(" [")
    below = (f"[{interval}",) if interval else ()
    if not tested or ratio.p_adjusted is None or ratio.p_adjusted >= LEVEL:
        return MatrixCell(f"{change} ?" if tested else change, "inconclusive", "", below)
    return MatrixCell(f"{change} {'▲' if ratio.ratio > 1 else '▼'}", "differs", "", below)


def _letter(place: int) -> str:
    """Return B, C, … Z, then S27, S28 and so on."""
    return chr(ord("B") + place) if place < 25 else f"S{place + 2}"


def _differ(pair: Compared, letter: str) -> Blocks:
    """Return the table of what the plans, meters and machines of two suites differ in."""
    columns: Fields[Difference] = {
        "What": lambda difference: difference.what,
        "A": lambda difference: difference.a or words.NOTHING,
        letter: lambda difference: difference.b or words.NOTHING,
    }
    caption = say("compare.differ.caption", letter=letter)
    return view.table_of(caption, pair.differences, columns, words=3)


def _names(pair: Compared) -> Fields[Ratio]:
    return {
        "Workload": lambda ratio: words.name_of(ratio.workload),
        "Configuration": lambda ratio: pair.a.label(ratio.configuration),
    }


def _joules(pair: Compared, letter: str) -> Blocks:
    """Return the number of blocks and the p-value behind each mark."""
    columns: Fields[Ratio] = {
        **_names(pair),
        f"{letter} / A [95 % interval]": _ratio,
        "p (Holm)": lambda ratio: words.p_value(ratio.p_adjusted),
        "n in A": lambda ratio: str(ratio.blocks_a),
        f"n in {letter}": lambda ratio: str(ratio.blocks_b),
    }
    caption = say("compare.joules.caption", letter=letter, component=words.name_of(pair.component))
    return view.table_of(caption, pair.joules, columns, words=2, group=True)


def _costs(pair: Compared, letter: str) -> Blocks:
    """Return what encryption costs in both suites, and the ratio."""
    columns: Fields[Ratio] = {
        **_names(pair),
        "Cost in A": lambda ratio: _cost(ratio.cost_a),
        f"Cost in {letter}": lambda ratio: _cost(ratio.cost_b),
        f"{letter} / A [95 % interval]": _ratio,
    }
    caption = say("compare.costs", letter=letter)
    return view.table_of(caption, pair.costs, columns, words=2, group=True)


def _cost(ratio: float | None) -> str:
    return words.NOTHING if ratio is None else words.percent(ratio)


def _ratio(ratio: Ratio) -> str:
    return words.ratio(ratio) + f" ({words.NO_INTERVAL})" * (ratio.low is None)
