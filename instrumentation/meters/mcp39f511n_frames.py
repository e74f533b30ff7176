"""What a Microchip MCP39F511N is told and what it answers, byte for byte.

A request is `A5 length command… sum`: the length is that of the whole frame, the sum covers all
bytes before it, modulo 256. `41 hi lo` sets the address, `4E n` reads n bytes, `4D n …` writes
them. A read is answered by `06 length data… sum`, a write by `06` alone; `15` says that a request
is not understood and `51` that its sum was wrong. Data is little-endian (Microchip DS20005473B;
osmhpi/pinpoint, `mcp_com.c`; green-coding-solutions/green-metrics-tool, its mcp provider).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

_HEADER = 0xA5
_SET_ADDRESS = 0x41
_READ = 0x4E
_WRITE = 0x4D
_ACK = 0x06
REFUSALS = {0x15: "not understood", 0x51: "its checksum was wrong"}

# Registers. Their order between 0002 and 0021 is that of the data sheet's map.
OUTPUTS = 0x0002
WINDOW_EXPONENT = 0x00A8
RANGE_1 = 0x00AE
RANGE_2 = 0x00BE


def checksum(data: bytes) -> int:
    """The 8-bit sum that ends every frame."""
    return sum(data) & 0xFF


def _framed(command: bytes) -> bytes:
    frame = bytes([_HEADER, len(command) + 3]) + command
    return frame + bytes([checksum(frame)])


def read_request(address: int, count: int) -> bytes:
    """Asks for `count` bytes from `address` on."""
    return _framed(bytes([_SET_ADDRESS, *address.to_bytes(2, "big"), _READ, count]))


def write_request(address: int, data: bytes) -> bytes:
    """Puts `data` into the registers from `address` on."""
    start = bytes([_SET_ADDRESS, *address.to_bytes(2, "big"), _WRITE, len(data)])
    return _framed(start + data)


class Request(NamedTuple):
    """What was asked: `size` bytes from `address` on; 0 where something was written."""

    address: int
    size: int

    @classmethod
    def of(cls, frame: bytes) -> Request:
        """Of a frame that `read_request` or `write_request` made."""
        reads = frame[5] == _READ
        return cls(int.from_bytes(frame[3:5], "big"), frame[6] if reads else 0)

    @property
    def answer_bytes(self) -> int:
        return self.size + 3 if self.size else 1


class Answer(NamedTuple):
    """The answer at `start` of what was received; `data` is empty for a write."""

    start: int
    end: int
    data: bytes


def find_answer(received: bytes, request: Request) -> Answer | None:
    """The first whole and sound answer to this very request; None if there is none (yet)."""
    if not request.size:
        return Answer(0, 1, b"") if received[:1] == bytes([_ACK]) else None
    length = request.answer_bytes
    start = received.find(bytes([_ACK, length]))
    while start >= 0 and start + length <= len(received):
        frame = received[start : start + length]
        if checksum(frame[:-1]) == frame[-1]:
            return Answer(start, start + length, frame[2:-1])
        start = received.find(bytes([_ACK, length]), start + 1)
    return None


def is_damaged(received: bytes, request: Request) -> bool:
    """Whether as many bytes as the answer has are there, but not the answer."""
    starts = received[:2] == bytes([_ACK, request.answer_bytes])
    return starts and len(received) >= request.answer_bytes


def power_w(raw: int, range_register: int) -> float:
    """Active power in W. Bits 16 to 23 of the range say by how many bits it was shifted: a step
    is 10 mW at 19 and 1.25 mW at 16.
    """
    return raw * 0.01 * 2.0 ** ((range_register >> 16 & 0xFF) - 19)


@dataclass(frozen=True)
class Outputs:
    """One look at the output registers from 0002 on.

    `measured` is all that comes from the accumulation window and therefore changes with it;
    `line_mhz` the line frequency in mHz; `power_raw` the active power of both channels. The sign
    of the power stands in the system status, in bits that nobody has verified: it is not used.
    """

    measured: bytes
    line_mhz: int
    power_raw: tuple[int, int]

    @classmethod
    def of(cls, data: bytes) -> Outputs:
        """Of at least 28 bytes: status, version, voltage, frequency (2 each), power factors (2 of
        2), currents and active powers (2 of 4 each).
        """
        return cls(
            measured=data[4:6] + data[8:28],
            line_mhz=int.from_bytes(data[6:8], "little"),
            power_raw=(
                int.from_bytes(data[20:24], "little"),
                int.from_bytes(data[24:28], "little"),
            ),
        )


class Look(NamedTuple):
    """Outputs as they were seen: asked for at `asked_ns`, with the first byte at `t_ns`."""

    outputs: Outputs
    asked_ns: int
    t_ns: int
