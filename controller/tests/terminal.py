"""Run Python code on a real pseudo-terminal, and return the lines that it displays at the end."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping

from contract.places import ROOT

PARTS = re.compile(r"\x1b\[\??[\d;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+")


def run(
    code: str, *arguments: object, columns: int = 80, environment: Mapping[str, str] | None = None
) -> list[str]:
    """Return the lines on a terminal after the Python `code` has ended."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    inherited = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    with subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=follower,
        stdout=follower,
        env={**inherited, "PYTHONPATH": str(ROOT), "TERM": "xterm", **(environment or {})},
    ) as process:
        os.close(follower)
        out = b""
        try:
            while chunk := os.read(leader, 65536):
                out += chunk
        except OSError:
            pass  # the other side is closed
    os.close(leader)
    assert process.returncode == 0, out
    return displayed(out)


def displayed(out: bytes) -> list[str]:
    """Return the lines of a terminal after these bytes: lines, moves up, lines erased.

    Colours are ignored; any other control sequence is an error.
    """
    screen, row = [""], 0
    for part in PARTS.findall(out.decode()):
        if part == "\n":
            row += 1
            screen += [""] * (row + 1 - len(screen))
        elif part == "\x1b[2K":
            screen[row] = ""
        elif part.startswith("\x1b["):
            assert part.endswith(("A", "m", "?25h", "?25l")), part
            row -= int(part[2:-1] or 1) if part.endswith("A") else 0
        elif part != "\r":
            screen[row] += part
    return screen
