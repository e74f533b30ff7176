"""Which host program uses which method on which table, each with the tests that show it.

A test claims cells by `@pytest.mark.conformance(host, "Method Table", …)`, or "Method Table
refused" where the drive is right to refuse. While it runs, the drive's own record of calls is held
against the claims. `python -m drive.tests.conformance` prints the table.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent
MARKER = "conformance"
REFUSED = " refused"

HOSTS = {
    "initiator": "our own initiator",
    "ioctl": "kernel ioctls",
    "cryptsetup": "cryptsetup",
    "nvme": "nvme sed",
    "sedutil": "sedutil-cli",
}


@dataclass(frozen=True)
class Claim:
    """Test `test` shows that `host` uses `cell`, "Method Table" with or without "refused"."""

    host: str
    cell: str
    test: str


def claims_of(test: str, arguments: Sequence[object]) -> list[Claim]:
    """Return the claims of one marker; raises ValueError for a host or a cell that is none."""
    words = [word for word in arguments if isinstance(word, str)]
    if len(words) != len(arguments) or len(words) < 2 or words[0] not in HOSTS:
        raise ValueError(f"{test}: conformance takes one of {', '.join(HOSTS)}, then cells")
    for cell in words[1:]:
        if len(cell.removesuffix(REFUSED).split()) != 2:
            raise ValueError(f"{test}: {cell!r} is not of the form 'Method Table'")
    return [Claim(words[0], cell, test) for cell in words[1:]]


def collect(directory: Path = TESTS) -> list[Claim]:
    """All claims of the test modules in a directory, read without running them."""
    return [
        claim
        for path in sorted(directory.glob("test_*.py"))
        for test, arguments in _markers(path)
        for claim in claims_of(f"{path.stem}::{test}", arguments)
    ]


def _markers(path: Path) -> Iterator[tuple[str, list[object]]]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            for mark in node.decorator_list:
                match mark:
                    case ast.Call(func=ast.Attribute(attr=name), args=words) if name == MARKER:
                        yield node.name, [ast.literal_eval(word) for word in words]


Calls = Counter[tuple[str, str, bool]]


def count(record: Iterable[Mapping[str, Any]]) -> Calls:
    """Return a drive's record of calls, summed by method, table and whether they were refused."""
    calls: Calls = Counter()
    for row in record:
        calls[row["method"], row["table"], row["status"] != "SUCCESS"] += int(row["count"])
    return calls


def unproven(claims: Iterable[Claim], before: Calls, after: Calls) -> list[str]:
    """Cells that were claimed, yet the drive saw no such call between its two records."""
    calls = after - before
    return [claim.cell for claim in claims if not calls[_key(claim.cell)]]


def _key(cell: str) -> tuple[str, str, bool]:
    method, table = cell.removesuffix(REFUSED).split()
    return method, table, cell.endswith(REFUSED)


def render(claims: Sequence[Claim]) -> str:
    """Return the table in Markdown, and the numbered list of tests that its cells refer to."""
    tests = {test: number for number, test in enumerate(sorted({c.test for c in claims}), 1)}
    cells: dict[tuple[str, str], dict[str, set[tuple[bool, int]]]] = defaultdict(
        lambda: defaultdict(set)
    )
    for claim in claims:
        method, table, refused = _key(claim.cell)
        cells[method, table][claim.host].add((refused, tests[claim.test]))
    lines = ["| method | table | " + " | ".join(HOSTS.values()) + " |", "|---" * 7 + "|"]
    for (method, table), row in sorted(cells.items()):
        lines.append(f"| {method} | {table} | " + " | ".join(_cell(row[h]) for h in HOSTS) + " |")
    return "\n".join([*lines, "", *(f"{number}. `{test}`" for test, number in tests.items())])


def _cell(references: set[tuple[bool, int]]) -> str:
    """Numbers of tests; those of a refusal stand behind the others in brackets."""
    granted = [str(number) for refused, number in sorted(references) if not refused]
    denied = [f"({number})" for refused, number in sorted(references) if refused]
    return " ".join(granted + denied) or "–"


if __name__ == "__main__":
    print(render(collect()))
