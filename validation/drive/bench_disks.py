"""The disks that the benchmark compares, all with the same interface."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from contract.places import module_command
from drive.initiator import Initiator, receive_into
from drive.tests.opal_host import set_up_range, take_ownership
from lab.launcher import wait_for
from lab.network import free_port
from lab.state import REPOSITORY

NQN = "nqn.2026-01.org.fde-testbed:bench"
_PIN = b"benchmark"
_START_S = 30
_GREETING = struct.Struct(">8s8sH")
_OPTION = struct.Struct(">I8sII")
_EXPORT = struct.Struct(">QH")
_REQUEST = struct.Struct(">IHHQQI")
_REPLY = struct.Struct(">IIQ")
_FIXED_NEWSTYLE_NO_ZEROES = 3
_OPTION_EXPORT_NAME = 1
_REQUEST_MAGIC, _REPLY_MAGIC = 0x25609513, 0x67446698
_READ, _WRITE = 0, 1


class BenchError(Exception):
    """The benchmark cannot be run; the message is one sentence for people."""


class Disk(Protocol):
    """A disk: `read` and `write` begin a request, `complete` waits for any one to end.

    `pid` is the server's process, 0 where there is none.
    """

    pid: int

    def read(self, offset: int, into: memoryview) -> None: ...

    def write(self, offset: int, data: bytes) -> None: ...

    def complete(self) -> None: ...

    def close(self) -> None: ...


class FileDisk:
    """The backing file, by system calls of this process; no request is ever under way."""

    pid = 0

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR)

    def read(self, offset: int, into: memoryview) -> None:
        if os.preadv(self._fd, [into], offset) != len(into):
            raise BenchError("the backing file was read in parts")

    def write(self, offset: int, data: bytes) -> None:
        if os.pwrite(self._fd, data, offset) != len(data):
            raise BenchError("the backing file was written in parts")

    def complete(self) -> None:
        pass

    def close(self) -> None:
        os.close(self._fd)


class NbdDisk:
    """Another server's disk, over one connection; OSError for any refusal of the server.

    Protocol: the NBD project's doc/proto.md, fixed newstyle handshake with the default export,
    simple replies. It is built as our NVMe/TCP host is, so that the two cost about the same.
    """

    def __init__(self, port: int, pid: int) -> None:
        self.pid = pid
        self._sock = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._targets: dict[int, memoryview] = {}
        self._next = 0
        magic, options, _ = _GREETING.unpack(self._receive(_GREETING.size))
        if (magic, options) != (b"NBDMAGIC", b"IHAVEOPT"):
            raise ConnectionError("not an NBD server with the newstyle handshake")
        flags, name = _FIXED_NEWSTYLE_NO_ZEROES, _OPTION_EXPORT_NAME
        self._sock.sendall(_OPTION.pack(flags, b"IHAVEOPT", name, 0))
        self.size_bytes, _ = _EXPORT.unpack(self._receive(_EXPORT.size))

    def close(self) -> None:
        self._sock.close()

    def read(self, offset: int, into: memoryview) -> None:
        handle = self._handle()
        self._targets[handle] = into
        self._sock.sendall(_REQUEST.pack(_REQUEST_MAGIC, 0, _READ, handle, offset, len(into)))

    def write(self, offset: int, data: bytes) -> None:
        handle = self._handle()
        header = _REQUEST.pack(_REQUEST_MAGIC, 0, _WRITE, handle, offset, len(data))
        sent = self._sock.sendmsg([header, data])
        if sent < len(header) + len(data):
            self._sock.sendall((header + data)[sent:])

    def complete(self) -> None:
        magic, error, handle = _REPLY.unpack(self._receive(_REPLY.size))
        target = self._targets.pop(handle, None)
        if magic != _REPLY_MAGIC or error:
            raise OSError(error, "the NBD server failed a request")
        if target is not None:
            receive_into(self._sock, target)

    def _handle(self) -> int:
        self._next += 1
        return self._next

    def _receive(self, count: int) -> bytes:
        data = bytearray(count)
        receive_into(self._sock, memoryview(data))
        return bytes(data)


class NvmeDisk:
    """One I/O queue of a virtual drive, on a separate controller."""

    def __init__(self, port: int, pid: int, block_bytes: int) -> None:
        self.pid = pid
        self._admin = Initiator(port, NQN)
        self._queue = Initiator(port, NQN, 1, self._admin.controller_id)
        self._block_bytes = block_bytes

    def read(self, offset: int, into: memoryview) -> None:
        size = self._block_bytes
        self._queue.submit(
            0x02, 1, read_bytes=len(into), into=into,
            cdw10=offset // size & 0xFFFFFFFF, cdw11=offset // size >> 32,
            cdw12=len(into) // size - 1,
        )  # fmt: skip

    def write(self, offset: int, data: bytes) -> None:
        size = self._block_bytes
        self._queue.submit(
            0x01, 1, data,
            cdw10=offset // size & 0xFFFFFFFF, cdw11=offset // size >> 32,
            cdw12=len(data) // size - 1,
        )  # fmt: skip

    def complete(self) -> None:
        _, completion = self._queue.complete()
        if completion.status:
            raise BenchError(f"the drive ended a command with status {completion.status:#06x}")

    def close(self) -> None:
        self._queue.close()
        self._admin.close()


@contextmanager
def _running(command: list[str], ready: Path, server: str) -> Iterator[int]:
    """Run a server until it has written `ready`; yields its process id."""
    process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: ready.exists() or process.poll() is not None, _START_S)
        if not ready.exists():
            raise BenchError(f"{server} did not start: see its output above")
        yield process.pid
    finally:
        process.terminate()
        process.wait()


@contextmanager
def running_drive(
    folder: Path, size_bytes: int, block_bytes: int, kind: str
) -> Iterator[tuple[int, int]]:
    """Run a drive in `folder`; yields its port and process id.

    Kinds are `plain`, `opal`, and `locking` (an enabled, unlocked range over the whole disk).
    """
    folder.mkdir()
    command = [
        *module_command("drive", str(folder / "disk")), "--size", str(size_bytes),
        "--block-size", str(block_bytes), "--nqn", NQN, "--ready-file", str(folder / "ready"),
    ]  # fmt: skip
    if kind != "plain":
        command.append("--opal")
    with _running(command, folder / "ready", "the drive") as pid:
        port = int(json.loads((folder / "ready").read_text())["port"])
        if kind == "locking":
            host = Initiator(port, NQN)
            take_ownership(host, _PIN)
            set_up_range(host, _PIN, 1, (0, size_bytes // block_bytes), _PIN)
            host.close()
        yield port, pid


@contextmanager
def running_nbdkit(folder: Path, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Run `nbdkit` with its file plugin; raises BenchError if it is not installed."""
    program = shutil.which("nbdkit", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        raise BenchError("nbdkit is not installed (Debian package nbdkit)")
    folder.mkdir()
    with (folder / "disk").open("xb") as file:
        file.truncate(size_bytes)
    port = free_port()
    command = [
        program, "--foreground", "--ipaddr", "127.0.0.1", "--port", str(port),
        "--pidfile", str(folder / "pid"), "file", str(folder / "disk"),
    ]  # fmt: skip
    with _running(command, folder / "pid", "nbdkit") as pid:
        yield port, pid
