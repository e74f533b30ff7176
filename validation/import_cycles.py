"""List modules that import themselves through others, for which import-linter has no rule."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from lab.state import REPOSITORY

PACKAGES = (
    "contract",
    "instrumentation",
    "workloads",
    "agent",
    "analysis",
    "lab",
    "controller",
    "drive",
    "validation",
)


def read_graph() -> dict[str, set[str]]:
    """Read the imports of every module outside `tests/` from its source."""
    graph = {}
    for package in PACKAGES:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            relative = path.relative_to(REPOSITORY)
            if {"tests", "build"}.isdisjoint(relative.parts):
                module = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
                graph[module] = set(_imports(path))
    return {module: imported & graph.keys() for module, imported in graph.items()}


def in_cycles(graph: Mapping[str, set[str]]) -> set[str]:
    """Return the modules that import themselves through others."""
    return {module for module in graph if module in _reached(graph, module)}


def _reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    ahead = list(graph[start])
    while ahead:
        if (module := ahead.pop()) not in reached:
            reached.add(module)
            ahead += graph[module]
    return reached


def _imports(path: Path) -> Iterator[str]:
    """Yield the modules imported at run time with the module, not within a function."""
    for node in ast.parse(path.read_text(encoding="utf-8"), str(path)).body:
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                source = REPOSITORY.joinpath(*inner.split("."))
                is_module = source.with_suffix(".py").exists() or (source / "__init__.py").exists()
                yield inner if is_module else node.module
