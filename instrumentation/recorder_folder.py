"""The folder that one meter is recorded into: one recorder at a time, one kind of meter."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from contract import files, strict_json
from instrumentation import recorder_port as words
from instrumentation.clock import boot_id, monotonic_ns
from instrumentation.meters.base import Meter
from instrumentation.recorder_port import MeterConfig, RecorderError
from instrumentation.trace import StreamError, StreamWriter

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# Below this a disk is still full: what comes would fill it again at once.
ROOM_BYTES = 1 << 20


class RecordingFolder:
    """A context that holds `out` for this process alone; the kernel lets go of it if we die."""

    def __init__(self, config: MeterConfig, out: Path) -> None:
        self._config = config
        self._out = out
        self._fd = -1

    def __enter__(self) -> RecordingFolder:
        """Raises RecorderError where another process records into it, OSError."""
        self._out.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(self._out, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise RecorderError(words.recorded_already(self._config, self._out)) from None
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def writer(self) -> StreamWriter:
        """The stream, to be gone on with, and meter.json beside it. Raises RecorderError, OSError.

        A stream is decoded by one description: with another one it is refused.
        """
        described = self._config.described() | {
            "controller_boot_id": boot_id(),
            "started_wall": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        self._check_same_meter(described)
        path = self._out / "stream.raw"
        try:
            writer = StreamWriter(path)
        except StreamError as error:
            raise RecorderError(f"{path} is not a meter stream ({error}): move it away.") from None
        files.write_json(self._out / "meter.json", described)
        return writer

    def _check_same_meter(self, described: dict[str, object]) -> None:
        path = self._out / "meter.json"
        try:
            before = strict_json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        for name in ("kind", "channels", "settings"):
            if isinstance(before, dict) and before.get(name, described[name]) != described[name]:
                raise RecorderError(words.another_stream(self._out, name))

    def has_room(self) -> bool:
        """Whether a recording that waits for room can continue."""
        return shutil.disk_usage(self._out).free >= ROOM_BYTES


@dataclass(frozen=True)
class Limits:
    """How long to wait for a meter with a record each `period_s`, in s.

    `silence_s` without a byte: it is off, or the port's driver does not report an unplugging.
    `foreign_s` with bytes but no record: one period, and what a driver needs to start. That is the
    rest of the record in which it came in, and one more to know from when the next one is a mean
    of; a meter that is asked must be set up first.
    """

    silence_s: float
    foreign_s: float

    @classmethod
    def of(cls, meter: Meter) -> Limits:
        """Those of a meter whose port was just opened."""
        asked = meter.timing == "poll" or meter.due_ns is not None
        start_s = 2 * meter.period_s + (5.0 if asked else 1.0)
        return cls(3 * meter.period_s + 2.0, meter.period_s + start_s)


class Parent:
    """The process that started this one, which need not live as long."""

    def __init__(self, outlive_s: float | None) -> None:
        self._pid = os.getppid()
        self._outlive_s = outlive_s
        self._gone_ns = 0

    def long_gone(self) -> bool:
        """Whether it ended more than `outlive_s` ago; never where none was said."""
        if self._outlive_s is None or os.getppid() == self._pid:
            return False
        self._gone_ns = self._gone_ns or monotonic_ns()
        return monotonic_ns() - self._gone_ns > self._outlive_s * 1e9
