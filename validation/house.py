"""`python -m validation.house`: how large the code is, and whether its imports point one way.

Product files are Python outside `tests/`; the core is what measures, steers and computes.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from lab.state import REPOSITORY
from validation.bench import Bench, Figure, at_most

CORE = ("contract", "instrumentation", "workloads", "agent", "analysis", "lab", "controller")
PACKAGES = (*CORE, "drive", "validation")
SMALL_LINES = 60


def measure(quick: bool) -> list[Figure]:  # noqa: ARG001  # every benchmark takes it
    """All figures; none takes long."""
    product = {path: (REPOSITORY / path).read_text(encoding="utf-8") for path in _files(PACKAGES)}
    core = [text for path, text in product.items() if path.parts[0] in CORE]
    named = {path: text for path, text in product.items() if path.name != "__init__.py"}
    small = [text for text in named.values() if _lines(text) < SMALL_LINES]
    tests = [
        (REPOSITORY / path).read_text(encoding="utf-8")
        for path in _files((*PACKAGES, "ansible"), tests=True)
    ]
    graph = {_module(path): set(_imports(path, text)) for path, text in product.items()}
    within = {name: imported & graph.keys() for name, imported in graph.items()}
    return [
        at_most("lines of the core", sum(map(_lines, core)), "lines", 42_000),
        at_most("lines without tests", sum(map(_lines, product.values())), "lines", 54_000),
        at_most("product files", len(named), "files", 360),
        at_most(f"product files under {SMALL_LINES} lines", len(small), "files", 40),
        at_most("lines of tests", sum(map(_lines, tests)), "lines", 38_600),
        at_most("files of an example meter", _modules("fde-meter-tally"), "files", 1),
        at_most("files of an example storage kind", _modules("fde-storage-null"), "files", 1),
        at_most("modules in circles of imports", len(in_circles(within)), "modules", 0),
    ]


def _modules(example: str) -> int:
    """Return what an addition is made of; nothing of the tree is touched (validation/tests)."""
    return len(list((REPOSITORY / "examples" / example).rglob("*.py")))


def in_circles(graph: Mapping[str, set[str]]) -> set[str]:
    """Modules that import themselves by way of others."""
    return {name for name in graph if name in _reached(graph, name)}


def _reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    ahead = list(graph[start])
    while ahead:
        if (name := ahead.pop()) not in reached:
            reached.add(name)
            ahead += graph[name]
    return reached


def _files(packages: tuple[str, ...], *, tests: bool = False) -> Iterator[Path]:
    for package in packages:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            relative = path.relative_to(REPOSITORY)
            if ("tests" in relative.parts) == tests and "build" not in relative.parts:
                yield relative


def _lines(text: str) -> int:
    return text.count("\n")


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _imports(path: Path, text: str) -> Iterator[str]:
    """Yield what is imported as the module is: neither for types alone nor within a function."""
    for node in ast.parse(text, str(path)).body:
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                known = REPOSITORY.joinpath(*inner.split("."))
                module = known.with_suffix(".py").exists() or (known / "__init__.py").exists()
                yield inner if module else node.module


if __name__ == "__main__":
    sys.exit(Bench("house", "validation", ("house",), "none: the source as it stands").main())
