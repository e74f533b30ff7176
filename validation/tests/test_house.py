from __future__ import annotations

import re

from lab.state import REPOSITORY
from validation import house


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert house.in_circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == {"b", "c"}


def test_no_imports_are_circular() -> None:
    figures = {figure.figure: figure.value for figure in house.measure(quick=True)}
    assert figures["modules in circles of imports"] == 0


def test_the_page_on_the_house_names_what_is_there() -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?)`", page))
    assert len(named) > 20
    assert [name for name in named if not (REPOSITORY / name).exists()] == []
