"""When the controller's sessions began and what they took: sessions.jsonl."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from contract import strict_json
from instrumentation.clock import boot_id, monotonic_ns

NS = 1_000_000_000
SESSIONS = "sessions.jsonl"
Line = Mapping[str, Any]


@contextmanager
def recorded(suite_dir: Path, seconds: dict[str, float]) -> Iterator[None]:
    """Write a session's begin to sessions.jsonl, by which one that was killed is known, and at its
    end what it took: `wall_s`, and the `seconds` of its steps (`start_s`, `fetch_s`)."""
    begin = {"begun_ns": monotonic_ns(), "controller_boot_id": boot_id()}

    def append(line: Line) -> None:
        with (suite_dir / SESSIONS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    append({**begin, "pid": os.getpid()})
    try:
        with timed(seconds, "wall_s"):
            yield
    finally:
        append(begin | seconds)


@contextmanager
def timed(seconds: dict[str, float], key: str) -> Iterator[None]:
    """Add the seconds spent within."""
    start_ns = time.monotonic_ns()
    try:
        yield
    finally:
        seconds[key] = seconds.get(key, 0.0) + (time.monotonic_ns() - start_ns) / NS


@contextmanager
def cpu_timed(seconds: dict[str, float], *, less: bool = False) -> Iterator[None]:
    """Add what this process and those that it waited for within took of the processors
    (`controller_cpu_s`), and how long that was (`controller_cpu_wall_s`); with `less`, take that
    off again: it was before the first run, or after the last."""
    before = os.times()
    try:
        yield
    finally:
        took = [after - then for after, then in zip(os.times(), before, strict=True)]
        for key, value in (("controller_cpu_s", sum(took[:4])), ("controller_cpu_wall_s", took[4])):
            seconds[key] = seconds.get(key, 0.0) + (-value if less else value)


@dataclass
class Session:
    """`seconds` of a session that was killed are its `wall_s` alone, to its last clock reading."""

    seconds: dict[str, float] = field(default_factory=dict)
    killed: bool = False


def sessions_of(lines: Iterable[Line], clock: Sequence[Line]) -> list[Session]:
    """The sessions of sessions.jsonl, oldest first."""
    sessions: dict[object, Session] = {}
    begins: list[Line] = []
    for line in lines:
        key = (line["controller_boot_id"], line["begun_ns"])
        if "wall_s" in line:  # the end of a session
            sessions[key] = Session({k: v for k, v in line.items() if k.endswith("_s")})
        else:
            sessions[key] = Session(killed=True)
            begins.append(line)
    for begin, after in pairwise([*begins, None]):
        assert begin is not None
        session = sessions[begin["controller_boot_id"], begin["begun_ns"]]
        if session.killed:
            session.seconds = {"wall_s": _lived_s(begin, after, clock)}
    return list(sessions.values())


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Whole lines of a file of JSON lines; one that a power cut has torn is left out."""
    for line in (
        path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    ):
        try:
            document = strict_json.loads(line)
        except ValueError:
            continue
        if isinstance(document, dict) and all(_is_well(*entry) for entry in document.items()):
            yield document


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
