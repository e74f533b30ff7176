"""Compare figures that were derived twice.

Other versions of NumPy and SciPy, and other processors, sum in another order and have other
exponentials and quantiles: up to 3e-12 of a figure has been observed.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import polars.selectors as cs

from contract.files import for_polars

ROUNDING = 1e-9
"""Largest difference of equal figures, as a share of the larger one."""
_ABSOLUTE = 1e-12  # largest difference, in the unit, between figures whose true value is 0


def csv_distance(stored: bytes, derived: bytes) -> float:
    """Return `table_distance` of two CSV files. Raises ValueError, PolarsError."""
    if stored == derived:
        return 0.0
    contents = (stored, derived)
    return table_distance(
        *(pl.read_csv(io.BytesIO(content), infer_schema_length=None) for content in contents)
    )


def read_table(path: Path, derived: pl.DataFrame) -> pl.DataFrame:
    """Read no more of the table in a Parquet file than a comparison with `derived` needs.

    A file of some KB can hold more rows or columns than memory does. Raises OSError, PolarsError.
    """
    table = pl.scan_parquet(for_polars(path))
    rows = len(derived) + 1 if table.collect_schema() == derived.schema else 0
    return table.head(rows).collect()


def table_distance(stored: pl.DataFrame, derived: pl.DataFrame) -> float:
    """Return the largest difference between figures in the same place of two tables.

    It is a share of the larger figure, infinite if anything but figures differs.
    """
    return max((distance for _, distance in column_distances(stored, derived)), default=0.0)


def column_distances(stored: pl.DataFrame, derived: pl.DataFrame) -> Iterator[tuple[str, float]]:
    """Yield `table_distance` of each column; for other columns or rows only ("", infinity)."""
    if stored.schema != derived.schema or len(stored) != len(derived):
        yield "", math.inf
        return
    figures = set(stored.select(cs.float()).columns)
    for name in stored.columns:
        if name in figures:
            yield name, _series_distance(stored[name], derived[name])
        else:
            yield name, 0.0 if stored[name].equals(derived[name]) else math.inf


def _series_distance(stored: pl.Series, derived: pl.Series) -> float:
    if not stored.is_null().equals(derived.is_null()):
        return math.inf
    a, b = pl.col("a"), pl.col("b")
    unequal = pl.DataFrame({"a": stored, "b": derived}).filter(a != b)  # NaN equals NaN
    if unequal.is_empty():
        return 0.0
    size = pl.max_horizontal(a.abs(), b.abs()) + _ABSOLUTE / ROUNDING
    finite = a.is_finite() & b.is_finite()
    largest = pl.when(finite.all()).then(((a - b).abs() / size).max()).otherwise(math.inf)
    return float(unequal.select(largest).item())
