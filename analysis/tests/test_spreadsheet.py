"""CSV files that are opened in a spreadsheet: a name in them is no formula."""

from __future__ import annotations

import csv
from pathlib import Path

import polars as pl
import pytest

from analysis.report import build
from analysis.spreadsheet import cell, csv_bytes
from validation.synthetic.suite import Options, write_suite

FORMULAS = ["=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "－1"]
TEXTS = ["", "-", "plain", "a=b", "1", " x", "'=1"]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_is_led_by_an_apostrophe(text: str) -> None:
    assert cell(text) == f"'{text}"
    table = pl.DataFrame({"name": [text], "value": [-1.5]})
    assert pl.read_csv(csv_bytes(table)).rows() == [(f"'{text}", -1.5)]


@pytest.mark.parametrize("text", TEXTS)
def test_other_texts_and_numbers_stay(text: str) -> None:
    table = pl.DataFrame({"name": [text], "kind": pl.Series([text], dtype=pl.Categorical)})
    assert cell(text) == text and csv_bytes(table) == table.write_csv().encode()


def test_no_table_of_a_suite_has_a_formula(tmp_path: Path) -> None:
    folder = tmp_path / "synthetic-x-20260101T000000Z"
    accuracy = {"relative_limit": 0.03, "absolute_limit_w": 0.0, "source": "=HYPERLINK(A1)"}
    write_suite(
        folder, Options(blocks=2, interval_ms=100, workloads=("idle",), host="x", accuracy=accuracy)
    )
    build.build(folder)
    cells = [
        text
        for path in sorted(folder.glob("*.csv"))
        for row in csv.reader(path.read_text(encoding="utf-8").splitlines())
        for text in row
    ]
    assert "'=HYPERLINK(A1)" in cells
    assert not [text for text in cells if text.startswith(("=", "+", "@"))]
