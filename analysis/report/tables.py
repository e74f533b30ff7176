"""The headline table: the same rows for the page and, as aligned text, for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from analysis.report import words
from analysis.stats.results import Results
from analysis.stats.stats import LEVEL, Estimate
from analysis.suite.records import SYSTEM

# Most telling first; the sum of several packages comes before the first of them.
COMPONENTS = (SYSTEM, "drive", "package", "package-0", "dram")


def columns(summary: pl.DataFrame) -> tuple[str, ...]:
    """The components of the headline table: of several packages their sum."""
    left_out = "package-0" if "package" in set(summary["component"]) else "package"
    return tuple(component for component in COMPONENTS if component != left_out)


def headline_rows(found: Results, components: Sequence[str]) -> list[list[str]]:
    """Workload, configuration, joules by component, seconds, n, ratio and verdict of the system.

    Where no meter saw the system, ratio and verdict are those of the first component there is.
    """
    rows = []
    judged = judged_component(found.summary, components)
    for workload in found.suite.workloads:
        for configuration in found.suite.configurations:
            if (workload, configuration) not in found.suite.planned:
                continue
            part = found.summary.filter(
                (pl.col("workload") == workload) & (pl.col("configuration") == configuration)
            )
            if part.is_empty():
                rows.append(
                    [words.name_of(workload), found.suite.label(configuration)]
                    + [words.NOTHING] * (len(components) + 1)
                    + ["0", _why_none(found, workload), ""]
                )
                continue
            by = {row["component"]: row for row in part.iter_rows(named=True)}
            lead = by.get(judged) or next(iter(by.values()))
            rows.append(
                [
                    words.name_of(workload),
                    found.suite.label(configuration),
                    *(words.plus_minus(_estimate(by.get(c))) for c in components),
                    words.number(lead["mean_s"]),
                    str(lead["n"]),
                    "1" if configuration == found.suite.baseline else _ratio(by.get(judged)),
                    _verdict(by.get(judged)),
                ]
            )
    return rows


def _why_none(found: Results, workload: str) -> str:
    skipped = any(run.workload == workload for run in found.suite.skipped)
    return "skipped" if skipped else "no finished run"


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
    components = columns(found.summary)[:3]
    headers = ["workload", "configuration", "system J", "drive J", "CPU J (RAPL)", "s", "n"]
    rows = headline_rows(found, components)
    return aligned([*headers, "system / plain", "verdict"], rows, 2)


def judged_component(summary: pl.DataFrame, components: Sequence[str] = COMPONENTS) -> str:
    """What the verdicts are of: the whole system where a meter saw it, else the next there is."""
    there = set(summary["component"])
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


def yet(row: Mapping[str, Any]) -> bool:
    """Whether a row of the summary is equivalent and yet surely different."""
    p = row.get("p_holm")
    return row["verdict"] == "equivalent" and p is not None and p < LEVEL


def _verdict(row: Mapping[str, Any] | None) -> str:
    return "" if row is None else words.verdict(row["verdict"], row["ratio"], yet(row))
