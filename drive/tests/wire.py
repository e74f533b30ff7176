"""What hosts send to a drive, as bytes: recorded, or made to be sent many at once."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any
from unittest import mock

from drive.nvme_tcp import COMMON, IC, PDU_COMMAND, SGL_IN_CAPSULE, SGL_TRANSPORT
from drive.tests.process import NQN

_SQE = struct.Struct("<BBHI16xQI3xB6I")


class _Recorded:
    """A socket that keeps what is sent through it."""

    def __init__(self, sock: socket.socket, sent: bytearray) -> None:
        self._sock, self._sent = sock, sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def sendall(self, data: bytes) -> None:
        self._sent += data
        self._sock.sendall(data)

    def sendmsg(self, parts: list[bytes]) -> int:
        count = self._sock.sendmsg(parts)
        self._sent += b"".join(parts)[:count]
        return count


@contextlib.contextmanager
def record() -> Iterator[list[bytearray]]:
    """Yield what is sent over connections made within the block, in the order of connecting."""
    connect = socket.create_connection
    sent: list[bytearray] = []

    def recorded(*arguments: Any, **options: Any) -> _Recorded:
        sent.append(bytearray())
        return _Recorded(connect(*arguments, **options), sent[-1])

    with mock.patch("socket.create_connection", recorded):
        yield sent


def connect_pdus(queue_id: int, controller_id: int) -> bytes:
    """ICReq and Connect."""
    data = bytearray(1024)
    struct.pack_into("<H", data, 16, controller_id)
    data[256 : 256 + len(NQN)] = NQN.encode()
    sqe = _SQE.pack(0x7F, 0x40, 0, 1, 0, 1024, SGL_IN_CAPSULE, queue_id << 16, 127, 0, 0, 0, 0)
    header = COMMON.pack(PDU_COMMAND, 0, 72, 72, 72 + len(data))
    return IC.pack(0, 0, 128, 0, 128, 0, 0, 0, 0) + header + sqe + bytes(data)


def exchange(protocol: int, com_id: int, data: bytes) -> tuple[bytes, bytes]:
    """PDUs of a Security Send and of the Security Receive that fetches its answer."""
    address = protocol << 24 | com_id << 8
    send = _SQE.pack(0x81, 0x40, 0, 0, 0, len(data), SGL_IN_CAPSULE, address, len(data), 0, 0, 0, 0)
    receive = _SQE.pack(0x82, 0x40, 1, 0, 0, 2048, SGL_TRANSPORT, address, 2048, 0, 0, 0, 0)
    return (
        COMMON.pack(PDU_COMMAND, 0, 72, 72, 72 + len(data)) + send + data,
        COMMON.pack(PDU_COMMAND, 0, 72, 0, 72) + receive,
    )
