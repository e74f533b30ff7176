"""Raw streams of meters: frames in an append-only file.

A frame is `t_mono_ns` (i64, never negative), `length` (u32), both little-endian, and the bytes.
Bit 31 of the length marks bytes that were sent to the meter: its answers depend on them. A frame of
length 0 marks a (re)opening of the port. A cut-off last frame, as a crash or a full disk leaves it,
is ignored; so is everything from two headers of zeros on.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from contract.problem import ProblemError

_HEADER = struct.Struct("<qI")
MAX_FRAME_BYTES = 1 << 24
_SENT = 1 << 31
_NEVER_WRITTEN = bytes(2 * _HEADER.size)
_READ_BYTES = 1 << 22
_ALIKE = 32


class StreamError(ProblemError):
    """A raw stream that cannot be read; the message names the file and the place."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A damaged or missing record: its time, a word for its kind, and a sentence."""

    t_mono_ns: int
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class Frame:
    """Bytes of one read with its time, or bytes that were `sent`; none if the port was opened."""

    t_mono_ns: int
    data: bytes
    sent: bool = False


@dataclass(frozen=True, slots=True)
class Pieces:
    """Bytes of several reads in a row: arrival of the first byte and size of each, and the data."""

    t_mono_ns: Sequence[int]
    sizes: Sequence[int]
    data: bytes

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[Frame]:
        begin = 0
        for t_mono_ns, size in zip(self.t_mono_ns, self.sizes, strict=True):
            yield Frame(t_mono_ns, self.data[begin : begin + size])
            begin += size


def _frame_at(data: bytes, offset: int, start: int) -> Frame | None:
    """Return the frame at `offset` if it is whole; the data begin at `start` in the file."""
    body = offset + _HEADER.size
    if body > len(data):
        return None
    if data[offset : offset + len(_NEVER_WRITTEN)] == _NEVER_WRITTEN:
        return None  # blocks that were not written before a power cut read as zeros
    t_mono_ns, word = _HEADER.unpack_from(data, offset)
    length = word & ~_SENT
    if t_mono_ns < 0:
        raise StreamError("impossible-time", offset=start + offset, t_mono_ns=t_mono_ns)
    if length > MAX_FRAME_BYTES:
        raise StreamError("impossible-length", offset=start + offset, length=length)
    if body + length > len(data):
        return None
    return Frame(t_mono_ns, data[body : body + length], bool(word & _SENT))


def _read_file(file: BinaryIO) -> Iterator[Frame | Pieces]:
    """Yield the whole frames of a stream: see `read_pieces`."""
    data, start = b"", 0  # bytes that are not parsed yet, and their place in the file
    while piece := file.read(_READ_BYTES):
        data += piece
        offset = 0
        while True:
            times, bodies, offset = _received_frames(data, offset)
            if times:
                yield Pieces(times, [*map(len, bodies)], b"".join(bodies))
            frame = _frame_at(data, offset, start)
            if frame is None:
                break
            yield frame
            offset += _HEADER.size + len(frame.data)
        data, start = data[offset:], start + offset


def read_pieces(path: Path) -> Iterator[Frame | Pieces]:
    """Yield the whole frames of a stream in order, received ones some megabytes at a time.

    A fast meter leaves millions of frames. Raises StreamError if the file is not a stream.
    """
    try:
        with path.open("rb") as file:
            yield from _read_file(file)
    except StreamError as error:
        raise StreamError("not-a-stream", path=path, error=error) from None


def _received_frames(data: bytes, offset: int) -> tuple[list[int], list[bytes], int]:
    """Return times and bytes of the received frames from `offset` on, and where they end."""
    unpack, header, size = _HEADER.unpack_from, _HEADER.size, len(data)
    times: list[int] = []
    bodies: list[bytes] = []
    one_by_one = 0  # how many frames to read singly, as those before were of different sizes
    while offset + header <= size:
        t_mono_ns, word = unpack(data, offset)
        body = offset + header
        if not 0 < word <= MAX_FRAME_BYTES or body + word > size or t_mono_ns < 0:
            break
        if not one_by_one and offset + _ALIKE * (header + word) <= size:
            fields = _frames_of(word).unpack_from(data, offset)
            if fields[1::3] == (word,) * _ALIKE and min(fields[0::3]) >= 0:
                times += fields[0::3]
                bodies += fields[2::3]
                offset += _ALIKE * (header + word)
                continue
            one_by_one = _ALIKE
        one_by_one = max(0, one_by_one - 1)
        offset = body + word
        times.append(t_mono_ns)
        bodies.append(data[body:offset])
    return times, bodies, offset


@lru_cache(maxsize=64)
def _frames_of(length: int) -> struct.Struct:
    """Return the layout of `_ALIKE` frames of one length: reading them at once is faster."""
    return struct.Struct("<" + f"qI{length}s" * _ALIKE)


class StreamWriter:
    """A stream open for appending; one write a frame, so that a crash cuts off at most the last.

    Opening a file that ends in a cut-off frame removes that frame, or nothing after it could be
    read. A failed write (a full disk) leaves the file with whole frames only and raises its
    OSError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        whole_bytes = self.openings = 0
        if path.exists():
            with path.open("rb") as file:
                for part in _read_file(file):
                    for frame in part if isinstance(part, Pieces) else (part,):
                        whole_bytes += _HEADER.size + len(frame.data)
                        self.openings += not frame.data
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        os.ftruncate(self._fd, whole_bytes)
        self.size_bytes = whole_bytes

    def append(self, t_mono_ns: int, data: bytes, *, sent: bool = False) -> None:
        """Write one frame; `data` empty marks a (re)opening."""
        frame = _HEADER.pack(t_mono_ns, len(data) | (_SENT if sent else 0)) + data
        written = 0
        try:
            while written < len(frame):
                written += os.write(self._fd, frame[written:])
        except BaseException:  # an interruption too: nothing after half a frame can be read
            os.ftruncate(self._fd, self.size_bytes)
            raise
        self.size_bytes += len(frame)

    def close(self) -> None:
        """Write everything to the disk and close. Raises OSError if that fails."""
        try:
            os.fsync(self._fd)
        finally:
            os.close(self._fd)
