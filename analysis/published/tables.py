"""Tables of the papers' claims and figures beside a suite's own, for programs and spreadsheets."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analysis.columns import schema
from analysis.published.claims import DecidedClaim, DecidedRatio, decide_claims
from analysis.published.compared_figures import ComparedFigure, compare_figures, verdict_on
from analysis.published.reference import citations, published
from analysis.spreadsheet import csv_bytes
from analysis.stats.results import Results
from contract.estimates import ends

CLAIMS = schema(
    "paper place claim verdict quantity component workload phases against_phases configuration "
    "against medium predicate threshold published:f n:i ratio:f ratio_low:f ratio_high:f "
    "ratio_verdict differs:l origin"
)
FIGURES = schema(
    "paper place subject operation quantity unit published:f fitting:f workload configuration "
    "ours:f ours_low:f ours_high:f joules:f joules_low:f joules_high:f joules_per "
    "published_ratio:f n:i ratio:f ratio_low:f ratio_high:f verdict differs:l origin"
)
NOT_COMPARABLE = "not comparable"


def claim_table(results: Results) -> pl.DataFrame:
    """Return a row for each ratio of the papers' claims that the suite has (data/README.md)."""
    decided = decide_claims(results.suite, results.energy, results.family.events)
    rows = [_claim_row(claim, ratio) for claim in decided for ratio in claim.ratios]
    return pl.DataFrame(rows, schema=CLAIMS, orient="row")


def csv_tables(results: Results) -> dict[str, bytes]:
    """Return both tables for spreadsheets by the names of their files; lists become texts."""
    tables = {"claims.csv": claim_table(results), "published.csv": figure_table(results)}
    differs = pl.col("differs").list.join("; ")
    return {name: csv_bytes(table.with_columns(differs)) for name, table in tables.items()}


def _claim_row(decided: DecidedClaim, ratio: DecidedRatio) -> tuple[object, ...]:
    claim, claimed, c = decided.claim, ratio.claimed, ratio.comparison
    texts = (" ".join(names) for names in (claimed.workload, claimed.phases))
    return (
        *(claim.paper, claim.place, claim.text, decided.verdict),
        *(claimed.quantity, claimed.component, *texts, " ".join(claimed.against_phases)),
        *(ratio.configuration, ratio.against, claimed.medium, claimed.claimed, claimed.threshold),
        *(claimed.theirs, c.n, *ends(ratio.interval), ratio.verdict),
        *(list(ratio.differs), ratio.origin),
    )


def figure_table(results: Results) -> pl.DataFrame:
    """Return a row for each published figure with a counterpart in the suite, in its unit."""
    return pl.DataFrame(list(_figure_rows(results)), schema=FIGURES, orient="row")


def _figure_rows(results: Results) -> Iterator[tuple[object, ...]]:
    for citation in citations():
        for row in compare_figures(results.suite, results.energy, published(citation.paper)):
            figure, c = row.published, row.measured_ratio
            ratio = (None,) * 4 if c is None else (c.n, c.ratio, c.low, c.high)
            yield (
                *(figure.paper, figure.place, figure.subject, figure.operation, figure.quantity),
                *(figure.unit, figure.value, figure.fitting, row.entry, row.configuration),
                *(*ends(row.measured), *ends(row.joules), row.joules_per),
                *(row.published_ratio, *ratio, _verdict(row), list(row.differs), row.origin),
            )


def _verdict(row: ComparedFigure) -> str:
    return (verdict_on(row) or "") if row.comparable else NOT_COMPARABLE
