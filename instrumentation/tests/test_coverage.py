"""Test the declared table: machines, parts, sums and unknown quantities."""

from __future__ import annotations

import pytest

from instrumentation.sources import coverage

TABLE = coverage.table()


@pytest.mark.parametrize(
    ("name", "names", "covers"),
    [
        ("psys", ["psys", "package-0"], "platform"),
        ("psys", ["psys", "psys-1"], None),
        ("package-1", ["package-0", "package-1"], "part"),
        ("package-0-die-1/dram", [], "memory"),
        ("package-1/core", [], "core"),
        ("uncore", ["package-0", "uncore"], "core"),
        ("nct6775/power1", [], None),
    ],
)
def test_each_quantity_covers_its_category(name: str, names: list[str], covers: str | None) -> None:
    category = TABLE.category(name, names)
    assert (category.name if category else None) == covers


def test_categories_include_known_ones() -> None:
    for category in TABLE.categories.values():
        assert set(category.holds) <= set(TABLE.categories)
