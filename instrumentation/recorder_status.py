"""The recorder's state: a small JSON file, replaced as a whole, and one line on a terminal."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from contract import files
from contract.documents import MeterFault, RecorderState, RecorderStatus
from contract.plan import MeterEntry
from instrumentation.clock import monotonic_ns
from instrumentation.meters.rows import ParseResult
from instrumentation.recorder_port import driver_of
from instrumentation.trace import Fault

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
        """Leave an empty line for what is printed next."""
        self._write(_TO_START_OF_LINE + _CLEAR_REST)

    def _write(self, drawn: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a closed terminal ends no recording
            self._terminal.write(drawn)
            self._terminal.flush()


_PERIOD_NS = 500_000_000
_RATE_TICKS = 10


class Status:
    """Counts what happens and writes it about twice a second, to `shown` too.

    The file is a `contract.documents.RecorderStatus`: `state` is `full` while the disk is,
    `rate_hz` is over the last 5 s, `due_hz` what the driver expects.
    """

    def __init__(
        self, config: MeterEntry, path: Path, shown: Callable[[Status], object] | None = None
    ) -> None:
        self._config = config
        self._path = path
        self._shown = shown
        self.name = config.name
        self.due_hz = 1 / driver_of(config).period_s
        self.state: RecorderState = "starting"
        self.message = ""
        self.epoch = 0
        self.openings = 0
        self.records = 0
        self.bytes = 0
        self.gaps = 0
        self.faults = 0
        self.watts: dict[str, float] = {}
        self.rate_hz = 0.0
        self._first_ns = self._last_ns = 0
        self.last_fault: Fault | None = None
        self._ticks: deque[tuple[int, int]] = deque(maxlen=_RATE_TICKS + 1)
        self._due_ns = 0

    def opened(self, epoch: int) -> None:
        """Take note that the port was opened (again)."""
        self.epoch = epoch
        self.openings += 1

    def take(self, fed: ParseResult) -> None:
        """Count what the driver made of some bytes."""
        rows = fed.rows
        if len(rows):
            if not self.records:
                self._first_ns = int(rows.t_mono_ns[0])
            self._last_ns = int(rows.t_mono_ns[-1])
            self.records += len(rows)
            channels = self._config.channels.values()
            self.watts = dict(zip(channels, rows.power_w[-1].tolist(), strict=True))
        for fault in fed.faults:
            self.gaps += fault.kind == "gap"
            self.faults += fault.kind != "gap"
            self.last_fault = fault

    def enter(self, state: RecorderState, message: str = "") -> None:
        self.state, self.message = state, message
        if state != "recording":
            self.watts = {}  # unknown from here on
        self.write()

    def tick(self) -> None:
        """Write the state if it is due."""
        if monotonic_ns() >= self._due_ns:
            self.write()

    @property
    def summary(self) -> str:
        """All of it in one line, for people."""
        seconds = (self._last_ns - self._first_ns) / 1e9
        rate = f" ({(self.records - 1) / seconds:.4g} of {self.due_hz:.4g} Hz)" if seconds else ""
        reopened = f", opened {self.openings} times" if self.openings > 1 else ""
        return (
            f"{self.name}: {self.records} records in {seconds:.1f} s{rate}, {self.gaps} gaps, "
            f"{self.faults} faults{reopened}"
        )

    def write(self) -> None:
        """Replace the file. A failure is ignored: the recording matters, not the display."""
        now_ns = monotonic_ns()
        self._due_ns = now_ns + _PERIOD_NS
        self._ticks.append((now_ns, self.records))
        then_ns, then = self._ticks[0]
        seconds = (now_ns - then_ns) / 1e9
        self.rate_hz = (self.records - then) / seconds if seconds else 0.0
        fault = self.last_fault
        content = RecorderStatus(
            format="fde-recorder-status/1",
            name=self.name,
            kind=self._config.kind,
            origin=self._config.origin,
            port=self._config.port,
            state=self.state,
            message=self.message,
            pid=os.getpid(),
            t_mono_ns=now_ns,
            t_record_ns=self._last_ns,
            epoch=self.epoch,
            records=self.records,
            bytes=self.bytes,
            rate_hz=round(self.rate_hz, 2),
            due_hz=round(self.due_hz, 4),
            watts=self.watts,
            gaps=self.gaps,
            faults=self.faults,
            last_fault=None if fault is None else MeterFault(fault.kind, fault.detail),
        )
        with contextlib.suppress(OSError):
            files.write_json(self._path, asdict(content), sync=False)
        if self._shown is not None:
            self._shown(self)
