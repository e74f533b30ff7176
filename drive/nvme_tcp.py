"""NVMe/TCP transport: PDUs and one connection (one queue pair), NVMe-TCP Transport 1.0.

Header and data digests are declined, as the specification allows; hosts do not ask by default.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from .status import INVALID_FIELD

MAX_TRANSFER_BYTES = 1 << 20
PDU_ICREQ, PDU_ICRESP, PDU_H2C_TERM, PDU_C2H_TERM = 0, 1, 2, 3
PDU_COMMAND, PDU_RESPONSE, PDU_H2C_DATA, PDU_C2H_DATA, PDU_R2T = 4, 5, 6, 7, 9
FLAGS_LAST_SUCCESS = 0x0C
SGL_IN_CAPSULE, SGL_TRANSPORT = 0x01, 0x5A

COMMON = struct.Struct("<BBBBI")
IC = struct.Struct("<BBBBIHBBI112x")
SQE = struct.Struct("<BBHI16xQI3xBIIIIII")
RESPONSE = struct.Struct("<BBBBIQHHHH")
DATA = struct.Struct("<BBBBIHHII4x")
TERM = struct.Struct("<BBBBIHI10x")
_HEADER_BYTES = {PDU_ICREQ: 128, PDU_COMMAND: 72, PDU_H2C_DATA: 24, PDU_H2C_TERM: 24}
_RECEIVE_BYTES = 64 * 1024
_MAX_TRANSFERS = 2  # under way at once, each with a buffer: bounds what a host can make us hold
_MAX_PDU_BYTES = MAX_TRANSFER_BYTES + 256


class ProtocolError(Exception):
    """The peer broke the transport's rules; `fes` is the Fatal Error Status to send."""

    def __init__(self, message: str, fes: int = 0x01) -> None:
        super().__init__(message)
        self.fes = fes


class Command(NamedTuple):
    """A submission queue entry with its SGL; `cdw10`..`cdw15` as the host sent them."""

    opcode: int
    flags: int
    cid: int
    nsid: int
    sgl_address: int
    sgl_length: int
    sgl_type: int
    cdw10: int
    cdw11: int
    cdw12: int
    cdw13: int
    cdw14: int
    cdw15: int

    @property
    def takes_data(self) -> bool:
        """Whether the host sends data with it (the low two bits of opcode or fabrics type)."""
        kind = self.nsid if self.opcode == 0x7F else self.opcode
        return kind & 3 == 1 and self.sgl_length > 0


class Header(NamedTuple):
    """The eight bytes that every PDU starts with."""

    type: int
    flags: int
    header_bytes: int
    data_offset: int
    total_bytes: int


def parse_header(data: bytes | memoryview) -> Header:
    """Check the common header; raises ProtocolError for a PDU that no host may send."""
    header = Header._make(COMMON.unpack_from(data))
    expected = _HEADER_BYTES.get(header.type)
    if expected is None:
        raise ProtocolError(f"PDU type {header.type} is not one that a host sends")
    if header.header_bytes != expected or not expected <= header.total_bytes <= _MAX_PDU_BYTES:
        raise ProtocolError(f"PDU type {header.type} has a wrong length")
    if header.type in (PDU_ICREQ, PDU_H2C_TERM):
        return header
    if header.total_bytes > expected and not expected <= header.data_offset <= header.total_bytes:
        raise ProtocolError(f"PDU type {header.type} has a wrong data offset")
    return header


def parse_command(data: bytes | memoryview, offset: int = 0) -> Command:
    """Parse the 64 bytes of a submission queue entry at `offset`."""
    return Command._make(SQE.unpack_from(data, offset))


class Handler(Protocol):
    """Receiver of a connection's complete commands; it answers through the connection."""

    def execute(self, command: Command, data: memoryview) -> None: ...


class Connection:
    """One TCP connection: receives PDUs, gathers a command's data, sends its answer.

    Data is received straight into the buffer that the command works on; a thread owns it.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._input = memoryview(bytearray(_RECEIVE_BYTES))
        self._start = self._end = 0
        # A command brings data or is answered with data, never both: one buffer serves either.
        self._output = memoryview(bytearray(DATA.size + MAX_TRANSFER_BYTES))
        self._data = self._output[DATA.size :]
        self._transfers: dict[int, tuple[Command, memoryview, int]] = {}
        self._postponed: deque[Command] = deque()
        self._next_tag = 0
        self._head = 0
        self._silent = False
        self.queue_entries = 1

    def silence(self) -> None:
        """Run no further command, though the connection is still open."""
        self._silent = True

    def close(self) -> None:
        """End the connection from any thread."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def run(self, handler: Handler) -> None:
        """Serve until the host leaves; raises ProtocolError after reporting it to the host."""
        try:
            self._handshake()
            while True:
                self._serve_one(handler)
        except ProtocolError as error:
            with contextlib.suppress(OSError):
                self._sock.sendall(TERM.pack(PDU_C2H_TERM, 0, 24, 0, 24, error.fes, 0))
            raise

    def _handshake(self) -> None:
        self._need(COMMON.size)
        header = parse_header(self._input[self._start : self._end])
        if header.type != PDU_ICREQ or header.total_bytes != IC.size:
            raise ProtocolError("a connection starts with ICReq", fes=0x02)
        self._need(IC.size)
        version = IC.unpack_from(self._input, self._start)[5]
        self._start += IC.size
        if version != 0:
            raise ProtocolError(f"PDU format version {version} is unknown", fes=0x01)
        self._sock.sendall(IC.pack(PDU_ICRESP, 0, 128, 0, 128, 0, 0, 0, MAX_TRANSFER_BYTES))

    def _serve_one(self, handler: Handler) -> None:
        self._need(COMMON.size)
        header = parse_header(self._input[self._start : self._end])
        self._need(header.header_bytes)
        if self._silent:
            raise ConnectionError("the drive has ended the connection")
        start = self._start
        self._start += header.header_bytes
        if header.type == PDU_COMMAND:
            self._command(handler, header, parse_command(self._input, start + COMMON.size))
        elif header.type == PDU_H2C_DATA:
            _, _, tag, offset, length = DATA.unpack_from(self._input, start)[4:]
            self._host_data(handler, header, tag, offset, length)
        elif header.type == PDU_H2C_TERM:
            raise ConnectionError("the host ended the connection for a protocol error")
        else:
            raise ProtocolError("a second ICReq", fes=0x02)

    def _command(self, handler: Handler, header: Header, command: Command) -> None:
        in_capsule = header.total_bytes - header.header_bytes
        if in_capsule:
            self._skip(header.data_offset - header.header_bytes)
            in_capsule = header.total_bytes - header.data_offset
            if in_capsule > MAX_TRANSFER_BYTES:
                raise ProtocolError("more data in the capsule than allowed", fes=0x05)
            self._receive_into(self._data[:in_capsule])
        if not command.takes_data:
            handler.execute(command, self._data[:0])
        elif command.sgl_type == SGL_IN_CAPSULE and command.sgl_length == in_capsule:
            handler.execute(command, self._data[:in_capsule])
        elif command.sgl_type == SGL_TRANSPORT and command.sgl_length <= MAX_TRANSFER_BYTES:
            if len(self._postponed) >= self.queue_entries:
                raise ProtocolError("more commands wait for data than the queue has entries", 0x02)
            self._postponed.append(command)
            self._request_data()
        else:
            self.respond(command.cid, INVALID_FIELD)

    def _request_data(self) -> None:
        """Ask for the data of waiting commands, as far as buffers may be allocated."""
        while self._postponed and len(self._transfers) < _MAX_TRANSFERS:
            command = self._postponed.popleft()
            tag = self._next_tag = (self._next_tag + 1) & 0xFFFF
            self._transfers[tag] = command, memoryview(bytearray(command.sgl_length)), 0
            request = DATA.pack(PDU_R2T, 0, 24, 0, 24, command.cid, tag, 0, command.sgl_length)
            self._sock.sendall(request)

    def _host_data(
        self, handler: Handler, header: Header, tag: int, offset: int, length: int
    ) -> None:
        if tag not in self._transfers:
            raise ProtocolError("data for a transfer that was not asked for")
        command, buffer, received = self._transfers[tag]
        if offset != received or not 0 < length <= len(buffer) - offset:
            raise ProtocolError("data outside of what was asked for", fes=0x04)
        if header.total_bytes - header.data_offset != length:
            raise ProtocolError("data length and PDU length differ")
        self._skip(header.data_offset - header.header_bytes)
        self._receive_into(buffer[offset : offset + length])
        if offset + length < len(buffer):
            self._transfers[tag] = command, buffer, offset + length
            return
        del self._transfers[tag]
        handler.execute(command, buffer)
        self._request_data()

    def _need(self, count: int) -> None:
        """Make `count` contiguous bytes available in the input buffer."""
        if self._end - self._start >= count:
            return
        buffered = self._end - self._start
        self._input[:buffered] = self._input[self._start : self._end]
        self._start, self._end = 0, buffered
        while self._end < count:
            got = self._sock.recv_into(self._input[self._end :])
            if not got:
                raise ConnectionError("the host closed the connection")
            self._end += got

    def _receive_into(self, target: memoryview) -> None:
        buffered = min(self._end - self._start, len(target))
        target[:buffered] = self._input[self._start : self._start + buffered]
        self._start += buffered
        while buffered < len(target):
            got = self._sock.recv_into(target[buffered:], 0, socket.MSG_WAITALL)
            if not got:
                raise ConnectionError("the host closed the connection within a transfer")
            buffered += got

    def _skip(self, count: int) -> None:
        if count:
            self._receive_into(memoryview(bytearray(count)))

    def _next_head(self) -> int:
        self._head = (self._head + 1) % self.queue_entries
        return self._head

    def respond(self, cid: int, status: int = 0, result: int = 0) -> None:
        """Complete a command with `status` (DNR is bit 14) and the 64-bit `result`."""
        head = self._next_head()
        self._sock.sendall(
            RESPONSE.pack(PDU_RESPONSE, 0, 24, 0, 24, result, head, 0, cid, status << 1)
        )

    def send_data(self, cid: int, length: int, fill: Callable[[memoryview], None]) -> None:
        """Let `fill` write `length` bytes into the output buffer, then complete with them."""
        fill(self._output[DATA.size : DATA.size + length])
        self._data_header(cid, length)
        self._sock.sendall(self._output[: DATA.size + length])

    def send_file(self, cid: int, fd: int, offset: int, length: int) -> None:
        """Complete a read with bytes of a file that never pass through this process."""
        self._data_header(cid, length)
        self._sock.sendall(self._output[: DATA.size], socket.MSG_MORE)
        end = offset + length
        while offset < end:
            sent = os.sendfile(self._sock.fileno(), fd, offset, end - offset)
            if not sent:
                raise ConnectionError("the backing file is shorter than the disk")
            offset += sent

    def _data_header(self, cid: int, length: int) -> None:
        self._next_head()
        DATA.pack_into(
            self._output, 0,
            PDU_C2H_DATA, FLAGS_LAST_SUCCESS, 24, 24, DATA.size + length, cid, 0, 0, length,
        )  # fmt: skip
