"""Write output files named by a person: replace regular files, write through anything else."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from contract.files import write
from contract.interrupts import ENDING, noted_signals, uninterrupted

WAIT_S = 0.1
READER_LIMIT_S = 10.0  # for the reader of a named pipe to open it
PIECE_BYTES = select.PIPE_BUF  # a pipe accepts this much at once if poll(2) reports it writable
SHOWN = "The result so far was shown."  # a note of an error, after which no other document follows
# The folder is read-only although the file is not, or the file is a mount point in a container.
NO_RENAME = (errno.EACCES, errno.EPERM, errno.EBUSY, errno.EROFS)


def export(path: Path, pieces: Iterable[bytes]) -> None:
    """Write to the path that a person named.

    A device, pipe or descriptor of this process is written to. A regular file, or the target of a
    link, is replaced as a whole and keeps its mode. Stops at an interrupt only while the reader of
    a pipe blocks it. Raises OSError, which names `path`.
    """
    try:
        mode = path.stat().st_mode if path.exists() else stat.S_IFREG | 0o644
        own_descriptor = _own_descriptor(path)
        if own_descriptor is None and stat.S_ISREG(mode):
            _replace(path.resolve(), pieces, stat.S_IMODE(mode))
            return
        descriptor = _open(path, mode) if own_descriptor is None else own_descriptor
        try:
            for piece in pieces:
                write_all(descriptor, piece)
        finally:
            if own_descriptor is None:
                os.close(descriptor)
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def require_writable(path: Path, room_bytes: int) -> None:
    """Check that `export` can write `room_bytes`, before there is anything to lose.

    Writes nothing and opens no pipe: its reader would take that for the end. Raises OSError.
    """
    if path.exists() and not path.is_file():
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return
    try:
        with tempfile.TemporaryFile(dir=path.resolve().parent) as file:
            os.posix_fallocate(file.fileno(), 0, room_bytes)
    except OSError as error:
        is_usable = error.errno in NO_RENAME and os.access(path, os.W_OK)
        if not is_usable and error.errno != errno.EOPNOTSUPP:  # which says nothing of the room
            error.filename = str(path)
            raise


def is_stdout(path: Path | None) -> bool:
    """Return whether the path is standard output, unless that is discarded."""
    with suppress(OSError):
        info = os.fstat(1)
        null = os.path.samestat(info, Path(os.devnull).stat())
        return path is not None and not null and os.path.samestat(info, path.stat())
    return False


def is_abandoned(stream: TextIO) -> bool:
    """Return whether the stream is a pipe without readers."""
    poll = select.poll()
    try:
        poll.register(stream.fileno(), 0)
    except (OSError, ValueError):  # not a system stream, as in a test
        return False
    return any(event & select.POLLERR for _, event in poll.poll(0))


def show(text: str, stream: TextIO | None) -> None:
    """Write text to a standard stream. Raises OSError, also if it is closed."""
    if stream is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    stream.flush()
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # not a system stream, as in a test
        stream.write(text)
        stream.flush()
        return
    write_all(descriptor, text.encode(stream.encoding, "backslashreplace"))


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of the data; interrupts are handled only while the other end blocks.

    Raises OSError or KeyboardInterrupt.
    """
    remaining, poll = memoryview(data), select.poll()
    poll.register(descriptor, select.POLLOUT)
    with noted_signals(*ENDING) as signals:
        while remaining:
            if poll.poll(1e3 * WAIT_S):
                remaining = remaining[os.write(descriptor, remaining[:PIECE_BYTES]) :]
            elif signals:
                raise KeyboardInterrupt


def _own_descriptor(path: Path) -> int | None:
    """Return the descriptor with which this process writes to a file, such as /dev/stdout."""
    with suppress(OSError):
        info = path.stat()
        for entry in Path("/proc/self/fd").iterdir():
            number = int(entry.name)
            with suppress(OSError):
                mode = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE
                if mode != os.O_RDONLY and os.path.samestat(info, os.fstat(number)):
                    return number
    return None


def _replace(path: Path, pieces: Iterable[bytes], mode: int) -> None:
    with uninterrupted():
        try:
            write(path, pieces, mode)
        except OSError as error:
            replayable = isinstance(pieces, Sequence)  # an iterator is already consumed
            if not (replayable and error.errno in NO_RENAME and os.access(path, os.W_OK)):
                raise
            path.write_bytes(b"".join(pieces))


def _open(path: Path, mode: int) -> int:
    """Open a device or pipe for writing; wait `READER_LIMIT_S` for the reader of a pipe."""
    limit_s = time.monotonic() + READER_LIMIT_S
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with noted_signals(*ENDING) as signals:
        while True:
            try:
                descriptor = os.open(path, flags)
                break
            except OSError as error:
                if error.errno != errno.ENXIO or not stat.S_ISFIFO(mode):
                    raise
                if time.monotonic() > limit_s:
                    raise OSError(errno.ENXIO, "no program reads it") from None
            if signals:
                raise KeyboardInterrupt
            time.sleep(WAIT_S)
    os.set_blocking(descriptor, True)
    return descriptor
