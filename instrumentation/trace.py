"""How the raw bytes of a meter are kept: frames in an append-only file.

A frame is `t_mono_ns` (u64), `length` (u32), both little-endian, and the bytes. Bit 31 of the
length marks bytes that were sent to the meter: what it answers depends on what it was asked. A
frame of length 0 marks a (re)opening of the port. A cut-off last frame, as a crash or a full disk
leaves it, is ignored.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_HEADER = struct.Struct("<QI")
MAX_FRAME_BYTES = 1 << 24
_SENT = 1 << 31
_READ_BYTES = 1 << 22


class StreamError(Exception):
    """A raw stream that cannot be read; the message says which and where."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that was no good record: when, a word for its kind, and a sentence."""

    t_mono_ns: int
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class Frame:
    """Bytes as they came in one read, with the time of the first, or as they were `sent`.

    No bytes: the port was (re)opened.
    """

    t_mono_ns: int
    data: bytes
    sent: bool = False


def _whole_frames(file: BinaryIO) -> Iterator[tuple[Frame, int]]:
    """Frames of a stream and the offset at which each ends; stops before a cut-off one."""
    data, start = b"", 0  # what is not used up yet, and where in the file it lies
    while piece := file.read(_READ_BYTES):
        data += piece
        offset = 0
        while offset + _HEADER.size <= len(data):
            t_mono_ns, word = _HEADER.unpack_from(data, offset)
            length = word & ~_SENT
            if length > MAX_FRAME_BYTES:
                where = start + offset
                raise StreamError(f"no frame at byte {where}: a length of {length} is not possible")
            end = offset + _HEADER.size + length
            if end > len(data):
                break
            body = data[offset + _HEADER.size : end]
            yield Frame(t_mono_ns, body, bool(word & _SENT)), start + end
            offset = end
        data, start = data[offset:], start + offset


def read_frames(path: Path) -> Iterator[Frame]:
    """The whole frames of a stream, in order. Raises StreamError where the file is not a stream."""
    try:
        with path.open("rb") as file:
            for frame, _ in _whole_frames(file):
                yield frame
    except StreamError as error:
        raise StreamError(
            f"{path} is not a raw meter stream ({error}); restore it from where it was copied."
        ) from None


class StreamWriter:
    """Appends frames to a file; one write each, so that a crash cuts off at most the last.

    Opening a file that ends in a cut-off frame removes that frame, or nothing after it could be
    read. A failed write (a full disk) leaves the file with whole frames only and raises its
    OSError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        whole = self.openings = 0
        if path.exists():
            with path.open("rb") as file:
                for frame, end in _whole_frames(file):
                    whole = end
                    self.openings += not frame.data
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        os.ftruncate(self._fd, whole)
        self.size_bytes = whole

    def append(self, t_mono_ns: int, data: bytes, *, sent: bool = False) -> None:
        """Write one frame; `data` empty marks a (re)opening."""
        frame = _HEADER.pack(t_mono_ns, len(data) | (_SENT if sent else 0)) + data
        written = 0
        try:
            while written < len(frame):
                written += os.write(self._fd, frame[written:])
        except OSError:
            os.ftruncate(self._fd, self.size_bytes)
            raise
        self.size_bytes += len(frame)

    def close(self) -> None:
        """Bring everything to the disk and close. Raises OSError where that fails."""
        try:
            os.fsync(self._fd)
        finally:
            os.close(self._fd)
