"""Lines of code of the product, held against the limits of code_lines.toml: `make lint`.

Blank lines, comments and docstrings do not count. A limit is lowered by whoever makes the code
shorter, and is never raised.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

LIMITS = Path(__file__).with_suffix(".toml")
ROOMS = frozenset(
    {
        "agent",
        "analysis",
        "ansible",
        "contract",
        "controller",
        "fde_testbed",
        "instrumentation",
        "lab",
        "setup.py",
        "workloads",
    }
)
TEXTS = frozenset({".css", ".html", ".j2", ".js", ".sh", ".toml", ".txt", ".yaml", ".yml"})
# What a user writes, or what is built from elsewhere.
NOT_COUNTED = ("ansible/inventory/", "lab/kernel/", "workloads/suites/")
# Simulators that the lab starts; all others are for tests.
SIMULATORS = frozenset({"__init__.py", "base.py", "play.py", "smartpower3.py"})
SILENT = frozenset(
    {
        tokenize.COMMENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
        tokenize.INDENT,
        tokenize.NEWLINE,
        tokenize.NL,
    }
)


DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def python_lines(text: str) -> int:
    """Return the number of lines with a token that is neither a comment nor a docstring's."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            lines.difference_update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return len(lines)


def text_lines(text: str) -> int:
    """Return the number of lines that are neither blank nor a comment in one of the usual forms."""
    lines = (line.strip() for line in text.splitlines())
    return sum(bool(line) and not line.startswith(("#", "//", "{#", "/*", "*")) for line in lines)


def part_of(path: Path) -> str:
    """Return the part of the product that a file belongs to: core, text, or empty."""
    if (
        path.parts[0] not in ROOMS
        or "tests" in path.parts
        or path.as_posix().startswith(NOT_COUNTED)
    ):
        return ""
    if "simulators" in path.parts and path.name not in SIMULATORS:
        return ""
    if path.suffix == ".py":
        return "" if path.name in ("conftest.py", "notebook.py") else "core"
    return "text" if path.suffix in TEXTS and ".min." not in path.name else ""


def count(names: list[str]) -> Counter[str]:
    """Return the lines of the files by part; links are counted where they lead."""
    lines: Counter[str] = Counter()
    for path in map(Path, names):
        part = part_of(path)
        if part and path.is_file() and not path.is_symlink():
            text = path.read_text(encoding="utf-8")
            lines[part] += python_lines(text) if part == "core" else text_lines(text)
    return lines


def main() -> int:
    """Print the lines of each part; return 1 if one has more than its limit."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], text=True).split("\0")
    lines, limits = count(listed[:-1]), tomllib.loads(LIMITS.read_text(encoding="utf-8"))
    for part, limit in limits.items():
        print(f"{part}: {lines[part]} lines of code, at most {limit} allowed")
    return int(any(lines[part] > limit for part, limit in limits.items()))


if __name__ == "__main__":
    sys.exit(main())
