"""Whether figures that were made twice are the same.

Other versions of NumPy and SciPy, and other processors, sum in another order and have other
exponentials and quantiles: 3e-12 of a figure was seen.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import polars.selectors as cs

ROUNDING = 1e-9
"""Of the larger of two figures that are the same."""
_ABSOLUTE = 1e-12  # of the unit: what is left of a difference whose true value is 0


def csv_distance(kept: bytes, made: bytes) -> float:
    """`table_distance` of two files of CSV. Raises ValueError, PolarsError."""
    if kept == made:
        return 0.0
    tables = (
        pl.read_csv(io.BytesIO(content), infer_schema_length=None) for content in (kept, made)
    )
    return table_distance(*tables)


def read_table(path: Path, made: pl.DataFrame) -> pl.DataFrame:
    """Return as much of the table in a Parquet file as shows whether it is `made`.

    A file of some KB can hold more rows or columns than memory does. Raises OSError, PolarsError.
    """
    table = pl.scan_parquet(path)
    rows = len(made) + 1 if table.collect_schema() == made.schema else 0
    return table.head(rows).collect()


def table_distance(kept: pl.DataFrame, made: pl.DataFrame) -> float:
    """How far two tables' farthest figures are apart, row by row.

    It is a share of the larger; infinite where anything but figures differs.
    """
    return max((far for _, far in column_distances(kept, made)), default=0.0)


def column_distances(kept: pl.DataFrame, made: pl.DataFrame) -> Iterator[tuple[str, float]]:
    """`table_distance` of each column; of one that is empty where the tables have other columns."""
    if kept.schema != made.schema or len(kept) != len(made):
        yield "", math.inf
        return
    figures = set(kept.select(cs.float()).columns)
    for name in kept.columns:
        if name in figures:
            yield name, _farthest(kept[name], made[name])
        else:
            yield name, 0.0 if kept[name].equals(made[name]) else math.inf


def _farthest(kept: pl.Series, made: pl.Series) -> float:
    if not kept.is_null().equals(made.is_null()):
        return math.inf
    a, b = pl.col("a"), pl.col("b")  # where NaN is equal to NaN
    both = pl.DataFrame({"a": kept, "b": made}).filter(a != b)
    if both.is_empty():
        return 0.0
    size = pl.max_horizontal(a.abs(), b.abs()) + _ABSOLUTE / ROUNDING
    finite = a.is_finite() & b.is_finite()
    far = pl.when(finite.all()).then(((a - b).abs() / size).max()).otherwise(math.inf)
    return float(both.select(far).item())
