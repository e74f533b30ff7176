"""Schemas of tables, written as a line of text."""

from __future__ import annotations

import polars as pl

_KINDS: dict[str, pl.DataType] = {
    "": pl.String(),
    "i": pl.Int64(),
    "f": pl.Float64(),
    "b": pl.Boolean(),
    "l": pl.List(pl.String()),
}


def schema(columns: str) -> dict[str, pl.DataType]:
    """Parse the columns of a table: `name:kind name:kind`, without a kind for text."""
    parts = (column.partition(":") for column in columns.split())
    return {name: _KINDS[kind] for name, _, kind in parts}
