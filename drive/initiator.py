"""A small NVMe/TCP host: one connection, one queue; for tests and the benchmark."""

from __future__ import annotations

import socket
import struct
from collections import deque
from typing import NamedTuple

from .nvme_tcp import (
    COMMON,
    DATA,
    IC,
    PDU_C2H_DATA,
    PDU_COMMAND,
    PDU_H2C_DATA,
    PDU_ICREQ,
    PDU_R2T,
    PDU_RESPONSE,
    RESPONSE,
    SGL_IN_CAPSULE,
    SGL_TRANSPORT,
    SQE,
)

_WORDS = tuple(f"cdw{number}" for number in range(10, 16))


class Completion(NamedTuple):
    """Status (bit 14 is Do Not Retry), 64-bit result, data read."""

    status: int
    result: int
    data: bytes


def receive_into(sock: socket.socket, target: memoryview) -> None:
    """Fill `target`. Raises ConnectionError if the other side closes before."""
    filled = 0
    while filled < len(target):
        got = sock.recv_into(target[filled:], 0, socket.MSG_WAITALL)
        if not got:
            raise ConnectionError("the connection was closed by the other side")
        filled += got


class Initiator:
    """Connects queue `queue_id`; queue 0 opens a controller, others join `controller_id`.

    `in_capsule_bytes` is the largest write sent within its capsule; larger ones wait to be asked.
    """

    def __init__(
        self,
        port: int,
        nqn: str,
        queue_id: int = 0,
        controller_id: int = 0xFFFF,
        in_capsule_bytes: int = 1 << 20,
    ) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._in_capsule_bytes = in_capsule_bytes
        self._next_cid = 0
        self._waiting: dict[int, bytes] = {}
        self._targets: dict[int, memoryview] = {}
        self._done: deque[tuple[int, Completion]] = deque()
        self._sock.sendall(IC.pack(PDU_ICREQ, 0, 128, 0, 128, 0, 0, 0, 0))
        self._receive(128)
        data = bytearray(1024)
        struct.pack_into("<H", data, 16, controller_id)
        data[256 : 256 + len(nqn)] = nqn.encode()
        data[512:530] = b"nqn.2026-01.x:host"
        connect = self.run(0x7F, 0x01, bytes(data), cdw10=queue_id << 16, cdw11=127)
        self.controller_id = connect.result & 0xFFFF
        self.connect_status = connect.status

    def close(self) -> None:
        self._sock.close()

    def run(
        self, opcode: int, nsid: int = 0, data: bytes = b"", read_bytes: int = 0, **cdw: int
    ) -> Completion:
        cid = self.submit(opcode, nsid, data, read_bytes, None, **cdw)
        completed_cid, completion = self.complete()
        assert completed_cid == cid
        return completion

    def submit(
        self,
        opcode: int,
        nsid: int = 0,
        data: bytes = b"",
        read_bytes: int = 0,
        into: memoryview | None = None,
        **cdw: int,
    ) -> int:
        """Send a command and return its id; what it reads goes to `into` if given."""
        cid = self._next_cid = (self._next_cid + 1) & 0x7FFF
        in_capsule = len(data) <= self._in_capsule_bytes
        kind = SGL_IN_CAPSULE if data and in_capsule else SGL_TRANSPORT
        words = [cdw.get(name, 0) for name in _WORDS]
        sqe = SQE.pack(opcode, 0x40, cid, nsid, 0, len(data) or read_bytes, kind, *words)
        if into is not None:
            self._targets[cid] = into
        if data and in_capsule:
            header = COMMON.pack(PDU_COMMAND, 0, 72, 72, 72 + len(data))
            self._send(header + sqe, data)
        else:
            self._waiting[cid] = data
            self._sock.sendall(COMMON.pack(PDU_COMMAND, 0, 72, 0, 72) + sqe)
        return cid

    def complete(self) -> tuple[int, Completion]:
        """Wait for the next completion of any command."""
        while not self._done:
            self._serve()
        return self._done.popleft()

    def _serve(self) -> None:
        header = self._receive(24)
        kind, *_ = COMMON.unpack_from(header)
        if kind == PDU_RESPONSE:
            result, _, _, cid, status = RESPONSE.unpack(header)[5:]
            self._targets.pop(cid, None)
            self._done.append((cid, Completion(status >> 1, result, b"")))
        elif kind == PDU_C2H_DATA:
            cid, _, _, length = DATA.unpack(header)[5:]
            target = self._targets.pop(cid, None)
            data = self._receive(length) if target is None else b""
            if target is not None:
                receive_into(self._sock, target[:length])
            self._done.append((cid, Completion(0, 0, data)))
        elif kind == PDU_R2T:
            cid, tag, offset, length = DATA.unpack(header)[5:]
            part = self._waiting.pop(cid)[offset : offset + length]
            half = len(part) // 2 & ~3
            for start, piece in ((0, part[:half]), (half, part[half:])):
                total = 24 + len(piece)
                self._send(
                    DATA.pack(PDU_H2C_DATA, 4, 24, 24, total, cid, tag, start, len(piece)), piece
                )
        else:
            raise ConnectionError(f"the drive sent a PDU of type {kind}")

    def _send(self, header: bytes, data: bytes) -> None:
        sent = self._sock.sendmsg([header, data])
        if sent < len(header) + len(data):
            self._sock.sendall((header + data)[sent:])

    def _receive(self, count: int) -> bytes:
        data = bytearray(count)
        receive_into(self._sock, memoryview(data))
        return bytes(data)

    # The commands that tests and benchmark use.

    def identify(self, cns: int, nsid: int = 0) -> bytes:
        return self.run(0x06, nsid, read_bytes=4096, cdw10=cns).data

    def read(self, lba: int, blocks: int, block_bytes: int = 4096) -> Completion:
        return self.run(0x02, 1, read_bytes=blocks * block_bytes, cdw10=lba, cdw12=blocks - 1)

    def write(self, lba: int, data: bytes, block_bytes: int = 4096) -> Completion:
        return self.run(0x01, 1, data, cdw10=lba, cdw12=len(data) // block_bytes - 1)

    def security_send(self, protocol: int, specific: int, data: bytes) -> Completion:
        return self.run(0x81, 0, data, cdw10=protocol << 24 | specific << 8, cdw11=len(data))

    def security_receive(self, protocol: int, specific: int, length: int = 2048) -> Completion:
        address = protocol << 24 | specific << 8
        return self.run(0x82, 0, read_bytes=length, cdw10=address, cdw11=length)
