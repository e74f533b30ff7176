from __future__ import annotations

import re

from lab.state import REPOSITORY
from validation.import_cycles import in_cycles, read_graph


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert in_cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == {"b", "c"}


def test_no_imports_are_circular() -> None:
    graph = read_graph()
    assert len(graph) > 300
    assert in_cycles(graph) == set()


def test_the_architecture_page_names_existing_paths() -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?)`", page))
    assert len(named) > 20
    assert [name for name in named if not (REPOSITORY / name).exists()] == []
