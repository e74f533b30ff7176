"""One line on a terminal that is drawn again and again while a meter is recorded."""

from __future__ import annotations

import contextlib
import shutil
from typing import TextIO

from instrumentation.recorder_status import Status

_TO_START_OF_LINE, _CLEAR_REST = "\r", "\x1b[K"


def text(status: Status) -> str:
    """State, watts by channel, records per second of those that are due, gaps and faults."""
    watts = "  ".join(f"{name} {power_w:.2f} W" for name, power_w in status.watts.items())
    words = [
        f"{status.name} {status.state}",
        watts or "no power known",
        f"{status.rate_hz:.4g}/{status.due_hz:.4g} Hz",
        f"{status.gaps} gaps {status.faults} faults",
    ]
    return " | ".join(words)


class LiveLine:
    """Draws the line on `terminal`, cut to its width."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal

    def show(self, status: Status) -> None:
        """Draw it again."""
        width = shutil.get_terminal_size().columns - 1
        self._write(_TO_START_OF_LINE + text(status)[:width] + _CLEAR_REST)

    def clear(self) -> None:
        """Leave an empty line for what is said next."""
        self._write(_TO_START_OF_LINE + _CLEAR_REST)

    def _write(self, drawn: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a closed terminal ends no recording
            self._terminal.write(drawn)
            self._terminal.flush()
