"""The bytes that hosts of this process send to a drive."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any
from unittest import mock


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
