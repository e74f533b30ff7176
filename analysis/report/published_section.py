"""The section that compares published figures with ours."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.published import claims, reference
from analysis.published.claims import Claim, DecidedClaim, decide_claims
from analysis.published.compared_figures import (
    CLOSE,
    ComparedFigure,
    Verdict,
    compare_figures,
    count_verdicts,
    verdict_on,
)
from analysis.published.reference import Published, citations, published
from analysis.report import view, words
from analysis.report.texts import say
from analysis.report.view import Blocks, Fields
from analysis.report.words import count
from analysis.report.workload_section import joules
from analysis.stats.results import Results

DOUBT = "*"
FEW = 24  # rows that are shown one by one


def tables(results: Results, rows: Sequence[ComparedFigure]) -> Blocks:
    """Return a paper's figures one by one if they are few, else how many of them agree."""
    if len(rows) <= FEW:
        caption = f"{_quantities(rows).capitalize()}: published, and in this suite"
        return _table(results, caption, rows)
    by_place: dict[str, list[ComparedFigure]] = {}
    for row in rows:
        by_place.setdefault(row.published.place, []).append(row)
    summary = [(place, part, count_verdicts(part)) for place, part in by_place.items()]
    columns: Fields[tuple[str, list[ComparedFigure], dict[Verdict, int]]] = {
        "Where": lambda entry: entry[0],
        "What": lambda entry: _quantities(entry[1]),
        "Figures": lambda entry: str(len(entry[1])),
        "Ratios": lambda entry: str(sum(entry[2].values())),
        "Agree": lambda entry: str(entry[2]["agrees"]),
    }
    caption = "Published, and in this suite: how much agrees"
    return view.table_of(caption, summary, columns, words=2) + view.key("published.many")


def conditions(figure: Published) -> str:
    """Return the conditions of a figure, without the compared one."""
    size_bytes = figure.block_bytes or figure.size_bytes
    size = words.size(size_bytes) if size_bytes else ""
    parts = [figure.operation, figure.pattern, figure.file_type, size, figure.device]
    return ", ".join(part for part in parts if part)


def _quantities(rows: Sequence[ComparedFigure]) -> str:
    """Return the quantities of the rows, without a suffix for minimum or maximum."""
    bare = (row.published.quantity.removesuffix("_min").removesuffix("_max") for row in rows)
    return words.listed(list(dict.fromkeys(name.replace("_", " ") for name in bare)))


def _table(results: Results, caption: str, rows: Sequence[ComparedFigure]) -> Blocks:
    columns: Fields[ComparedFigure] = {
        "What": lambda row: f"{_title(row.published)} ({row.published.unit})",
        "Compared": lambda row: _compared(results, row),
        "Agreement": _agreement,
        "Ratio, published": lambda row: (
            "1"
            if row.is_baseline
            else words.number(row.published_ratio, 3) + DOUBT * row.published.doubtful
        ),
        "Ratio, here": lambda row: "1" if row.is_baseline else words.ratio(row.measured_ratio),
        "Published": lambda row: value(row.published),
        "Here": lambda row: words.plus_minus(row.measured),
        "Joules here": lambda row: (
            joules(row.joules, row.joules_per)
            if row.joules_per
            else words.plus_minus(row.joules, "J")
        ),
    }
    return view.table_of(caption, rows, columns, words=3, group=True)


def _agreement(row: ComparedFigure) -> str:
    """Return the verdict on a figure, or the conditions that keep it from any."""
    if not row.comparable:
        return f"not comparable: here {', '.join([*row.differs, *_stand_in(row)])}"
    return "" if row.is_baseline else verdict_on(row) or words.NOTHING


def _stand_in(row: ComparedFigure) -> list[str]:
    """Return the sizes here that replace the paper's, for people."""
    derived = any(part.unit == "derivations" for part in row.counterpart.parts)
    shown = [
        f"{words.grouped(number)} iterations" if derived else words.size(number)
        for number in row.stands_in
    ]
    return [f"of {', '.join(shown)}"] if shown else []


def _compared(results: Results, row: ComparedFigure) -> str:
    """Return the configuration if that is compared, else the algorithm, marked if it is unsafe."""
    if row.published.configuration:
        return results.suite.label(row.configuration)
    details = [row.counterpart.note]
    details += [results.suite.label(row.configuration)] if row.counterpart.configuration else []
    details += [row.entry] if row.entry != row.counterpart.workload else []
    details += [f"here {size}" for size in _stand_in(row) if row.comparable]
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
        inside = view.paragraph(" ".join(sentences(rows)))
        texts = [text for row in rows for text in (row.counterpart.member, row.published.software)]
        inside += tables(results, rows) + view.bullets(reference.reasons(texts))
        inside += view.key("published", citation=citation.text, doubt=DOUBT)
        title = say("published.title", paper=citation.short)
        page += view.folded(title, inside, anchor=f"paper-{citation.paper}")
    if not others:
        return page
    return page + view.paragraph(
        f"This suite measured nothing of {words.listed(others)}: docs/papers.md lists what would."
    )


KINDS: dict[claims.Verdict, str] = {  # by the verdict that has the same colour
    "supported": "equivalent",
    "contradicted": "differs",
    "agrees with the model": "equivalent",
    "disagrees with the model": "differs",
    "contradicted by the paper's own figures": "inconclusive",
    "open": "inconclusive",
    "not comparable": "inconclusive",
}


def _claims(results: Results) -> Blocks:
    """Return sentences of the papers with a verdict each; claims.csv has their ratios."""
    decided = decide_claims(results.suite, results.energy, results.family.events)
    if not decided:
        return ()
    verdicts = [claim.verdict for claim in decided]
    counts = [f"{verdicts.count(word)} “{word}”" for word in KINDS if word in verdicts]
    ratios = sum(len(claim.ratios) for claim in decided)
    claimed, tested_ratios = count(len(decided), "claim"), count(ratios, "ratio")
    page = view.paragraph(
        say("claims.key", claims=claimed, counts=words.listed(counts), ratios=tested_ratios)
    )
    claim_tables = view.join(
        _claim_table(citation.short, [c for c in decided if c.claim.paper == citation.paper])
        for citation in citations()
    )
    return page + view.folded(f"These {claimed} one by one", claim_tables, anchor="claims")


def _claim_table(paper: str, tested: Sequence[DecidedClaim]) -> Blocks:
    """Return a paper's claims, and where its own figures violate them."""
    columns: Fields[DecidedClaim] = {
        "Claim": lambda c: f"{c.claim.text}{_aside(c)}",
        "Paper": lambda c: _range([r.claimed.theirs for r in c.ratios]),
        "Here": lambda c: _range([r.interval.mean for r in c.ratios]),
        "Verdict": lambda c: view.Verdict(c.verdict, KINDS[c.verdict]),
    }
    page = view.table_of(f"{paper}: claims, tested here", tested, columns, words=4)
    return page + view.bullets([text for c in tested for text in own_figures(c.claim)])


def _aside(decided: DecidedClaim) -> str:
    """Return how many ratios of a claim are here, and the conditions that differ."""
    number, total = len(decided.ratios), len(decided.claim.ratios)
    asides = [f"{number} of {count(total, 'ratio')} here"] * (number < total)
    differs = dict.fromkeys(text for ratio in decided.ratios for text in ratio.differs)
    apart = number - len(decided.comparable)
    some = f", in {apart} of {count(number, 'ratio')}" if decided.comparable else ""
    asides += [f"here {', '.join(differs)}{some}"] * bool(differs)
    return f" ({'; '.join(asides)})" if asides else ""


def own_figures(claim: Claim) -> list[str]:
    """Return a sentence if the paper's own figures violate its claim."""
    violated = [ratio for ratio in claim.ratios if ratio.violated]
    if not violated:
        return []
    claimed = words.listed(list(dict.fromkeys(ratio.claimed for ratio in violated)))
    theirs = _range([ratio.theirs for ratio in violated])
    return [say("claims.own", theirs=theirs, claim=claim.text, claimed=claimed, place=claim.place)]


def _range(values: Sequence[float | None]) -> str:
    """Return the ratio, or the least and the largest; a dash without any."""
    ratios = [value for value in values if value]
    ends = [
        words.number(end(ratios), 2 if end(ratios) > 0.1 else None) for end in (min, max) if ratios
    ]
    return " to ".join(dict.fromkeys(ends)) or words.NOTHING


def sentences(rows: list[ComparedFigure]) -> list[str]:
    """Return sentences on how far a paper's figures agree with ours."""
    counts = count_verdicts(rows)
    apart = sum(not row.comparable for row in rows)
    other = [say("published.conditions", figures=count(apart, "figure"))] * bool(apart)
    if not any(counts.values()):
        return [say("published.no-ratio"), *other]
    parts = [f"{n} {MEANINGS[word][n > 1]}" for word, n in counts.items() if n]
    ratios = count(sum(counts.values()), "ratio")
    stated = say(
        "published.agreement", ratios=ratios, parts=words.listed(parts), factor=f"{CLOSE:g}"
    )
    if all(row.measured_ratio.low is None for row in rows if row.measured_ratio is not None):
        return [stated, say("published.one-block"), *other]
    return [stated, *other]


def value(figure: Published) -> str:
    """Return the figure as printed, with its ±, a mark of doubt, and its fitting reading."""
    half = f" ± {figure.printed_half}" if figure.printed_half else ""
    read = "" if figure.fitting is None else f" (read as {figure.fitting:g})"
    return f"{figure.printed}{half}{DOUBT if figure.doubtful else ''}{read}"
