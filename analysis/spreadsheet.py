"""CSV that a spreadsheet shows and never computes: no cell is a formula."""

from __future__ import annotations

import re

import polars as pl

# Beginnings of a formula in spreadsheets, wide forms too; a single minus is none.
_FORMULA = r"^(?:[=+@\t\r\n＝＋＠－]|-.)"


def cell(text: str) -> str:
    """Return a cell's text, with an apostrophe before it if it would be a formula."""
    return f"'{text}" if re.match(_FORMULA, text) else text


def csv_bytes(frame: pl.DataFrame) -> bytes:
    """Return a table as CSV, its texts escaped as by `cell`, its numbers unchanged."""
    texts = pl.col(pl.String, pl.Categorical).cast(pl.String)
    led = pl.when(texts.str.contains(_FORMULA)).then(pl.lit("'") + texts).otherwise(texts)
    return frame.with_columns(led.name.keep()).write_csv().encode()
