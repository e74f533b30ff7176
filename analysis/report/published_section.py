"""The section that compares published figures with ours."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.published import claims, reference
from analysis.published.claims import DecidedClaim, DecidedRatio, decide_claims
from analysis.published.compared_figures import (
    CLOSE,
    Agreement,
    ComparedFigure,
    Verdict,
    compare_figures,
    count_agreement,
    verdict_on,
)
from analysis.published.reference import Published, citations, published
from analysis.report import view, words
from analysis.report.texts import say
from analysis.report.view import Blocks, Fields
from analysis.report.words import count
from analysis.report.workload_section import joules
from analysis.stats.results import Results
from analysis.stats.summary import joint_origin
from analysis.suite.records import MEASURED
from contract.estimates import ends

DOUBT = "*"
FEW = 24  # rows that are shown at once; more are folded


def tables(results: Results, rows: Sequence[ComparedFigure]) -> Blocks:
    """Return a paper's figures: one table if they are few, else a summary and folded tables."""
    if len(rows) <= FEW:
        return view.join(
            _table(results, f"{_quantities(part).capitalize()}: published, and in this suite", part)
            for part in _by_origin(rows)
        )
    by_place: dict[str, list[ComparedFigure]] = {}
    for row in rows:
        by_place.setdefault(row.published.place, []).append(row)
    summary = [(place, part, count_agreement(part)) for place, part in by_place.items()]
    columns: Fields[tuple[str, list[ComparedFigure], Agreement]] = {
        "Where": lambda entry: entry[0],
        "What": lambda entry: _quantities(entry[1]),
        "Figures": lambda entry: str(len(entry[1])),
        "Ratios": lambda entry: str(entry[2].ratios),
        "Agree": lambda entry: str(entry[2].words["agrees"]),
        "Pairs in the same order": lambda entry: (
            f"{entry[2].same_order} of {entry[2].pairs}" if entry[2].pairs else words.NOTHING
        ),
    }
    caption = "Published, and in this suite: how much agrees"
    page = view.table_of(caption, summary, columns, words=2)
    every = view.join(
        _table(results, f"{place}: published, and in this suite", same)
        for place, part in by_place.items()
        for same in _by_origin(part)
    )
    return page + view.folded(f"These {len(rows)} figures one by one", every, screen_only=True)


def conditions(figure: Published) -> str:
    """Return the conditions of a figure, without the compared one."""
    size_bytes = figure.block_bytes or figure.size_bytes
    size = words.size(size_bytes) if size_bytes else ""
    parts = [figure.operation, figure.pattern, figure.file_type, size, figure.device]
    return ", ".join(part for part in parts if part)


def _by_origin(rows: Sequence[ComparedFigure]) -> list[list[ComparedFigure]]:
    origins = dict.fromkeys(row.origin for row in rows)
    return [[row for row in rows if row.origin == origin] for origin in origins]


def _quantities(rows: Sequence[ComparedFigure]) -> str:
    """Return the quantities of the rows, without a suffix for minimum or maximum."""
    bare = (row.published.quantity.removesuffix("_min").removesuffix("_max") for row in rows)
    return words.listed(list(dict.fromkeys(name.replace("_", " ") for name in bare)))


def _table(results: Results, caption: str, rows: Sequence[ComparedFigure]) -> Blocks:
    modelled = joint_origin(results.energy)
    mark = f" ({modelled})" if modelled != MEASURED else ""
    columns: Fields[ComparedFigure] = {
        "What": lambda row: f"{_title(row.published)} ({row.published.unit})",
        "Compared": lambda row: _compared(results, row),
        "Ratio, published": lambda row: (
            "1"
            if row.is_baseline
            else words.number(row.published_ratio, 3) + DOUBT * row.published.doubtful
        ),
        "Ratio, here": lambda row: "1" if row.is_baseline else words.ratio(row.measured_ratio),
        "Agreement": lambda row: "" if row.is_baseline else verdict_on(row) or words.NOTHING,
        "Published": lambda row: value(row.published),
        "Here": lambda row: words.plus_minus(row.measured),
        f"Joules here{mark}": lambda row: (
            joules(row.joules, row.joules_per)
            if row.joules_per
            else words.plus_minus(row.joules, "J")
        ),
    }
    return view.table_of(caption, rows, columns, words=2, origin=rows[0].origin, group=True)


def _compared(results: Results, row: ComparedFigure) -> str:
    """Return the configuration if that is compared, else the algorithm, marked if it is unsafe."""
    if row.published.configuration:
        return results.suite.label(row.configuration)
    details = [row.counterpart.note]
    details += [results.suite.label(row.configuration)] if row.counterpart.configuration else []
    details += [row.entry] if row.entry != row.counterpart.workload else []
    if row.stands_in:
        derived = any(part.unit == "derivations" for part in row.counterpart.parts)
        shown = (
            f"{words.grouped(number)} iterations" if derived else words.size(number)
            for number in row.stands_in
        )
        details.append(f"here of {', '.join(shown)}")
    return ", ".join([reference.mark_unsafe(row.counterpart.member), *filter(None, details)])


def _title(figure: Published) -> str:
    name = words.name_of(figure.entry)
    if figure.workload:
        return words.name_of(figure.workload) if name == figure.entry else name
    return conditions(figure) or figure.quantity.replace("_", " ")


MEANINGS: dict[Verdict, tuple[str, str]] = {  # of one ratio, of several
    "agrees": ("agrees with the published one", "agree with the published one"),
    "same direction": ("has the same direction", "have the same direction"),
    "opposite": ("has the opposite direction", "have the opposite direction"),
    "inconclusive": ("is inconclusive here", "are inconclusive here"),
}


def published_section(results: Results) -> Blocks:
    """Return the claims, then every paper with figures in this suite; a line on the others."""
    page = _claims(results)
    others = []
    for citation in citations():
        rows = compare_figures(results.suite, results.energy, published(citation.paper))
        if not rows:
            others.append(citation.short)
            continue
        page += view.heading(citation.short, 3, f"paper-{citation.paper}")
        page += view.key("published", citation=citation.text, doubt=DOUBT)
        page += view.paragraph(" ".join(sentences(rows)))
        texts = [text for row in rows for text in (row.counterpart.member, row.published.software)]
        page += tables(results, rows) + view.bullets(reference.reasons(texts))
    if not others:
        return page
    return page + view.paragraph(
        f"This suite measured nothing of {words.listed(others)}: docs/papers.md lists what would."
    )


KINDS: dict[claims.Verdict, str] = {  # by the verdict that has the same colour
    "supported": "equivalent",
    "contradicted": "differs",
    "open": "inconclusive",
}


def _claims(results: Results) -> Blocks:
    """Sentences of the papers with a verdict each; the ratios that it rests on are folded."""
    decided = decide_claims(results.suite, results.energy, results.family.events)
    if not decided:
        return ()
    verdicts = [claim.verdict for claim in decided]
    counts = [f"{verdicts.count(word)} {word}" for word in KINDS if word in verdicts]
    ratios = sum(len(claim.ratios) for claim in decided)
    origin = joint_origin(results.energy)
    columns: Fields[DecidedClaim] = {
        "Claim": lambda c: (
            c.claim.text
            if c.has_all
            else f"{c.claim.text} ({len(c.ratios)} of {count(len(c.claim.ratios), 'ratio')} here)"
        ),
        "Paper": lambda c: _range([r.claimed.theirs for r in c.ratios]),
        "Here": lambda c: _range([r.interval.mean for r in c.ratios]),
        "Verdict": lambda c: view.Verdict(c.verdict, KINDS[c.verdict]),
    }
    ratio_columns: Fields[tuple[DecidedClaim, DecidedRatio]] = {
        "Claim": lambda row: f"{row[0].claim.text} ({row[0].claim.place})",
        "Ratio": lambda row: _compared_as_claimed(results, row[1]),
        "Claimed": lambda row: (
            f"{row[1].claimed.predicate} {row[1].claimed.percent:g} %".removesuffix(" 0 %")
        ),
        "Paper": lambda row: _range([row[1].claimed.theirs]),
        "Here": lambda row: words.ratio_of(*ends(row[1].interval)),
        "Verdict": lambda row: view.Verdict(row[1].verdict, KINDS[row[1].verdict]),
    }
    page = view.heading("What the papers claim", 3, "claims")
    claimed, tested_ratios = count(len(decided), "claim"), count(ratios, "ratio")
    page += view.paragraph(
        say("claims.key", claims=claimed, counts=words.listed(counts), ratios=tested_ratios)
    )
    ratio_tables: Blocks = ()
    for citation in citations():
        tested = [claim for claim in decided if claim.claim.paper == citation.paper]
        rows = [(claim, ratio) for claim in tested for ratio in claim.ratios]
        caption = f"{citation.short}: claims"
        page += view.table_of(f"{caption}, tested here", tested, columns, words=4, origin=origin)
        ratio_tables += view.table_of(
            f"{caption}, ratio by ratio", rows, ratio_columns, words=3, origin=origin, group=True
        )
    return page + view.folded(f"These {count(ratios, 'ratio')} one by one", ratio_tables)


def _range(values: Sequence[float | None]) -> str:
    """Return the ratio, or the least and the largest; a dash without any."""
    ratios = [value for value in values if value]
    ends = [
        words.number(end(ratios), 2 if end(ratios) > 0.1 else None) for end in (min, max) if ratios
    ]
    return " to ".join(dict.fromkeys(ends)) or words.NOTHING


def _compared_as_claimed(results: Results, ratio: DecidedRatio) -> str:
    """Return the quantity, the part of the machine, and the compared configurations."""
    claimed = ratio.claimed
    part = f"{claimed.component}, " if claimed.quantity in ("energy", "power") else ""
    sides = (results.suite.label(name) for name in (ratio.configuration, ratio.against))
    return f"{claimed.quantity}, {part}{claimed.what or ' against '.join(sides)}"


def sentences(rows: list[ComparedFigure]) -> list[str]:
    """Return sentences on how far a paper's figures agree with ours."""
    agreed = count_agreement(rows)
    if not agreed.ratios:
        return [say("published.no-ratio")]
    parts = [f"{n} {MEANINGS[word][n > 1]}" for word, n in agreed.words.items() if n]
    text = [
        say(
            "published.agreement",
            ratios=count(agreed.ratios, "ratio"),
            parts=words.listed(parts),
            factor=f"{CLOSE:g}",
            chance=f"{agreed.by_chance:.1f}",
        )
    ]
    if all(row.measured_ratio.low is None for row in rows if row.measured_ratio is not None):
        text.append(say("published.one-block"))
    if agreed.pairs:
        pairs = count(agreed.pairs, "pair")
        text.append(say("published.order", pairs=pairs, same=str(agreed.same_order)))
    return text


def value(figure: Published) -> str:
    """Return the figure as printed, with its ±, a mark of doubt, and its fitting reading."""
    half = f" ± {figure.printed_half}" if figure.printed_half else ""
    read = "" if figure.fitting is None else f" (read as {figure.fitting:g})"
    return f"{figure.printed}{half}{DOUBT if figure.doubtful else ''}{read}"
