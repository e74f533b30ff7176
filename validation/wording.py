"""`python -m validation.wording [ROOM]`: count the names and sentences to be corrected.

Two kinds are counted by room: `names` of variables, arguments and functions that mean nothing, and
`sentences` with a word to avoid (not in tests). validation/wording.yml has the words,
validation/wording_left.yml the numbers of rooms that are not clean yet: a larger number fails.
Naming a room lists its findings; `--lower` writes the numbers that have fallen.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

import yaml

from lab.state import REPOSITORY

LEFT = Path(__file__).with_name("wording_left.yml")
WORDS = yaml.safe_load(Path(__file__).with_name("wording.yml").read_text(encoding="utf-8"))
SENTENCES = [(re.compile(pattern, re.I), advice) for pattern, advice in WORDS["sentences"].items()]
TEXTS = ("*.md", "*.j2", "*.html", "*wordings.toml")
Counts = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Finding:
    """A place to be corrected; `kind` is `names` or `sentences`."""

    kind: str
    path: str
    line: int
    message: str

    @property
    def room(self) -> str:
        """The first folder, with its tests apart; `.` for files at the root."""
        parts = PurePath(self.path).parts
        room = parts[0] if len(parts) > 1 else "."
        return f"{room}/tests" if "tests" in parts else room


def list_findings(root: Path) -> Iterator[Finding]:
    """List what the two lists of words find in the files that git tracks below `root`."""
    for path in _tracked(root, "*.py"):
        yield from check_python(path, (root / path).read_text(encoding="utf-8"))
    for path in _tracked(root, *TEXTS):
        yield from check_text(path, (root / path).read_text(encoding="utf-8"))


def _tracked(root: Path, *patterns: str) -> list[str]:
    argv = ["git", "ls-files", "-z", "--", *patterns]
    listing = subprocess.run(argv, cwd=root, capture_output=True, text=True, check=True).stdout
    return [path for path in listing.split("\0") if path and (root / path).exists()]


def check_python(path: str, text: str) -> Iterator[Finding]:
    """List a module's names and sentences; `path` is relative to the repository."""
    for node in ast.walk(ast.parse(text, path)):
        for name in _names(node):
            if name.strip("_") in WORDS["names"]:
                yield Finding("names", path, node.lineno, name)  # type: ignore[attr-defined]
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield from check_text(path, node.value, node.lineno)


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name


def check_text(path: str, text: str, first_line: int = 1) -> Iterator[Finding]:
    """List the words to avoid in a text, which begins at `first_line` of its file."""
    if "tests" in PurePath(path).parts or path == "CHANGELOG.md":
        return
    is_quoted = False
    for line, row in enumerate(text.splitlines(), start=first_line):
        is_quoted ^= row.startswith("```")  # what programs print
        for pattern, advice in SENTENCES:
            for match in [] if is_quoted else pattern.finditer(row):
                yield Finding("sentences", path, line, f"{match[0]} (write: {advice})")


def count_findings(findings: Sequence[Finding]) -> Counts:
    """Count findings by room and kind."""
    counts = Counter((finding.room, finding.kind) for finding in findings)
    return {
        room: {kind: n for (of_room, kind), n in sorted(counts.items()) if of_room == room}
        for room in sorted({room for room, _ in counts})
    }


def compare_counts(counts: Counts, allowed: Counts) -> tuple[list[str], Counts]:
    """Return a message for each count above its number, and the numbers lowered to the counts."""
    failures = [
        f"{room} has {n} {kind}, {allowed.get(room, {}).get(kind, 0)} allowed."
        f" Run python -m validation.wording {room}."
        for room, kinds in counts.items()
        for kind, n in kinds.items()
        if n > allowed.get(room, {}).get(kind, 0)
    ]
    lowered = {
        room: {
            kind: min(n, counts[room][kind])
            for kind, n in kinds.items()
            if counts.get(room, {}).get(kind)
        }
        for room, kinds in allowed.items()
    }
    return failures, {room: kinds for room, kinds in lowered.items() if kinds}


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 where a room has more findings than its number allows."""
    parser = argparse.ArgumentParser(prog="python -m validation.wording", description=__doc__)
    parser.add_argument("room", nargs="?", help="list the findings of this room, such as agent")
    parser.add_argument("--lower", action="store_true", help="write the numbers that have fallen")
    options = parser.parse_args(arguments)
    findings = list(list_findings(REPOSITORY))
    for finding in findings:
        if finding.room == options.room:
            print(f"{finding.path}:{finding.line}: {finding.kind}: {finding.message}")
    counts = count_findings(findings)
    allowed: Counts = yaml.safe_load(LEFT.read_text(encoding="utf-8")) or {}
    failures, lowered = compare_counts(counts, allowed)
    if options.lower:
        LEFT.write_text(yaml.safe_dump(lowered, sort_keys=True), encoding="utf-8")
    elif lowered != allowed:
        print("wording: counts have fallen; write them with python -m validation.wording --lower")
    for failure in failures:
        print(f"wording: {failure}", file=sys.stderr)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
