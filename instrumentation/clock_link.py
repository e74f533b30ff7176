"""Round trips to the clock responder on the target, over any command that carries two pipes."""

from __future__ import annotations

import os
import select
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from contract import bounded
from contract.files import append_line
from contract.journal import boot_id
from instrumentation.clock import ClockError, ClockReading, asleep_ns, monotonic_ns

TIMEOUT_S = RETRY_S = 5.0
MOST_LINE_BYTES = 4096  # far more than a time and a boot id take


class ClockLink:
    """A connection to a clock responder; writes its answers to clock.jsonl.

    `argv` starts the responder, e.g. `ssh … python3 -m instrumentation.clock respond`. It is
    started when first needed and again when the link is lost; the first answer after a start may
    take `connect_timeout_s`, each further one `TIMEOUT_S`.
    """

    def __init__(self, argv: Sequence[str], path: Path, *, connect_timeout_s: float = 60.0) -> None:
        self._argv = list(argv)
        self._path = path
        self._connect_timeout_s = connect_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self._controller_boot = boot_id()
        self._errors: bounded.Tail | None = None

    def burst(self, round_trips: int = 8, attempts: int = 2) -> list[ClockReading]:
        """Measure one burst; return its readings, each already in the file.

        A lost link is restarted. Raises ClockError if `attempts` starts of the link gave no full
        burst; the readings before that are in the file all the same.
        """
        readings: list[ClockReading] = []
        failures = 0
        while len(readings) < round_trips:
            try:
                if self._process is None:
                    self._start()
                readings.append(self._round_trip(TIMEOUT_S))
            except (OSError, ClockError, ValueError) as error:
                self.close()
                lines = self._errors.text().splitlines() if self._errors else []
                reason = lines[-1] if lines else str(error)
                failures += 1
                if failures >= attempts:
                    command = " ".join(self._argv)
                    raise ClockError("clock-silent", reason=reason, command=command) from None
                continue
            append_line(self._path, asdict(readings[-1]))
        return readings

    def _start(self) -> None:
        self._pending = b""
        self._process = subprocess.Popen(
            self._argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C ends the suite in order; the link must live till then
        )
        assert self._process.stderr is not None
        self._errors = bounded.Tail(self._process.stderr)
        self._round_trip(self._connect_timeout_s)  # slow: logging in and starting Python

    def _round_trip(self, timeout_s: float) -> ClockReading:
        assert self._process is not None and self._process.stdin is not None
        t_send_ns = monotonic_ns()
        self._process.stdin.write(b"\n")
        line = self._read_line(t_send_ns + int(timeout_s * 1e9))
        t_receive_ns = monotonic_ns()
        t_target, boot = line.decode("ascii").split()
        controller = self._controller_boot, asleep_ns()
        return ClockReading(t_send_ns, int(t_target), t_receive_ns, boot, *controller)

    def _read_line(self, deadline_ns: int) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        fd = self._process.stdout.fileno()
        while b"\n" not in self._pending:
            wait_s = (deadline_ns - monotonic_ns()) / 1e9
            if wait_s <= 0 or not select.select([fd], [], [], wait_s)[0]:
                raise ClockError("clock-no-answer")
            data = os.read(fd, 4096)
            if not data or len(self._pending) > MOST_LINE_BYTES:
                raise ClockError("clock-link-closed")
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def close(self) -> None:
        """End the responder; the next burst starts it again."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> ClockLink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def keep_measuring(
    link: ClockLink, period_s: float, stop: threading.Event, on_error: Callable[[str], None]
) -> None:
    """Measure a burst now, then every `period_s` until `stop` is set; runs in a separate thread.

    A lost link or a full disk does not end the suite: the first failure in a row goes to
    `on_error`, and the burst is tried again every `RETRY_S` until it succeeds.
    """
    failed = False
    while True:
        try:
            link.burst(attempts=1 if failed else 2)
            failed = False
        except (ClockError, OSError) as error:
            if not failed:
                on_error(str(error))
            failed = True
        if stop.wait(RETRY_S if failed else period_s):
            return
