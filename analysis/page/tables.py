"""The headline table: the same rows for the page and, as aligned text, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from analysis import words
from analysis.inference.stats import Estimate
from analysis.results import Results

SYSTEM = "system"


def headline_rows(found: Results, components: Sequence[str]) -> list[list[str]]:
    """Workload, configuration, joules by component, seconds, n, ratio and verdict of the system.

    Where no meter saw the system, ratio and verdict are those of the first component there is.
    """
    rows = []
    judged = _judged(found, components)
    for workload in found.suite.workloads:
        for configuration in found.suite.configurations:
            part = found.summary.filter(
                (pl.col("workload") == workload) & (pl.col("configuration") == configuration)
            )
            if part.is_empty():
                rows.append(
                    [words.name_of(workload), words.name_of(configuration)]
                    + [words.NOTHING] * (len(components) + 1)
                    + ["0", "no finished run", ""]
                )
                continue
            by = {row["component"]: row for row in part.iter_rows(named=True)}
            lead = by.get(judged) or next(iter(by.values()))
            rows.append(
                [
                    words.name_of(workload),
                    words.name_of(configuration),
                    *(words.plus_minus(_estimate(by.get(c))) for c in components),
                    words.number(lead["mean_s"]),
                    str(lead["n"]),
                    "1" if configuration == "plain" else _ratio(by.get(judged)),
                    str(by[judged]["verdict"]) if judged in by else "",
                ]
            )
    return rows


def aligned(headers: Sequence[str], rows: Sequence[Sequence[str]], words_columns: int) -> str:
    """Plain text, the first columns flush left and the figures flush right."""
    lines = [list(headers), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headers))]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(
            cell.ljust(width) if i < words_columns else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(lines[0]), rule, *(line(row) for row in lines[1:])])


def headline_text(found: Results) -> str:
    """The headline table for a terminal."""
    components = (SYSTEM, "drive", "package-0")
    headers = ["workload", "configuration", "system J", "drive J", "CPU J (RAPL)", "s", "n"]
    rows = headline_rows(found, components)
    return aligned([*headers, "system / plain", "verdict"], rows, 2)


def _judged(found: Results, components: Sequence[str]) -> str:
    there = set(found.summary["component"])
    return next((c for c in components if c in there), SYSTEM)


def _estimate(row: dict[str, float] | None) -> Estimate | None:
    if row is None:
        return None
    return Estimate(int(row["n"]), row["mean_j"], row["ci_low_j"], row["ci_high_j"])


def _ratio(row: dict[str, float] | None) -> str:
    if row is None:
        return words.NOTHING
    text = words.ratio_of(row["ratio"], row["ratio_low"], row["ratio_high"])
    return f"{text} ({words.NO_INTERVAL})" if row["n"] < 2 and row["ratio"] is not None else text
