"""The section on what was published: beside ours where both exist, and the rest folded."""

from __future__ import annotations

from analysis.published import paper, unsafe
from analysis.published.agreement import CLOSE, Word, agreement
from analysis.published.beside import Beside, beside
from analysis.published.places import places
from analysis.published.reasons import reasons
from analysis.published.reference import Citation, Published, citations, published
from analysis.report import beside_tables, markup, published_tables, words
from analysis.report.answer import count
from analysis.report.markup import Html
from analysis.stats.results import Results

FEW_PLACES = 3  # more of one reason are told as from the first to the last
MEANINGS: dict[Word, tuple[str, str]] = {  # of one ratio, of several
    "agrees": ("agrees with the published one", "agree with the published one"),
    "same way, less": ("goes the same way, but less far", "go the same way, but less far"),
    "same way, more": ("goes the same way, and further", "go the same way, and further"),
    "other way": ("goes the other way", "go the other way"),
    "not settled": ("is not settled here", "are not settled here"),
}


def published_section(found: Results) -> Html:
    """Every paper that this suite touches, then the other papers."""
    touched, others = markup.EMPTY, markup.EMPTY
    for citation in citations():
        rows = beside(found.suite, found.energy, published(citation.paper))
        if rows:
            touched += _touched(found, citation, rows)
        else:
            others += _folded(citation)
    page = touched
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
    page = markup.heading(citation.short, 3, f"paper-{citation.paper}")
    page += markup.paragraph(
        f"{citation.text}. Sizes, drive and machine may differ, so only ratios within one table "
        "can be compared. Nothing was read off the paper's pictures. A figure with "
        f"{published_tables.DOUBT} is doubtful.",
        "key",
    )
    page += markup.paragraph(" ".join([*said(rows), *reasons(found.suite, rows)]))
    page += beside_tables.tables(found, rows)
    page += _arithmetic(citation)
    page += _unsafe(rows)
    page += _elsewhere(citation)
    page += published_tables.doubts(figures)
    return page + markup.folded(
        f"All {len(figures)} figures of {citation.short}",
        published_tables.tables(figures),
        "screen",
    )


def said(rows: list[Beside]) -> list[str]:
    """What agrees and what does not, in sentences that follow from the figures."""
    found = agreement(rows)
    if not found.ratios:
        return ["Of this paper there is no ratio here to hold beside a published one."]
    parts = [f"{n} {MEANINGS[word][n > 1]}" for word, n in found.words.items() if n]
    text = [
        f"Of {count(found.ratios, 'ratio')} that can be compared {_listed(parts)} (to agree is to "
        f"lie within a factor of {CLOSE:g}, or to have it in the interval)."
    ]
    if all(row.measured_ratio.low is None for row in rows if row.measured_ratio is not None):
        text.append("One block has no interval, so that little can be settled.")
    if found.pairs:
        text.append(
            f"Of {count(found.pairs, 'pair')} that are apart in both, {found.same_order} stand in "
            "the same order."
        )
    if found.furthest is not None and found.words["agrees"] < found.ratios:
        text.append(_furthest(found.furthest))
    return text


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _furthest(row: Beside) -> str:
    both = row.cost_ratios
    if both is None:
        return ""
    spent = "joules" if row.here.column == "energy_j" else "time"
    where = beside_tables.conditions(row.published)
    what = f"{row.published.place}, {where}" if where else row.published.place
    return (
        f"Furthest apart: {row.here.member} against {row.against} ({what}): "
        f"{words.rounded(both[0])} times the {spent} there, {words.rounded(both[1].ratio)} times "
        "here."
    )


def _unsafe(rows: list[Beside]) -> Html:
    """What of the paper's is unsafe today, a line each."""
    texts = [text for row in rows for text in (row.here.member, row.published.software)]
    return markup.bullets(unsafe.reasons(texts))


def _elsewhere(citation: Citation) -> Html:
    """What of the paper has nothing of ours beside it or is done otherwise here, and why."""
    by: dict[str, list[str]] = {}
    for place in places(citation.paper):
        if place.why:
            by.setdefault(place.why, []).append(place.place)
    return markup.folded(
        f"What of {citation.short} is not here or done otherwise, and why",
        markup.bullets(f"{_places(names)}: {why}" for why, names in by.items()),
    )


def _places(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= FEW_PLACES else f"{names[0]} to {names[-1]}"


def _arithmetic(citation: Citation) -> Html:
    """The sums of the paper that has some."""
    if citation.paper != paper.PAPER:
        return markup.EMPTY
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
    body += _arithmetic(citation)
    title = f"{citation.short}: {citation.title} ({len(figures)} figures, {doubtful} doubtful)"
    if citation.title.startswith(citation.short):
        title = f"{citation.title} ({len(figures)} figures, {doubtful} doubtful)"
    return markup.folded(title, body, "screen")
