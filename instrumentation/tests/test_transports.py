"""Test serial transports on pseudo-terminals and usbtmc on sockets."""

from __future__ import annotations

import array
import errno
import fcntl
import os
import pty
import select
import socket
import termios
import threading
import time
import tty
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from instrumentation import transports
from instrumentation.clock import monotonic_ns
from instrumentation.meters.smartpower3 import SmartPower3
from instrumentation.simulators.play import SimulatedPort
from instrumentation.transports import (
    SerialTransport,
    Transport,
    UsbtmcTransport,
    open_in_time,
    open_meter,
)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[SimulatedPort]:
    port = SimulatedPort(tmp_path / "meter")
    yield port
    port.close()


def test_bytes_go_both_ways_with_the_time_of_their_read(port: SimulatedPort) -> None:
    transport: Transport = SerialTransport(str(port.link), 115200)
    assert isinstance(transport, SerialTransport)
    assert transport.read(0.0)[1] == b""
    before_ns = monotonic_ns()
    port.send(b"one\r\n\x00\xff\x11")
    t_ns, data = transport.read(1.0)
    assert data == b"one\r\n\x00\xff\x11"  # nothing is translated
    assert before_ns < t_ns <= monotonic_ns()
    transport.write(b"ask\n\x03\x04\r")
    port.wait(1.0)
    assert port.receive() == b"ask\n\x03\x04\r"
    transport.close()
    transport.close()
    assert port.receive() == b""
    port.wait(0.001)  # nobody there: no error


def _waiting(fd: int) -> int:
    """Return the number of bytes that are ready to be read."""
    count = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, count)
    return count[0]


def test_no_byte_has_a_time_before_its_arrival(
    port: SimulatedPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine may stop the reader between poll and read while more bytes arrive."""
    transport = SerialTransport(str(port.link), 115200)
    read = os.read
    sent_ns: list[int] = []

    def interrupted(fd: int, size: int) -> bytes:
        if fd == transport._fd and not sent_ns:
            port.send(b"second")
            sent_ns.append(monotonic_ns())
            while _waiting(fd) < len(b"first, second"):  # a terminal takes its time
                time.sleep(0.001)
        return read(fd, size)

    monkeypatch.setattr(os, "read", interrupted)
    port.send(b"first, ")
    t_ns, data = transport.read(1.0)
    transport.close()
    assert data == b"first, second"
    assert t_ns >= sent_ns[0]


def test_gathered_bytes_are_read_together(port: SimulatedPort) -> None:
    transport = SerialTransport(str(port.link), 115200, 0.004)
    port.send(b"a" * 18)
    threading.Timer(0.001, port.send, (b"b" * 18,)).start()
    got = b"".join(transport.read(0.5)[1] for _ in range(2))
    assert got == b"a" * 18 + b"b" * 18
    transport.close()


def test_a_pulled_plug_is_an_error(tmp_path: Path) -> None:
    port = SimulatedPort(tmp_path / "meter")
    transport = SerialTransport(str(port.link), 115200)
    port.close()
    with pytest.raises(OSError):
        for _ in range(3):
            transport.read(0.1)
    with pytest.raises(OSError):
        transport.write(b"x")
    transport.close()


def test_a_port_is_opened_exclusively(port: SimulatedPort) -> None:
    transport = SerialTransport(str(port.link), 115200)
    with pytest.raises(OSError) as caught:
        SerialTransport(str(port.link), 115200)
    assert caught.value.errno in (errno.EAGAIN, errno.EBUSY)
    transport.close()


@pytest.fixture
def instrument() -> Iterator[tuple[UsbtmcTransport, int]]:
    """Provide a transport on a raw pseudo-terminal instead of /dev/usbtmcN.

    A descriptor that is read and written.
    """
    master, slave = pty.openpty()
    tty.setraw(slave)
    transport = UsbtmcTransport(os.ttyname(slave), 1.0)
    yield transport, master
    transport.close()
    os.close(slave)
    os.close(master)


def _heard(master: int, size: int) -> bytes:
    """Read what was written to a pseudo-terminal, which arrives in parts.

    `size` bytes or more.
    """
    received = b""
    while select.select([master], [], [], 5.0 if len(received) < size else 0.1)[0]:
        received += os.read(master, 100)
    return received


def test_usbtmc_reads_once_after_each_query(instrument: tuple[UsbtmcTransport, int]) -> None:
    transport, master = instrument
    os.write(master, b"nobody asked\n")
    assert transport.read(0.0)[1] == b""  # a read without a query would block and then fail
    first, second = b"*CLS\n:STAT:EESR?\n", b":COMM:WAIT 1\n:NUM:NORM:VAL?\n"
    transport.write(first + second)
    assert _heard(master, len(first)) == first  # the rest waits for the answer
    assert transport.read(1.0)[1] == b"nobody asked\n"
    assert _heard(master, len(second)) == second
    os.write(master, b"1.25E+01\n")
    assert transport.read(1.0)[1] == b"1.25E+01\n"
    assert transport.read(0.0)[1] == b""


def test_usbtmc_is_opened_exclusively(instrument: tuple[UsbtmcTransport, int]) -> None:
    transport, _ = instrument
    with pytest.raises(BlockingIOError):
        UsbtmcTransport(os.ttyname(transport._fd), 1.0)


def test_usbtmc_is_chosen_by_its_path(tmp_path: Path) -> None:
    meter = SmartPower3({"0": "system"}, {})
    with pytest.raises(FileNotFoundError):
        open_meter("/dev/usbtmc99", 9600, meter)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        with pytest.raises(OSError):
            UsbtmcTransport(str(tmp_path / "socket"), 1.0)


def test_a_hanging_open_times_out(tmp_path: Path) -> None:
    """The open of a FIFO without a writer hangs as those of some drivers."""
    fifo = tmp_path / "port"
    os.mkfifo(fifo)

    def opened() -> Transport:
        os.close(os.open(fifo, os.O_RDONLY))
        raise OSError(errno.ENODEV, "it opened after all")

    for message in ("did not open it", "still hangs"):
        with pytest.raises(OSError, match=message) as raised:
            open_in_time(str(fifo), opened, limit_s=0.2)
        assert raised.value.errno == errno.ETIMEDOUT
    os.close(os.open(fifo, os.O_WRONLY))  # the driver comes to its senses
    while str(fifo) in transports._hanging:
        time.sleep(0.01)
    with pytest.raises(OSError) as raised:
        open_in_time(str(fifo), lambda: _raising(OSError(errno.ENODEV, "after all")), limit_s=5)
    assert raised.value.errno == errno.ENODEV


def test_two_meters_at_one_address_are_opened_at_once() -> None:
    both = threading.Barrier(2, timeout=5)

    def opened() -> Transport:
        both.wait()
        raise OSError(errno.ENODEV, "it opened")

    def open_one(_: int) -> int | None:
        with pytest.raises(OSError) as raised:
            open_in_time("http://192.0.2.1", opened, limit_s=5)
        return raised.value.errno

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(open_one, range(2))) == [errno.ENODEV] * 2


def _raising(error: OSError) -> Transport:
    raise error
