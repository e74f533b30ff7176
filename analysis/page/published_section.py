"""The section on what was published: beside ours where both exist, and the rest folded."""

from __future__ import annotations

from analysis import words
from analysis.page import markup, published_tables
from analysis.page.markup import Html
from analysis.published import paper
from analysis.published.beside import Beside, beside
from analysis.published.reference import Citation, Published, citations, published
from analysis.results import Results

BESIDE = ("What", "Configuration", "Ratio, published", "Ratio, here", "Published", "Here")


def published_section(found: Results) -> Html:
    """Every paper that this suite touches, the sums of its own paper, then the other papers."""
    touched, others = markup.EMPTY, markup.EMPTY
    for citation in citations():
        rows = beside(found.suite, found.energy, published(citation.paper))
        if rows:
            touched += _touched(found, citation, rows)
        else:
            others += _folded(citation)
    page = touched + _arithmetic()
    if others.text:
        page += markup.heading("The other papers" if touched.text else "The papers", 3)
        page += markup.paragraph(
            "This suite measured nothing of them. Their figures are folded here as printed, in the "
            f"HTML page only; one with {published_tables.DOUBT} is doubtful, and the reason stands "
            "below its table.",
            "key",
        )
    return page + others


def _touched(found: Results, citation: Citation, rows: list[Beside]) -> Html:
    figures = published(citation.paper)
    page = markup.heading(citation.short, 3)
    page += markup.paragraph(
        f"{citation.text}. Sizes, drive and machine may differ, and a phase may hold several files "
        "of the paper's, so only the ratios to the baseline can be compared. Nothing was read "
        f"off the paper's pictures. A figure with {published_tables.DOUBT} is doubtful.",
        "key",
    )
    for origin in dict.fromkeys(row.origin for row in rows):
        part = [row for row in rows if row.origin == origin]
        page += markup.table(
            f"{_quantities(part).capitalize()}: published, and in this suite",
            BESIDE,
            [_beside_row(found, row) for row in part],
            words=2,
            origin=origin,
            group=True,
        )
    page += published_tables.doubts(figures)
    return page + markup.folded(
        f"All {len(figures)} figures of {citation.short}",
        published_tables.tables(figures),
        "screen",
    )


def _quantities(rows: list[Beside]) -> str:
    return " and ".join(dict.fromkeys(row.published.quantity for row in rows))


def _beside_row(found: Results, row: Beside) -> list[str]:
    p = row.published
    mark = published_tables.DOUBT if p.doubtful else ""
    return [
        f"{_titled(p)} ({p.unit})",
        found.suite.label(row.configuration),
        "1" if row.is_baseline else words.number(row.published_ratio, 3) + mark,
        "1" if row.is_baseline else words.ratio(row.measured_ratio),
        published_tables.value(p),
        words.plus_minus(row.measured),
    ]


def _titled(figure: Published) -> str:
    named = words.name_of(figure.entry)
    return words.name_of(figure.workload) if named == figure.entry else named


def _arithmetic() -> Html:
    citation = next(c for c in citations() if c.paper == paper.PAPER)
    return markup.table(
        f"The sums of {citation.short}, made again from its numbers by the code of this report",
        ["What, and from what", "Published", "Made again"],
        [
            [_sum_of(s), s.published, f"{words.rounded(s.computed)} {s.unit}"]
            for s in paper.arithmetic()
        ],
    )


def _sum_of(one: paper.Arithmetic) -> str:
    name = published_tables.configuration_name(one.configuration)
    what = f"{one.what}, {name}" if name else one.what
    return f"{what} ({one.inputs})"


def _folded(citation: Citation) -> Html:
    figures: list[Published] = published(citation.paper)
    doubtful = sum(p.doubtful for p in figures)
    remark = f" {citation.note}." if citation.note else ""
    body = markup.paragraph(f"{citation.text}.{remark}", "key")
    body += published_tables.tables(figures) + published_tables.doubts(figures)
    title = f"{citation.short}: {citation.title} ({len(figures)} figures, {doubtful} doubtful)"
    if citation.title.startswith(citation.short):
        title = f"{citation.title} ({len(figures)} figures, {doubtful} doubtful)"
    return markup.folded(title, body, "screen")
