"""What several sessions say, on one screen: a line a host on a terminal, else all lines by host."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from contract import names
from controller.progress import minutes

FALLBACK = (100, 24)


class View:
    """On a terminal the hosts' lines are redrawn in place; what is said otherwise stays above."""

    def __init__(self, stream: TextIO, hosts: Sequence[str]) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._width = max(map(len, hosts))
        self._now = dict.fromkeys(hosts, "starting")
        self._drawn = 0

    def say(self, sentence: str) -> None:
        """Something about all of them, which stays."""
        self._clear()
        self._stream.write(f"{names.printable(sentence)}\n")
        self._stream.flush()

    def line(self, host: str, text: str) -> None:
        """A line of one session: the host's only one on a terminal, until it has a status."""
        if self._live:
            self._now[host] = text
        else:
            self._stream.write(f"{host:<{self._width}} | {names.sentence(text)}\n")
            self._stream.flush()

    def status(self, host: str, found: Mapping[str, Any] | None) -> None:
        """The session's own status, if it keeps one now."""
        if found is not None and self._live:
            self._now[host] = compact(found)

    def draw(self) -> None:
        """Redraw; nothing where the stream is no terminal."""
        if not self._live:
            return
        self._clear()
        columns = shutil.get_terminal_size(FALLBACK).columns - 1
        for host, text in self._now.items():
            shown = "".join(c if c.isprintable() else " " for c in f"{host:<{self._width}}  {text}")
            cut = shown if len(shown) <= columns else f"{shown[: columns - 1]}…"
            self._stream.write(f"{cut}\n")
        self._stream.flush()
        self._drawn = len(self._now)

    def _clear(self) -> None:
        if self._drawn:
            self._stream.write(f"\x1b[{self._drawn}F\x1b[J")
            self._drawn = 0


def compact(found: Mapping[str, Any]) -> str:
    """A status (`fde-status/1`) in one line; what a status does not say is left out."""
    parts = [str(found.get("state", "")).replace("-", " ")]
    if found.get("run_index"):
        parts = [
            f"block {found['block']}/{found['blocks']}",
            f"run {found['run_index']}/{found['runs']}",
            f"{found['configuration']} {found['workload']}: {parts[0]}",
        ]
    if found.get("waiting"):
        parts.append(f"waits: {found['waiting']}")
    parts += [f"{name} {watts:.1f} W" for name, watts in (found.get("watts") or {}).items()]
    parts += [f"{found[key]} {key}" for key in ("void", "skipped", "repeated") if found.get(key)]
    left_s = found.get("left_s")
    if left_s is not None:
        parts.append(f"{minutes(left_s)} left")
    return ", ".join(parts)
