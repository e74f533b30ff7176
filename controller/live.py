"""The live view of a terminal, from the document of status.json: a few lines, redrawn in place."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, TextIO

from controller.progress import counted, minutes

LABEL = 9
BAR = 24
UP_AND_CLEAR = "\x1b[{}F\x1b[J"
# Told where the terminal says no size.
FALLBACK = (80, 24)


class Screen:
    """Draws the view over the one before; what others print in between is overwritten."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._drawn = 0

    def show(self, found: Mapping[str, Any]) -> None:
        """Draw the document; no line is wider than the terminal."""
        width = shutil.get_terminal_size(FALLBACK).columns
        shown = [cut(line, width - 1) for line in lines(found)]
        back = UP_AND_CLEAR.format(self._drawn) if self._drawn else ""
        self._stream.write(back + "\n".join(shown) + "\n")
        self._stream.flush()
        self._drawn = len(shown)


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The view, line by line; the same for every width."""
    yield f"suite {found['suite_id']}"
    done, runs = found["finished"], found["runs"]
    share = done / runs if runs else 0.0
    bar = "#" * round(share * BAR)
    yield _row("done", f"[{bar:-<{BAR}}] {share:4.0%}  {done} of {runs} runs")
    yield _row("now", now(found))
    yield _row("left", left(found))
    yield _row("watts", "  ".join(f"{k} {v:.2f} W" for k, v in found["watts"].items()) or "none")
    yield _row("gaps", "  ".join(f"{k} {v}" for k, v in found["gaps"].items()) or "none")
    yield _row("runs", counted(found))
    yield _row("waiting", found["waiting"] or "for nothing")
    for event in found["events"]:
        yield f"  {clock(event['wall'])}  {event['text']}"


def now(found: Mapping[str, Any]) -> str:
    """Block, run, what it is, and its state for how long."""
    state = f"{found['state'].replace('-', ' ')} for {minutes(found['since_s'])}"
    if found["run_index"] is None:
        return state
    where = f"block {found['block']}/{found['blocks']}, run {found['run_index']}/{found['runs']}"
    return f"{where}, {found['configuration']} {found['workload']}, {state}"


def left(found: Mapping[str, Any]) -> str:
    """Time left and when that will be, by this machine's time zone."""
    if found["left_s"] is None:
        return "not known before the first run has finished"
    return f"{minutes(found['left_s'])}, until {clock(found['ends_wall'])}"


def clock(wall: str) -> str:
    """Hours, minutes and seconds here, of a time in UTC."""
    return datetime.fromisoformat(wall).astimezone().strftime("%H:%M:%S")


def cut(line: str, width: int) -> str:
    """At most so many characters, and no control characters that would move the cursor."""
    clean = "".join(c if c.isprintable() else " " for c in line)
    return clean if len(clean) <= width else clean[: max(0, width - 1)] + "…"


def _row(label: str, text: str) -> str:
    return f"  {label:<{LABEL}}{text}"
