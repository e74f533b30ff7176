"""A small NBD host: one connection; for the benchmark's comparison with another server.

Protocol: the NBD project's doc/proto.md, fixed newstyle handshake with the default export, simple
replies. It is built as our NVMe/TCP host is, so that the two cost about the same.
"""

from __future__ import annotations

import socket
import struct

_GREETING = struct.Struct(">8s8sH")
_OPTION = struct.Struct(">I8sII")
_EXPORT = struct.Struct(">QH")
_REQUEST = struct.Struct(">IHHQQI")
_REPLY = struct.Struct(">IIQ")
_FIXED_NEWSTYLE_NO_ZEROES = 3
_OPTION_EXPORT_NAME = 1
_REQUEST_MAGIC, _REPLY_MAGIC = 0x25609513, 0x67446698
_READ, _WRITE = 0, 1


class NbdHost:
    """Connects to `port` on 127.0.0.1; OSError for whatever the server refuses."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._targets: dict[int, memoryview] = {}
        self._next = 0
        magic, options, _ = _GREETING.unpack(self._receive(_GREETING.size))
        if (magic, options) != (b"NBDMAGIC", b"IHAVEOPT"):
            raise ConnectionError("this is no NBD server of the newstyle handshake")
        flags, name = _FIXED_NEWSTYLE_NO_ZEROES, _OPTION_EXPORT_NAME
        self._sock.sendall(_OPTION.pack(flags, b"IHAVEOPT", name, 0))
        self.size_bytes, _ = _EXPORT.unpack(self._receive(_EXPORT.size))

    def close(self) -> None:
        self._sock.close()

    def submit_read(self, offset: int, into: memoryview) -> None:
        """Asks for bytes; they stand in `into` once the request is complete."""
        handle = self._handle()
        self._targets[handle] = into
        self._sock.sendall(_REQUEST.pack(_REQUEST_MAGIC, 0, _READ, handle, offset, len(into)))

    def submit_write(self, offset: int, data: bytes) -> None:
        """Sends bytes to be stored."""
        handle = self._handle()
        header = _REQUEST.pack(_REQUEST_MAGIC, 0, _WRITE, handle, offset, len(data))
        sent = self._sock.sendmsg([header, data])
        if sent < len(header) + len(data):
            self._sock.sendall((header + data)[sent:])

    def complete(self) -> None:
        """Waits for the next reply to any request."""
        magic, error, handle = _REPLY.unpack(self._receive(_REPLY.size))
        target = self._targets.pop(handle, None)
        if magic != _REPLY_MAGIC or error:
            raise OSError(error, "the NBD server failed a request")
        if target is not None:
            self._receive_into(target)

    def _handle(self) -> int:
        self._next += 1
        return self._next

    def _receive(self, count: int) -> bytes:
        data = bytearray(count)
        self._receive_into(memoryview(data))
        return bytes(data)

    def _receive_into(self, target: memoryview) -> None:
        done = 0
        while done < len(target):
            got = self._sock.recv_into(target[done:], 0, socket.MSG_WAITALL)
            if not got:
                raise ConnectionError("the NBD server closed the connection")
            done += got
