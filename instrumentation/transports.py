"""Connections to meters: a serial port, the kernel's usbtmc device, or the network."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import queue
import select
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Protocol

import serial

from instrumentation.clock import monotonic_ns
from instrumentation.meters.base import Meter
from instrumentation.ports import is_network

_READ_BYTES = 1 << 16
_FULL_BYTES = 2048
_MOST_PARTS = 16
_WRITE_LIMIT_S = 0.5
OPEN_LIMIT_S = 10.0
WAIT_S = 0.2


class Transport(Protocol):
    """An open port. Every method raises OSError once the device is gone."""

    def read(self, wait_s: float) -> tuple[int, bytes]:
        """Return the time of the read (clock of the controller, ns) and the received bytes.

        The time is never before the arrival of the last byte. Empty after `wait_s` without a byte.
        """

    def write(self, data: bytes) -> None:
        """Send all bytes."""

    def close(self) -> None:
        """Close the port. Never raises."""


def receive(transport: Transport, meter: Meter) -> tuple[int, bytes]:
    """Read once; wait until the meter's next request is due, but for `WAIT_S` at most."""
    wait_s = WAIT_S if meter.due_ns is None else (meter.due_ns - monotonic_ns()) / 1e9
    return transport.read(min(WAIT_S, max(0.0, wait_s)))


class SerialTransport:
    """A serial port, 8N1, opened exclusively; bytes from before the opening are discarded.

    `gather_s` is how long to wait for more bytes once the first has come. The time of a read is
    that of its end: late for its first bytes, right for its last.
    """

    def __init__(self, device: str, baud: int, gather_s: float = 0.0) -> None:
        self._gather_s = gather_s
        self._port = serial.Serial(
            device, baud, timeout=0, write_timeout=_WRITE_LIMIT_S, exclusive=True
        )
        with contextlib.suppress(OSError, ValueError, NotImplementedError):  # few adapters have it
            self._port.set_low_latency_mode(True)  # else an FTDI adapter holds bytes for 16 ms
        self._fd = self._port.fileno()
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def read(self, wait_s: float) -> tuple[int, bytes]:
        if not self._poll.poll(wait_s * 1000):
            return monotonic_ns(), b""
        if self._gather_s:
            time.sleep(self._gather_s)
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return monotonic_ns(), b""
        if not data:
            raise OSError(errno.ENODEV, "the device is gone")
        parts = [data]  # a terminal returns no more than 4 KB at a time
        while self._gather_s and len(parts[-1]) >= _FULL_BYTES and len(parts) <= _MOST_PARTS:
            try:
                parts.append(os.read(self._fd, _READ_BYTES))
            except OSError:
                break  # no more bytes, or the device is gone: then the next read raises
        data = b"".join(parts)
        # After the read: on a busy machine bytes may come between the two, and a stamp before their
        # arrival would shift the whole recording, for delays are taken as never negative.
        return monotonic_ns(), data

    def write(self, data: bytes) -> None:
        self._port.write(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._port.close()


# Linux, include/uapi/linux/usb/tmc.h: _IOW(91, 10, __u32), milliseconds, at least 100; _IO(91, 2).
USBTMC_SET_TIMEOUT, USBTMC_CLEAR = 0x4004_5B0A, 0x5B02


class QueryTransport(ABC):
    """A connection on which each line written is a message, and each read returns one answer.

    Only a read waits for an answer, so a read follows each message that has one and blocks until it
    arrives or is given up; messages written meanwhile wait. The time of a read is that of the whole
    answer.
    """

    _answers_all: ClassVar[bool] = False  # otherwise only queries, which end in `?`

    def __init__(self) -> None:
        self._messages: list[bytes] = []
        self._awaits_answer = False

    @abstractmethod
    def _put(self, message: bytes) -> None:
        """Send one line."""

    @abstractmethod
    def _get(self) -> bytes:
        """Return the answer. Raises TimeoutError if it does not arrive."""

    def read(self, wait_s: float) -> tuple[int, bytes]:
        """See `Transport.read`."""
        if not self._awaits_answer:
            time.sleep(wait_s)
            return monotonic_ns(), b""
        try:
            data = self._get()
        except TimeoutError:
            data = b""
        t_ns = monotonic_ns()
        self._awaits_answer = False
        self.write(b"")  # the next message
        return t_ns, data

    def write(self, data: bytes) -> None:
        self._messages += data.splitlines(keepends=True)
        while self._messages and not self._awaits_answer:
            message = self._messages.pop(0)
            self._put(message)
            self._awaits_answer = self._answers_all or b"?" in message


class UsbtmcTransport(QueryTransport):
    """The kernel's usbtmc device; a line with a `?` is a query.

    Written after the kernel's driver (drivers/usb/class/usbtmc.c) and tried on descriptors of other
    kinds, but on no such instrument.
    """

    def __init__(self, device: str, limit_s: float) -> None:
        super().__init__()
        # A terminal must not become this process's controlling one: its hangup would end it.
        self._fd = os.open(device, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(OSError):  # kernels before 4.20 keep their 5 s
                timeout = struct.pack("I", max(100, round(limit_s * 1000)))
                fcntl.ioctl(self._fd, USBTMC_SET_TIMEOUT, timeout)
            with contextlib.suppress(OSError):  # answers to another client's questions
                fcntl.ioctl(self._fd, USBTMC_CLEAR)
        except OSError:
            os.close(self._fd)
            raise

    def _put(self, message: bytes) -> None:
        os.write(self._fd, message)

    def _get(self) -> bytes:
        return os.read(self._fd, _READ_BYTES)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._fd)


def open_meter(device: str, baud: int, meter: Meter) -> Transport:
    """Open the port or the network address of a meter. Raises OSError."""
    if is_network(device):
        from instrumentation import network  # imports libraries that few meters need

        return open_in_time(device, lambda: network.open_network_meter(device, meter))
    if os.path.realpath(device).startswith("/dev/usbtmc"):
        limit_s = 2 * meter.period_s + 1
        return open_in_time(device, lambda: UsbtmcTransport(device, limit_s))
    return open_in_time(device, lambda: SerialTransport(device, baud, meter.gather_s))


_hanging: set[str] = set()


def open_in_time(
    device: str, open_device: Callable[[], Transport], limit_s: float = OPEN_LIMIT_S
) -> Transport:
    """Call `open_device` with a time limit; some drivers of the kernel never return from an open.

    Raises its OSError, or one with ETIMEDOUT after `limit_s`, and at once as long as an earlier
    attempt at this device still hangs. Several meters at one address may be opened at once.
    """
    if device in _hanging:
        raise OSError(errno.ETIMEDOUT, "its driver still hangs in an earlier attempt")
    outcomes: queue.SimpleQueue[Transport | OSError | ValueError] = queue.SimpleQueue()
    given_up = threading.Event()

    def attempt() -> None:
        outcome: Transport | OSError | ValueError
        try:
            outcome = open_device()
        except (OSError, ValueError) as error:
            outcome = error
        outcomes.put(outcome)
        _hanging.discard(device)
        if given_up.is_set():
            close_late()

    def close_late() -> None:
        with contextlib.suppress(queue.Empty):
            outcome = outcomes.get_nowait()
            if not isinstance(outcome, Exception):
                outcome.close()

    threading.Thread(target=attempt, daemon=True).start()
    try:
        outcome = outcomes.get(timeout=limit_s)
    except queue.Empty:
        _hanging.add(device)
        if not outcomes.empty():  # it has ended just now
            _hanging.discard(device)
        given_up.set()
        close_late()
        raise OSError(errno.ETIMEDOUT, f"its driver did not open it in {limit_s:g} s") from None
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
