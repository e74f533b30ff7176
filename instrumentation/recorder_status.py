"""Show the recorder's state: a small JSON file and one line on a terminal."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TextIO

from contract import files
from contract.documents import MeterFault, RecorderState, RecorderStatus
from contract.plan import MeterEntry
from instrumentation.clock import monotonic_ns
from instrumentation.meters.rows import ParseResult
from instrumentation.recorder_port import driver_of

_TO_START_OF_LINE, _CLEAR_REST = "\r", "\x1b[K"


def text(status: RecorderStatus) -> str:
    """Return state, watts by channel, rate and expected rate, gaps and faults in one line."""
    watts = "  ".join(f"{name} {power_w:.2f} W" for name, power_w in status.watts.items())
    return (
        f"{status.name} {status.state} | {watts or 'no power known'} | "
        f"{status.rate_hz:.4g}/{status.due_hz:.4g} Hz | {status.gaps} gaps {status.faults} faults"
    )


class LiveLine:
    """A line on `terminal`, cut to its width."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal

    def show(self, status: RecorderStatus) -> None:
        """Draw the line again."""
        width = shutil.get_terminal_size().columns - 1
        self._write(_TO_START_OF_LINE + text(status)[:width] + _CLEAR_REST)

    def clear(self) -> None:
        """Clear the line for other output."""
        self._write(_TO_START_OF_LINE + _CLEAR_REST)

    def _write(self, drawn: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a closed terminal ends no recording
            self._terminal.write(drawn)
            self._terminal.flush()


_PERIOD_NS = 500_000_000
_RATE_TICKS = 10


class Status:
    """Counts of a recording, written to a file and to `show` about twice a second.

    `content` is that of the file: `state` is `full` while the disk is, `rate_hz` is over the
    last 5 s, `due_hz` is the driver's.
    """

    def __init__(
        self, config: MeterEntry, path: Path, show: Callable[[RecorderStatus], object] | None = None
    ) -> None:
        self._channels = tuple(config.channels.values())
        self._path = path
        self._show = show
        self.content = RecorderStatus(
            format="fde-recorder-status/1",
            name=config.name,
            kind=config.kind,
            origin=config.origin,
            port=config.port,
            state="starting",
            message="",
            pid=os.getpid(),
            t_mono_ns=0,
            t_record_ns=0,
            epoch=0,
            records=0,
            bytes=0,
            rate_hz=0.0,
            due_hz=round(1 / driver_of(config).period_s, 4),
            watts={},
            gaps=0,
            faults=0,
            last_fault=None,
        )
        self._openings = 0
        self._first_ns = 0
        self._ticks: deque[tuple[int, int]] = deque(maxlen=_RATE_TICKS + 1)
        self._due_ns = 0

    def opened(self, epoch: int) -> None:
        """Take note that the port was opened (again)."""
        self.content = replace(self.content, epoch=epoch)
        self._openings += 1

    def count_records(self, size_bytes: int, result: ParseResult) -> None:
        """Count some bytes, and the records and faults that the driver made of them."""
        rows, gaps = result.rows, sum(fault.kind == "gap" for fault in result.faults)
        self.content = replace(
            self.content,
            bytes=self.content.bytes + size_bytes,
            records=self.content.records + len(rows),
            gaps=self.content.gaps + gaps,
            faults=self.content.faults + len(result.faults) - gaps,
        )
        for fault in result.faults[-1:]:
            self.content = replace(self.content, last_fault=MeterFault(fault.kind, fault.detail))
        if len(rows):
            self._first_ns = self._first_ns or int(rows.t_mono_ns[0])
            watts = dict(zip(self._channels, rows.power_w[-1].tolist(), strict=True))
            self.content = replace(self.content, watts=watts, t_record_ns=int(rows.t_mono_ns[-1]))

    def enter(self, state: RecorderState, message: str = "") -> None:
        watts = self.content.watts if state == "recording" else {}  # else unknown from here on
        self.content = replace(self.content, state=state, message=message, watts=watts)
        self.write()

    def tick(self) -> None:
        """Write the state if it is due."""
        if monotonic_ns() >= self._due_ns:
            self.write()

    @property
    def summary(self) -> str:
        """Counts of the recording in one line, for people."""
        last, seconds = self.content, (self.content.t_record_ns - self._first_ns) / 1e9
        rate = f" ({(last.records - 1) / seconds:.4g} of {last.due_hz:.4g} Hz)" if seconds else ""
        reopened = f", opened {self._openings} times" if self._openings > 1 else ""
        return (
            f"{last.name}: {last.records} records in {seconds:.1f} s{rate}, {last.gaps} gaps, "
            f"{last.faults} faults{reopened}"
        )

    def write(self) -> None:
        """Replace the file. A failure is ignored: the recording matters, not the display."""
        now_ns = monotonic_ns()
        self._due_ns = now_ns + _PERIOD_NS
        self._ticks.append((now_ns, self.content.records))
        first_ns, first_records = self._ticks[0]
        seconds = (now_ns - first_ns) / 1e9
        rate_hz = round((self.content.records - first_records) / seconds, 2) if seconds else 0.0
        self.content = replace(self.content, t_mono_ns=now_ns, rate_hz=rate_hz)
        with contextlib.suppress(OSError):
            files.write_json(self._path, asdict(self.content), sync=False)
        if self._show is not None:
            self._show(self.content)
