"""`sessions.jsonl`: when the controller's sessions began, and what those that ended took."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from contract import strict_json
from instrumentation.clock import boot_id, monotonic_ns

FILE = "sessions.jsonl"
NS = 1_000_000_000

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Begin:
    """A session's first line: by it a session that was killed is known."""

    begun_ns: int
    controller_boot_id: str

    @classmethod
    def now(cls, suite_dir: Path) -> Begin:
        """Write it down."""
        begin = cls(monotonic_ns(), boot_id())
        _append(suite_dir, vars(begin) | {"pid": os.getpid()})
        return begin

    def end(self, suite_dir: Path, seconds: Mapping[str, float]) -> None:
        """Write down what the session took: `wall_s`, and of it `start_s` and `fetch_s`."""
        _append(suite_dir, vars(self) | dict(seconds))


@dataclass
class Session:
    """`seconds` of a session that was killed are its `wall_s` alone, to its last clock reading."""

    seconds: dict[str, float] = field(default_factory=dict)
    killed: bool = False


def read(lines: Iterable[Line], clock: Sequence[Line]) -> list[Session]:
    """The sessions, oldest first. Lines without a beginning are of older suites."""
    found: dict[object, Session] = {}
    begins: list[Line] = []
    for number, line in enumerate(lines):
        key = (line["controller_boot_id"], line["begun_ns"]) if "begun_ns" in line else number
        if "wall_s" in line:  # the end of a session
            spent = {k: v for k, v in line.items() if k.endswith("_s")}
            found[key] = Session(spent)
        else:
            found[key] = Session(killed=True)
            begins.append(line)
    for begin, after in pairwise([*begins, None]):
        assert begin is not None
        session = found[begin["controller_boot_id"], begin["begun_ns"]]
        if session.killed:
            session.seconds = {"wall_s": _lived_s(begin, after, clock)}
    return list(found.values())


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Whole lines of a file of JSON lines; one that a power cut has torn is left out."""
    for line in (
        path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    ):
        try:
            found = strict_json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and all(_is_well(*entry) for entry in found.items()):
            yield found


def _is_well(key: str, value: Any) -> bool:
    """Whether a time is one, and a boot's id a word."""
    if key.endswith("_ns"):
        return type(value) is int
    if key.endswith("_s"):
        return type(value) in (int, float)
    return isinstance(value, str) or not key.endswith("boot_id")


def _lived_s(begin: Line, after: Line | None, clock: Sequence[Line]) -> float:
    """From a session's begin to its last clock reading; the next session's come later."""
    boot = begin["controller_boot_id"]
    same = after is not None and after["controller_boot_id"] == boot
    until = after["begun_ns"] if after is not None and same else None
    heard = [
        reading["t_receive_ns"]
        for reading in clock
        if reading.get("controller_boot_id") == boot
        and reading["t_receive_ns"] > begin["begun_ns"]
        and (until is None or reading["t_receive_ns"] < until)
    ]
    return (max(heard) - begin["begun_ns"]) / NS if heard else 0.0


def _append(suite_dir: Path, line: Line) -> None:
    with (suite_dir / FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
