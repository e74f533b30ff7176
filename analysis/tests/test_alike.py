"""What counts as the same figure, in every document alike."""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl
import pytest

from analysis.stats import alike

SAME, OTHER = 1 + 1e-12, 1 + 1e-8


def table(value: float | None) -> pl.DataFrame:
    return pl.DataFrame({"name": ["a", "b"], "value": [2.0, value]})


@pytest.mark.parametrize("kind", ["table", "csv"])
@pytest.mark.parametrize(
    ("kept", "made", "far"),
    [
        (3.0, 3.0, False),
        (3.0 * SAME, 3.0, False),
        (3.0 * OTHER, 3.0, True),
        (-3.0, 3.0, True),
        (1e-17, -1e-17, False),  # what is left of a difference that is 0
        (1e-6, 0.0, True),
        (3.0, None, True),
        (None, 3.0, True),
        (None, None, False),
    ],
)
def test_one_rule_holds_for_all_tables(
    kind: str, kept: float | None, made: float | None, far: bool
) -> None:
    if kind == "table":
        distance_of_copies = alike.table_distance(
            *(pl.DataFrame({"value": [value]}, {"value": pl.Float64}) for value in (kept, made))
        )
    else:
        distance_of_copies = alike.csv_distance(
            *(table(value).write_csv().encode() for value in (kept, made))
        )
    assert (distance_of_copies > alike.ROUNDING) == far
    assert distance_of_copies > 0 or kept == made


def test_tables_of_other_names_rows_or_columns_are_others() -> None:
    assert alike.table_distance(table(1.0), table(1.0).rename({"value": "v"})) == math.inf
    assert alike.table_distance(table(1.0), table(1.0).head(1)) == math.inf
    renamed = table(1.0).with_columns(name=pl.Series(["a", "c"]))
    assert alike.table_distance(table(1.0), renamed) == math.inf
    nan = table(math.nan)
    assert alike.table_distance(nan, nan) == 0.0
    assert alike.table_distance(nan, table(1.0)) == math.inf


def test_no_more_of_a_table_is_read_than_shows_that_it_is_another(tmp_path: Path) -> None:
    """A few KB of Parquet can hold more than memory does."""
    path, made = tmp_path / "table.parquet", pl.DataFrame({"energy_j": [1.0, 2.0]})
    made.write_parquet(path)
    assert alike.read_table(path, made).equals(made)
    pl.select(energy_j=pl.repeat(1.0, 100_000)).write_parquet(path)
    assert len(alike.read_table(path, made)) == 3
    pl.select(energy_j=pl.repeat("x", 100_000)).write_parquet(path)
    other = alike.read_table(path, made)
    assert len(other) == 0 and math.isinf(alike.table_distance(other, made))
