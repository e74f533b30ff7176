"""Record a meter: raw bytes with their times; everything else is derived from them.

    python -m instrumentation.recorder --meter '<entry of meters, JSON>' --out DIR [--status FILE]

DIR gets meter.json and stream.raw; an existing stream is continued. The status file (default
DIR/status.json) shows the state, and so does a line on standard error on a terminal (or with
--live). The recorder ends with 0 on SIGTERM or Ctrl-C, with 1 and a sentence if the meter is silent
or another one at the start; with --wait it waits for a meter that was read before. A port that is
lost later is opened again once it is back, under any number. On a full disk it waits for room. With
--outlive S it ends S seconds after the process that started it.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from contract import files, schema, strict_json
from contract.documents import UsbAdapter
from contract.journal import boot_id
from contract.names import sentence
from contract.plan import MeterEntry
from contract.strict_json import Json
from instrumentation.clock import monotonic_ns
from instrumentation.meters.base import Meter
from instrumentation.ports import (
    Finder,
    Lookup,
    Port,
    PortError,
    all_ports,
    is_pseudo_terminal,
    recognise_kind,
)
from instrumentation.recorder_port import (
    RecorderError,
    cannot_open,
    describe,
    driver_of,
    foreign_error,
    parse_meter,
    silence_error,
)
from instrumentation.recorder_status import LiveLine, Status
from instrumentation.trace import StreamError, StreamWriter
from instrumentation.transports import Transport, open_meter, receive

REOPEN_PAUSE_S = 0.2
SETTLE_S = 0.3  # beyond one period, before a stream is compared with those of other meters
_FIRST_BYTES = 4096  # of the stream, to show and to recognise another meter by
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# Below this a disk is still full: the next bytes would fill it again at once.
_ROOM_BYTES = 1 << 20
# More than any meter sends: beyond it the port is closed, for longer each time it happens.
_FLOOD_BYTES_PER_S = 4 << 20
_FLOOD_PAUSES_S = (2.0, 60.0)
_TURN_LIMIT_S = 30.0  # of one question, its answer and what the driver makes of it
_END_LIMIT_S = 0.8
_MOST_MEMORY_BYTES = 128 << 20  # beyond what NumPy takes at the start


@contextlib.contextmanager
def _lock_folder(config: MeterEntry, out: Path) -> Iterator[None]:
    """Lock the folder of one meter for this process; the kernel releases it if the process dies.

    Raises RecorderError if another process records into it, OSError.
    """
    out.mkdir(parents=True, exist_ok=True)
    fd = os.open(out, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RecorderError("recorded-already", meter=config.name, out=out) from None
        yield
    finally:
        os.close(fd)


def _open_stream(config: MeterEntry, out: Path) -> tuple[StreamWriter, dict[str, Json]]:
    """Open the stream to continue it; return it with the content of meter.json.

    A stream is decoded by one description, so another one is refused. Raises RecorderError,
    OSError.
    """
    description: dict[str, Json] = {
        **describe(config),
        "controller_boot_id": boot_id(),
        "started_wall": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    before = strict_json.read_object(out / "meter.json")
    for name in ("kind", "channels", "settings"):
        if before.get(name, description[name]) != description[name]:
            raise RecorderError("recorded-otherwise", out=out, name=name)
    if "adapter" in before and before.get("port") == config.port:
        description["adapter"] = before["adapter"]
    path = out / "stream.raw"
    try:
        writer = StreamWriter(path)
    except StreamError as error:
        raise RecorderError("no-stream", path=path, error=error) from None
    files.write_json(out / "meter.json", description)
    return writer, description


@dataclass(frozen=True)
class Limits:
    """Times to wait for a meter with a record each `period_s`, in s.

    After `silence_s` without a byte it is off, or the port's driver does not report an unplugging.
    After `foreign_s` with bytes but no record it is another device: one period, and the time that a
    driver needs to start. That is the remainder of the current record and one more, at which the
    window of the next one begins; a meter that is asked must be set up first.
    """

    silence_s: float
    foreign_s: float

    @classmethod
    def for_meter(cls, meter: Meter) -> Limits:
        """Return the limits of a meter whose port was just opened."""
        asked = meter.timing == "poll" or meter.due_ns is not None
        start_s = 2 * meter.period_s + (5.0 if asked else 1.0)
        return cls(3 * meter.period_s + meter.answer_limit_s, meter.period_s + start_s)


class Parent:
    """The process that started this one, which may end earlier."""

    def __init__(self, outlive_s: float | None) -> None:
        self._pid = os.getppid()
        self._outlive_s = outlive_s
        self._ended_ns = 0

    def ended_long_ago(self) -> bool:
        """Return whether it ended more than `outlive_s` ago; never if that is not set."""
        if self._outlive_s is None or os.getppid() == self._pid:
            return False
        self._ended_ns = self._ended_ns or monotonic_ns()
        return monotonic_ns() - self._ended_ns > self._outlive_s * 1e9


class OverdueError(BaseException):
    """A turn took too long. Not an Exception, which a library might catch."""


class Turns:
    """A time limit for each turn: signals of the main thread interrupt reads and patterns alike.

    A turn longer than `_TURN_LIMIT_S` closes the port. After a signal to end the limit is
    `_END_LIMIT_S`, and after as long again the process ends, with all received frames in the file.
    """

    def __init__(self) -> None:
        self.ended = False
        self._is_last_chance = False

    def __enter__(self) -> Turns:
        handlers = dict.fromkeys((signal.SIGTERM, signal.SIGINT, signal.SIGHUP), self._end)
        handlers[signal.SIGALRM] = self._interrupt
        self._before = {number: signal.signal(number, hook) for number, hook in handlers.items()}
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def begin(self) -> None:
        """Start the timer of the next turn."""
        if not self.ended:
            signal.setitimer(signal.ITIMER_REAL, _TURN_LIMIT_S)
        if self.ended and not self._is_last_chance:  # the signal may have come since the line above
            signal.setitimer(signal.ITIMER_REAL, _END_LIMIT_S, _END_LIMIT_S)

    def finish(self) -> None:
        """Stop the timer, so that nothing after this is interrupted."""
        signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _end(self, *_: object) -> None:
        self.ended = True
        signal.setitimer(signal.ITIMER_REAL, _END_LIMIT_S, _END_LIMIT_S)

    def _interrupt(self, *_: object) -> None:
        if self._is_last_chance:
            os._exit(1)
        self._is_last_chance = self.ended
        raise OverdueError


class Recorder:
    """A recording of one meter into one stream.

    `run` returns once `stopped()` is true. `turns` limits the time of each turn if the recorder is
    a separate process.
    """

    def __init__(
        self,
        config: MeterEntry,
        out: Path,
        status: Path,
        *,
        live: LiveLine | None = None,
        finder: Finder = all_ports,
        wait: bool = False,
        turns: Turns | None = None,
    ) -> None:
        self._config = config
        self._turns = turns
        self._out = out
        self._wait = wait
        self._status = Status(config, status, live.show if live else None)
        self._meter: Meter = driver_of(config)
        self._lookup = Lookup(config.port, self._meter.usb_ids, finder)
        self._description: dict[str, Json] = {}
        self._device = ""
        self._transport: Transport | None = None
        self._limits = Limits.for_meter(self._meter)
        self._first_bytes = b""
        self._compared = False  # with the streams of other kinds of meters
        self._first_ns = 0  # of the first byte ever
        self._opened_ns = 0
        self._heard_ns = 0  # of the last byte, or of the opening
        self._record_ns = 0  # of the last record, or of the opening
        self._second_ns = self._second_bytes = 0  # begin of the current second, bytes since then
        self._pause_s, self._paused_until_ns = _FLOOD_PAUSES_S[0], 0

    def run(self, stopped: Callable[[], bool]) -> str:
        """Record; return a summary for people. Raises RecorderError; all bytes so far are saved."""
        try:
            with _lock_folder(self._config, self._out):
                writer, self._description = _open_stream(self._config, self._out)
                self._meter.epoch = writer.openings
                if "adapter" in self._description:
                    adapter = schema.read(UsbAdapter, self._description["adapter"])
                    self._lookup.device_port = Port(**asdict(adapter))
                try:
                    with contextlib.suppress(OverdueError):  # after a signal to end
                        self._record(writer, stopped)
                finally:
                    self._close_port()
                    if self._turns is not None:
                        self._turns.finish()
                    writer.close()
        except RecorderError as error:
            self._status.enter("failed", str(error))
            raise
        except OSError as error:
            refusal = RecorderError(
                "recording-ended",
                meter=self._config.name,
                folder=self._out,
                reason=error.strerror,
                so_far=self._status.summary.partition(": ")[2],
            )
            self._status.enter("failed", str(refusal))
            raise refusal from None
        last = {"lost": "; the port was lost at the end", "full": "; the disk was full at the end"}
        end = last.get(self._status.content.state, "")
        self._status.enter("stopped")
        return f"{self._status.summary}, {self._status.content.bytes} bytes in {writer.path}{end}"

    def _record(self, writer: StreamWriter, stopped: Callable[[], bool]) -> None:
        start_ns = monotonic_ns()
        while not stopped():
            self._status.tick()
            try:
                if self._turns is not None:
                    self._turns.begin()
                self._turn(writer, start_ns)
            except OverdueError:
                self._lose("what it sent took too long")
            except MemoryError:
                self._lose("what it sent takes more memory than there is for it")
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                self._close_port()
                self._status.enter(
                    "full",
                    f"{self._config.name}: the disk of {self._out} is full; the recording "
                    "continues when there is room",
                )

    def _turn(self, writer: StreamWriter, start_ns: int) -> None:
        """Ask, read and save once. Raises OSError if writing fails."""
        if self._transport is None and (
            monotonic_ns() < self._paused_until_ns or not self._open(writer)
        ):
            time.sleep(REOPEN_PAUSE_S)
            return
        self._ask(writer)
        t_ns, data = self._read()
        if data:
            self._save(writer, t_ns, data)
            self._check_flood(t_ns, len(data))
        if self._must_be_heard:
            self._check_start(max(start_ns, self._opened_ns))
        elif self._transport is not None:
            # After the first record: a port that became silent is opened again.
            now_ns, limits = monotonic_ns(), self._limits
            if now_ns - self._heard_ns > limits.silence_s * 1e9:
                self._lose(f"no data for {limits.silence_s:.3g} s")
            elif now_ns - self._record_ns > (limits.silence_s + limits.foreign_s) * 1e9:
                self._lose("the incoming data are not valid records any more")

    @property
    def _must_be_heard(self) -> bool:
        """Whether no record has come yet and the recorder does not wait for the meter."""
        return not self._wait and not self._status.content.records

    def _open(self, writer: StreamWriter) -> bool:
        full = self._status.content.state == "full"
        if full and shutil.disk_usage(self._out).free < _ROOM_BYTES:
            return False
        self._device = ""
        try:
            self._device = self._lookup.device()
            if self._config.origin == "measured" and is_pseudo_terminal(self._device):
                name = self._config.name
                raise RecorderError("became-pseudo-terminal", meter=name, device=self._device)
            self._transport = open_meter(self._device, self._config.baud or 0, self._meter)
        except OSError as error:
            if self._must_be_heard:
                raise cannot_open(self._config, error, self._device) from None
            self._lose(f"the port cannot be opened ({error.strerror})")
            if isinstance(error, PortError) and self._status.content.state == "lost":
                message = f"{self._config.name}: {error.strerror}"
                self._status.content = replace(self._status.content, message=message)
            return False
        adapter = self._lookup.device_port
        if adapter is not None and adapter.usb_id and "adapter" not in self._description:
            self._description["adapter"] = asdict(adapter)
            files.write_json(self._out / "meter.json", self._description)
        self._opened_ns = self._heard_ns = self._record_ns = monotonic_ns()
        writer.append(self._heard_ns, b"")
        self._meter.opened()
        self._limits = Limits.for_meter(self._meter)
        self._status.opened(self._meter.epoch)
        return True

    def _ask(self, writer: StreamWriter) -> None:
        """Send a due request and save it, for the answer depends on it."""
        t_ns = monotonic_ns()
        data = self._meter.request(t_ns)
        if not data or self._transport is None:
            return
        try:
            self._transport.write(data)
        except OSError as error:
            self._lose(f"the port was lost ({error})")
            return
        writer.append(t_ns, data, sent=True)
        self._meter.on_request_sent(data, t_ns)

    def _read(self) -> tuple[int, bytes]:
        """Return the time of the first received byte and all bytes; empty after a while."""
        if self._transport is None:
            return 0, b""
        try:
            return receive(self._transport, self._meter)
        except OSError as error:  # of which pyserial's exceptions are subclasses
            self._lose(f"the port was lost ({error})")
            return 0, b""

    def _save(self, writer: StreamWriter, t_ns: int, data: bytes) -> None:
        writer.append(t_ns, data)
        self._heard_ns = t_ns
        self._first_ns = self._first_ns or t_ns
        self._first_bytes += data[: _FIRST_BYTES - len(self._first_bytes)]
        before = self._status.content.records
        self._status.count_records(len(data), self._meter.feed(data, t_ns))
        if self._status.content.records > before:
            self._record_ns = t_ns
            if self._status.content.state != "recording":
                self._status.enter("recording")

    def _check_start(self, start_ns: int) -> None:
        """Raise RecorderError if the meter is silent or another one before its first record."""
        now_ns = monotonic_ns()
        if self._first_ns:
            heard_s = (now_ns - self._first_ns) / 1e9
            fault = self._status.content.last_fault
            is_set_wrongly = fault is not None and fault.kind == "configuration"
            # This meter states the fault, and it may lock after many wrong logins.
            is_certain = is_set_wrongly and self._meter.framed
            is_another = False
            if not self._compared and heard_s >= self._meter.period_s + SETTLE_S:
                self._compared = True
                is_another = bool(recognise_kind(self._first_bytes, self._config.kind))
            if is_certain or heard_s > self._limits.foreign_s or is_another:
                self._close_port()
                reason = fault.detail if fault else ""
                if is_set_wrongly:
                    raise RecorderError("wiring-refused", meter=self._config.name, reason=reason)
                raise foreign_error(self._config, self._first_bytes, self._device, reason)
        elif now_ns - start_ns > self._limits.silence_s * 1e9:
            self._close_port()
            raise silence_error(self._config, self._limits.silence_s, self._device)

    def _check_flood(self, t_ns: int, count: int) -> None:
        """Close a port that would fill the disk."""
        if t_ns - self._second_ns > 1e9:
            self._second_ns, self._second_bytes = t_ns, 0
        self._second_bytes += count
        if self._second_bytes > _FLOOD_BYTES_PER_S:
            self._second_bytes = 0
            self._paused_until_ns = t_ns + round(self._pause_s * 1e9)
            self._pause_s = min(2 * self._pause_s, _FLOOD_PAUSES_S[1])
            self._lose("it sends more than any meter does")

    def _lose(self, message: str) -> None:
        self._close_port()
        if not self._must_be_heard and self._status.content.state not in ("lost", "full"):
            self._status.enter("lost", f"{self._config.name}: {message}; opening it again")

    def _close_port(self) -> None:
        if self._transport is None:
            return
        transport, self._transport = self._transport, None
        with contextlib.suppress(OSError, OverdueError):
            if stop_command := self._meter.stop_command():
                transport.write(stop_command)
        with contextlib.suppress(OverdueError):
            transport.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m instrumentation.recorder")
    parser.add_argument("--meter", required=True, help="one entry of meters, as JSON")
    parser.add_argument("--out", required=True, type=Path, help="directory of this meter")
    parser.add_argument("--status", type=Path, help="status file (default: status.json in --out)")
    parser.add_argument("--live", action="store_true", help="show a live line in any case")
    parser.add_argument("--wait", action="store_true", help="for a meter that does not answer")
    parser.add_argument("--outlive", type=float, metavar="S", help="the process that started this")
    options = parser.parse_args(arguments)
    parent = Parent(options.outlive)
    status = options.status or options.out / "status.json"
    live = LiveLine(sys.stderr) if options.live or sys.stderr.isatty() else None
    try:
        with Turns() as turns:
            config = parse_meter(options.meter)
            recorder = Recorder(
                config, options.out, status, live=live, wait=options.wait, turns=turns
            )
            try:
                summary = recorder.run(lambda: turns.ended or parent.ended_long_ago())
            finally:
                if live:
                    live.clear()
    except (RecorderError, OverdueError) as error:
        print(f"fde: {sentence(str(error)) or 'ended before it began'}", file=sys.stderr)
        return 1
    print(summary)
    return 0


if __name__ == "__main__":
    # No library's buffer may fill the machine: a MemoryError only closes the port.
    data_pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
    most_bytes = data_pages * resource.getpagesize() + _MOST_MEMORY_BYTES
    hard_bytes = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, hard_bytes))
    status_code = main()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(status_code)  # without waiting for threads of libraries
