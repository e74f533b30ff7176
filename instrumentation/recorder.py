"""Records a serial meter: raw bytes with their times first, everything else from them.

    python -m instrumentation.recorder --meter '<entry of meters, JSON>' --out DIR [--status FILE]

DIR gets meter.json and stream.raw; an existing stream is continued. The status file (default
DIR/status.json) says what is going on. The recorder ends with 0 on SIGTERM or Ctrl-C, with 1 and a
sentence where the meter is silent at the start or the disk is full. A port that is lost later is
opened again as soon as it is there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import serial

from instrumentation.clock import boot_id, monotonic_ns
from instrumentation.meters.base import Meter
from instrumentation.recorder_port import (
    MeterConfig,
    RecorderError,
    cannot_open,
    existing_ports,
    open_port,
)
from instrumentation.recorder_status import Status
from instrumentation.trace import StreamError, StreamWriter

START_LIMIT_S = 5.0  # until the first record; the slowest meters send one each second
SILENCE_LIMIT_S = 5.0  # then the port is opened anew: not every driver reports an unplugging
REOPEN_PAUSE_S = 0.2
WAIT_S = 0.2
_SHOWN_BYTES = 40


class Recorder:
    """One meter, one stream. `run` returns when `stopped()` says so."""

    def __init__(self, config: MeterConfig, out: Path, status: Path) -> None:
        self._config = config
        self._out = out
        self._status = Status(config, status)
        self._meter: Meter = config.driver()
        self._port: serial.Serial | None = None
        self._first_bytes = b""
        self._heard_ns = 0
        self._lost_message = ""

    def run(self, stopped: Callable[[], bool]) -> str:
        """Record; returns a summary for people. Raises RecorderError, with all that came kept."""
        try:
            writer = self._start()
            try:
                self._record(writer, stopped)
            finally:
                self._close_port()
                writer.close()
        except RecorderError as error:
            self._status.enter("failed", str(error))
            raise
        except OSError as error:
            message = self._cannot_write(error)
            self._status.enter("failed", message)
            raise RecorderError(message) from None
        self._status.enter("stopped")
        s = self._status
        return (
            f"{self._config.name}: {s.records} records, {s.gaps} gaps, {s.faults} faults, "
            f"{s.bytes} bytes in {writer.path}"
        )

    def _start(self) -> StreamWriter:
        self._out.mkdir(parents=True, exist_ok=True)
        described = self._config.described() | {
            "controller_boot_id": boot_id(),
            "started_wall": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        text = json.dumps(described, indent=2, ensure_ascii=False) + "\n"
        (self._out / "meter.json").write_text(text, encoding="utf-8")
        path = self._out / "stream.raw"
        try:
            writer = StreamWriter(path)
        except StreamError as error:
            raise RecorderError(f"{path} is no stream ({error}): move it away.") from None
        self._meter.epoch = writer.openings
        return writer

    def _record(self, writer: StreamWriter, stopped: Callable[[], bool]) -> None:
        start_ns = monotonic_ns()
        while not stopped():
            self._status.tick()
            if not self._status.records and monotonic_ns() - start_ns > START_LIMIT_S * 1e9:
                raise RecorderError(self._nothing_heard())
            if self._port is None and not self._open(writer):
                time.sleep(REOPEN_PAUSE_S)
                continue
            self._ask(writer)
            if data := self._read():
                self._keep(writer, *data)

    def _open(self, writer: StreamWriter) -> bool:
        try:
            self._port = open_port(self._config)
        except OSError as error:
            if not self._status.records:
                raise RecorderError(cannot_open(self._config, error)) from None
            return False
        self._heard_ns = monotonic_ns()
        writer.append(self._heard_ns, b"")
        self._meter.opened()
        self._status.epoch = self._meter.epoch
        return True

    def _ask(self, writer: StreamWriter) -> None:
        """Send what is due to a meter that must be asked; kept, for the answer depends on it."""
        t_ns = monotonic_ns()
        data = self._meter.request(t_ns)
        if not data or self._port is None:
            return
        try:
            self._port.write(data)
        except OSError as error:
            self._lose(f"the port was lost ({error})")
            return
        writer.append(t_ns, data, sent=True)
        self._meter.asked(data, t_ns)

    def _wait_s(self) -> float:
        due_ns = self._meter.due_ns
        if due_ns is None:
            return WAIT_S
        return min(WAIT_S, max(0.0, (due_ns - monotonic_ns()) / 1e9))

    def _read(self) -> tuple[int, bytes] | None:
        """The bytes that are there and when the first came; None after a while without any."""
        port = self._port
        if port is None:
            return None
        try:
            ready = select.select([port.fileno()], [], [], self._wait_s())[0]
            t_ns = monotonic_ns()
            if ready:
                return t_ns, port.read(port.in_waiting or 1)
        except OSError as error:  # pyserial's own exceptions are of this kind
            self._lose(f"the port was lost ({error})")
            return None
        if t_ns - self._heard_ns > SILENCE_LIMIT_S * 1e9:
            self._lose(f"nothing came for {SILENCE_LIMIT_S:g} s")
        return None

    def _keep(self, writer: StreamWriter, t_ns: int, data: bytes) -> None:
        if not data:
            return
        writer.append(t_ns, data)
        self._heard_ns = t_ns
        self._status.bytes += len(data)
        self._first_bytes = (self._first_bytes + data)[:_SHOWN_BYTES]
        before = self._status.records
        self._status.take(self._meter.feed(data, t_ns))
        if self._status.records > before and self._status.state != "recording":
            self._status.enter("recording")

    def _lose(self, message: str) -> None:
        self._close_port()
        if self._status.records:
            self._status.enter("lost", f"{self._config.name}: {message}; opening it again")

    def _close_port(self) -> None:
        if self._port is not None:
            with contextlib.suppress(OSError):
                self._port.write(self._meter.farewell())
            self._port.close()
            self._port = None

    def _nothing_heard(self) -> str:
        where = f"{self._config.name} at {self._config.port}"
        if not self._first_bytes:
            return (
                f"{where} is silent: not a byte in {START_LIMIT_S:g} s. Is it switched on, and its "
                f"logging? {existing_ports()}"
            )
        return (
            f"{where} sends no records of a {self._config.kind} at {self._config.baud} baud: "
            f"what came starts with {self._first_bytes!r}. Check kind and baud. {existing_ports()}"
        )

    def _cannot_write(self, error: OSError) -> str:
        return (
            f"{self._config.name}: the recording ended, {self._out} cannot be written "
            f"({error.strerror}). All that came before is kept; make room and start again."
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; see the module's text."""
    parser = argparse.ArgumentParser(prog="python -m instrumentation.recorder")
    parser.add_argument("--meter", required=True, help="one entry of meters, as JSON")
    parser.add_argument("--out", required=True, type=Path, help="directory of this meter")
    parser.add_argument("--status", type=Path, help="status file (default: status.json in --out)")
    options = parser.parse_args(arguments)
    ended: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda signum, _: ended.append(signum))
    status = options.status or options.out / "status.json"
    try:
        config = MeterConfig.from_json(options.meter)
        print(Recorder(config, options.out, status).run(lambda: bool(ended)))
    except RecorderError as error:
        print(f"fde: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
