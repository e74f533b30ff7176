"""The wire to a meter: a serial port, the kernel's usbtmc device, or the network. One protocol."""

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
        """Return what came and when it was read (clock of the controller, ns).

        It is read at once or at the end of what is gathered, and so never before its last byte;
        empty after `wait_s` without any.
        """

    def write(self, data: bytes) -> None:
        """Send all of it."""

    def close(self) -> None:
        """Never raises."""


def heard(transport: Transport, meter: Meter) -> tuple[int, bytes]:
    """One read, which waits until the meter is to be asked again, and for `WAIT_S` at most."""
    wait_s = WAIT_S if meter.due_ns is None else (meter.due_ns - monotonic_ns()) / 1e9
    return transport.read(min(WAIT_S, max(0.0, wait_s)))


class SerialTransport:
    """A serial port, 8N1, for us alone; what lay in its buffer is thrown away.

    `gather_s` is how long to wait for more once something is there. The time of a read is that of
    its end: late for its first bytes, right for its last, and never before a byte was there.
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
        if self._gather_s:
            data += self._more(len(data))
        # Not before the read: on a busy machine bytes may come between the two, and a time before
        # theirs would draw the whole recording to itself, for delays are taken as never negative.
        return monotonic_ns(), data

    def _more(self, got: int) -> bytes:
        """Return what else has arrived: a terminal gives no more than 4 KB at a time."""
        more: list[bytes] = []
        while got >= _FULL_BYTES and len(more) < _MOST_PARTS:
            try:
                more.append(os.read(self._fd, _READ_BYTES))
            except OSError:
                break  # nothing more, or gone: then the next read says so
            got = len(more[-1])
        return b"".join(more)

    def write(self, data: bytes) -> None:
        self._port.write(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._port.close()


# Linux, include/uapi/linux/usb/tmc.h: _IOW(91, 10, __u32), milliseconds, at least 100.
USBTMC_SET_TIMEOUT = 0x4004_5B0A


class QueryTransport(ABC):
    """A wire on which each line that is written is a message, and what is read answers one.

    Such a wire waits for an answer only in a read, so a read follows each message that has an
    answer and blocks until it is there or given up; without one there is nothing to be read, and
    what is written meanwhile waits. The time of a read is that of the whole answer.
    """

    _answers_all: ClassVar[bool] = False  # or the queries alone, which end in `?`

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._asked = False

    @abstractmethod
    def _put(self, message: bytes) -> None:
        """Send one line."""

    @abstractmethod
    def _get(self) -> bytes:
        """Return the answer.

        Raises TimeoutError where it does not come.
        """

    def read(self, wait_s: float) -> tuple[int, bytes]:
        """Return what came and when it was read (clock of the controller, ns).

        It is read at once or at the end of what is gathered, and so never before its last byte;
        empty after `wait_s` without any.
        """
        if not self._asked:
            time.sleep(wait_s)
            return monotonic_ns(), b""
        try:
            data = self._get()
        except TimeoutError:
            data = b""
        t_ns = monotonic_ns()
        self._asked = False
        self._send()
        return t_ns, data

    def write(self, data: bytes) -> None:
        self._waiting += data.splitlines(keepends=True)
        self._send()

    def _send(self) -> None:
        while self._waiting and not self._asked:
            message = self._waiting.pop(0)
            self._put(message)
            self._asked = self._answers_all or message.rstrip().endswith(b"?")


class UsbtmcTransport(QueryTransport):
    """The kernel's usbtmc device; a line whose last command ends in `?` is a query.

    Written by the kernel's driver (drivers/usb/class/usbtmc.c) and tried on descriptors of other
    kinds; no such instrument was at hand.
    """

    def __init__(self, device: str, limit_s: float) -> None:
        super().__init__()
        # A device that turns out to be a terminal must not become ours: its hangup would end us.
        self._fd = os.open(device, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(OSError):  # kernels before 4.20 keep their 5 s
                timeout = struct.pack("I", max(100, round(limit_s * 1000)))
                fcntl.ioctl(self._fd, USBTMC_SET_TIMEOUT, timeout)
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
    """Return the port or the address of a meter, open.

    Raises OSError.
    """
    if not is_network(device):
        return open_transport(device, baud, meter.period_s, meter.gather_s)
    from instrumentation import network  # with it come libraries that few meters need

    return in_time(device, lambda: network.opened(device, meter))


def open_transport(device: str, baud: int, period_s: float, gather_s: float = 0.0) -> Transport:
    """Open the port of a meter that gives a record each `period_s`.

    Its bytes are gathered for `gather_s` (see `Meter`). Raises OSError.
    """
    if os.path.realpath(device).startswith("/dev/usbtmc"):
        return in_time(device, lambda: UsbtmcTransport(device, limit_s=2 * period_s + 1))
    return in_time(device, lambda: SerialTransport(device, baud, gather_s))


_opening: set[str] = set()


def in_time(
    device: str, opened: Callable[[], Transport], limit_s: float = OPEN_LIMIT_S
) -> Transport:
    """Return what `opened` gives; some drivers of the kernel never come back from an open.

    Raises its OSError, or one with ETIMEDOUT after `limit_s`, and at once as long as an earlier
    attempt at this device still hangs.
    """
    if device in _opening:
        raise OSError(errno.ETIMEDOUT, "its driver still hangs in an earlier attempt")
    came: queue.SimpleQueue[Transport | OSError | ValueError] = queue.SimpleQueue()
    given_up = threading.Event()

    def attempt() -> None:
        outcome: Transport | OSError | ValueError
        try:
            outcome = opened()
        except (OSError, ValueError) as error:
            outcome = error
        _opening.discard(device)
        came.put(outcome)
        if given_up.is_set():
            _closed(came)

    _opening.add(device)
    threading.Thread(target=attempt, daemon=True).start()
    try:
        got = came.get(timeout=limit_s)
    except queue.Empty:
        given_up.set()
        _closed(came)
        raise OSError(errno.ETIMEDOUT, f"its driver did not open it in {limit_s:g} s") from None
    if isinstance(got, Exception):
        raise got
    return got


def _closed(came: queue.SimpleQueue[Transport | OSError | ValueError]) -> None:
    """Close what came too late, if it has come."""
    with contextlib.suppress(queue.Empty):
        late = came.get_nowait()
        if not isinstance(late, Exception):
            late.close()
