"""CSV that a spreadsheet shows and never computes: no cell of a stranger's is a formula."""

from __future__ import annotations

import re

import polars as pl

# What spreadsheets take for the beginning of a formula, wide forms too; a minus alone is none.
_FORMULA = r"^(?:[=+@\t\r\n＝＋＠－]|-.)"


def cell(text: str) -> str:
    """Return a text that is none, led by an apostrophe where it would be a formula."""
    return f"'{text}" if re.match(_FORMULA, text) else text


def csv_bytes(frame: pl.DataFrame) -> bytes:
    """Return a table as CSV, its texts as `cell` gives them; numbers stay as they are."""
    texts = pl.col(pl.String, pl.Categorical).cast(pl.String)
    led = pl.when(texts.str.contains(_FORMULA)).then(pl.lit("'") + texts).otherwise(texts)
    return frame.with_columns(led.name.keep()).write_csv().encode()
