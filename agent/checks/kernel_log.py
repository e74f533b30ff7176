"""The kernel's log between two moments, without lines that are known to be harmless."""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agent.storage.devices import opened
from contract import system_text

ALLOWED = Path(__file__).with_name("kernel_log_allowed.txt")
GRAVE = Path(__file__).with_name("kernel_log_grave.txt")
WARNING = 4  # levels of syslog: 0 is an emergency, 7 is for debugging
_RECORD_BYTES = 8192  # no record of /dev/kmsg is longer
_SHOWN = 3


@dataclass(frozen=True)
class Line:
    """One record; `seq` rises by one from record to record of a boot."""

    seq: int
    level: int
    text: str


@dataclass(frozen=True)
class Pattern:
    """A regular expression that is searched in a line, and why it is on its list."""

    expression: re.Pattern[str]
    reason: str


def read(path: Path) -> list[Line] | None:
    """Read all records, the oldest first; None if they may not be read.

    The format is that of /dev/kmsg (Documentation/ABI/testing/dev-kmsg): a record a read.
    """
    chunks: list[bytes] = []
    with suppress(OSError), opened(path, os.O_RDONLY | os.O_NONBLOCK) as fd:
        while not chunks or chunks[-1]:
            try:
                chunks.append(os.read(fd, _RECORD_BYTES))
            except OSError as error:
                # A record was overwritten: the next read gives the oldest that is left.
                if error.errno != errno.EPIPE:
                    break
        return parse(system_text.decode(b"".join(chunks)))
    return None


def parse(text: str) -> list[Line]:
    """Parse records, `priority,seq,time,flags;message` each; a blank begins a continuation."""
    lines = []
    for line in text.splitlines():
        head, separator, message = line.partition(";")
        fields = head.split(",")
        if separator and len(fields) >= 3 and fields[0].isdigit() and fields[1].isdigit():
            lines.append(Line(int(fields[1]), int(fields[0]) & 7, message))
    return lines


def since(before: list[Line], current: list[Line]) -> list[Line]:
    """Return the records after the last one of `before`, of level warning and worse."""
    last = before[-1].seq if before else -1
    return [line for line in current if line.seq > last and line.level <= WARNING]


def grave(lines: list[Line]) -> list[Line]:
    """Return the lines that void a run."""
    return [line for line in lines if _matches(line, patterns(GRAVE))]


def suspicious(lines: list[Line]) -> list[Line]:
    """Return the lines that are neither grave nor allowed."""
    listed = (*patterns(GRAVE), *patterns(ALLOWED))
    return [line for line in lines if not _matches(line, listed)]


def show(lines: list[Line]) -> str:
    """Quote the first few different lines, for a message."""
    texts = list(dict.fromkeys(line.text.strip() for line in lines))
    suffix = f", and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(f"“{text}”" for text in texts[:_SHOWN]) + suffix


@cache
def patterns(path: Path) -> tuple[Pattern, ...]:
    """Parse a list of patterns, `expression  # reason` a line; # begins a comment."""
    listed = []
    for line in path.read_text(encoding="utf-8").splitlines():
        expression, _, reason = line.partition("  # ")
        if expression.strip() and not line.startswith("#"):
            listed.append(Pattern(re.compile(expression.strip()), reason.strip()))
    return tuple(listed)


def _matches(line: Line, listed: tuple[Pattern, ...]) -> bool:
    return any(pattern.expression.search(line.text) for pattern in listed)
