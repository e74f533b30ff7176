"""Run programs whose peer may be hostile: their output is bounded in memory and on disk."""

from __future__ import annotations

import os
import resource
import select
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import IO

# An answer as one document; a line is at most one document, too (contract/archives.py).
MOST_ANSWER_BYTES = 16 << 20
MOST_WORDS_BYTES = 1 << 16
_PART_BYTES = 1 << 16
# The status of ssh for its own errors: endless output counts as a failed connection.
FAILED = 255
TOO_LONG = "answer too long"


def lower_limits(limits: Mapping[int, int]) -> None:
    """Lower limits of this process by number, such as RLIMIT_CPU; a lower one of its user stays."""
    for number, value in limits.items():
        soft, hard = resource.getrlimit(number)
        allowed = min(limit for limit in (value, soft, hard) if limit != resource.RLIM_INFINITY)
        resource.setrlimit(number, (allowed, allowed))


class TooLongError(ValueError):
    """A line is longer than any valid one."""


class Tail:
    """Reads a stream to its end in a thread and keeps the last bytes."""

    def __init__(self, stream: IO[bytes], most_bytes: int = MOST_WORDS_BYTES) -> None:
        self._stream, self._most_bytes, self._kept = stream, most_bytes, b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._stream:
            while part := os.read(self._stream.fileno(), _PART_BYTES):
                self._kept = (self._kept + part)[-self._most_bytes :]

    def text(self) -> str:
        """Return the kept bytes as text once the stream ends, or after one second."""
        self._thread.join(timeout=1)
        return self._kept.decode(errors="replace").strip()


def lines(stream: IO[bytes], most_bytes: int = MOST_ANSWER_BYTES) -> Iterator[str]:
    """Yield the lines of a stream; raise TooLongError for one of more than `most_bytes`."""
    while line := stream.readline(most_bytes + 1):
        if len(line) > most_bytes:
            raise TooLongError(f"{TOO_LONG}: a line of more than {most_bytes >> 20} MiB")
        yield line.decode(errors="replace")


def run(
    argv: Sequence[str],
    stdin: bytes = b"",
    *,
    limit_s: float | None = None,
    most_bytes: int = MOST_ANSWER_BYTES,
    out: IO[bytes] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end, in a separate session, so that Ctrl-C does not reach it.

    Its standard output goes to `out`, or is returned. If it is longer than `most_bytes`, the
    program is killed, and the status is `FAILED`. Raises TimeoutExpired after `limit_s`, OSError if
    the program cannot be started or `out` cannot be written.
    """
    pipe = subprocess.PIPE
    end_s = None if limit_s is None else time.monotonic() + limit_s
    process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    assert process.stdin and process.stdout and process.stderr
    words = Tail(process.stderr)
    threading.Thread(target=_give, args=(process.stdin, stdin), daemon=True).start()
    answer = bytearray()
    remaining_bytes = most_bytes
    try:
        ready = select.poll()
        ready.register(process.stdout, select.POLLIN)
        while True:
            remaining_s = None if end_s is None else end_s - time.monotonic()
            if remaining_s is not None and not (remaining_s > 0 and ready.poll(remaining_s * 1000)):
                raise subprocess.TimeoutExpired(argv, limit_s or 0.0)
            part = os.read(process.stdout.fileno(), _PART_BYTES)
            remaining_bytes -= len(part)
            if not part or remaining_bytes < 0:
                break
            (out.write if out else answer.extend)(part)
        if remaining_bytes < 0:
            reason = f"{TOO_LONG}: more than {most_bytes >> 20} MiB"
            return subprocess.CompletedProcess(argv, FAILED, b"", reason.encode())
        status = process.wait(None if end_s is None else max(0.0, end_s - time.monotonic()))
        return subprocess.CompletedProcess(argv, status, bytes(answer), words.text().encode())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _give(stream: IO[bytes], content: bytes) -> None:
    with suppress(OSError):  # the program may exit without reading all of it
        stream.write(content)
    with suppress(OSError):
        stream.close()
