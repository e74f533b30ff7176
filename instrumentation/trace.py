"""What a sample is, and how raw bytes of a meter are kept: frames in an append-only file.

A frame is `t_mono_ns` (u64), `length` (u32), both little-endian, and the bytes. A frame of length 0
marks a (re)opening of the port. A cut-off last frame, as a crash or a full disk leaves it, is
ignored.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_HEADER = struct.Struct("<QI")
MAX_FRAME_BYTES = 1 << 24


class StreamError(Exception):
    """A raw stream that cannot be read; the message says which and where."""


@dataclass(frozen=True, slots=True)
class Record:
    """One reading of one channel: the mean power over a window, as `samples.parquet` holds it.

    `t_mono_ns` is when the record's first byte arrived, on the controller's monotonic clock;
    `t_device_ms` the meter's own time at the end of the window, unwrapped, or None where it has
    none; `energy_j` the meter's own energy counter, or None; `flags` words separated by spaces.
    """

    seq: int
    epoch: int
    t_mono_ns: int
    t_device_ms: int | None
    channel: str
    window_s: float
    power_w: float
    energy_j: float | None
    flags: str


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that was no good record: when, a word for its kind, and a sentence."""

    t_mono_ns: int
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class Frame:
    """Bytes as they came in one read, with the time of the first; no bytes: the port was
    (re)opened.
    """

    t_mono_ns: int
    data: bytes


def _whole_frames(data: bytes) -> Iterator[tuple[Frame, int]]:
    """Frames of a stream and the offset at which each ends; stops before a cut-off one."""
    offset = 0
    while offset + _HEADER.size <= len(data):
        t_mono_ns, length = _HEADER.unpack_from(data, offset)
        if length > MAX_FRAME_BYTES:
            raise StreamError(f"no frame at byte {offset}: a length of {length} is not possible")
        end = offset + _HEADER.size + length
        if end > len(data):
            return
        yield Frame(t_mono_ns, data[offset + _HEADER.size : end]), end
        offset = end


def read_frames(path: Path) -> Iterator[Frame]:
    """The whole frames of a stream, in order. Raises StreamError where the file is not a stream."""
    try:
        data = path.read_bytes()
        for frame, _ in _whole_frames(data):
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
            for frame, end in _whole_frames(path.read_bytes()):
                whole = end
                self.openings += not frame.data
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        os.ftruncate(self._fd, whole)
        self.size_bytes = whole

    def append(self, t_mono_ns: int, data: bytes) -> None:
        """Write one frame; `data` empty marks a (re)opening."""
        frame = _HEADER.pack(t_mono_ns, len(data)) + data
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
