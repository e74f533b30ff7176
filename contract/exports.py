"""Files that a person names: written through what is no regular file, replaced where it is one."""

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
PIECE_BYTES = select.PIPE_BUF  # so much a pipe takes at once where poll(2) calls it writable
# The file may be written and its folder not, or it is a mount point, as in a container.
NO_RENAME = (errno.EACCES, errno.EPERM, errno.EBUSY, errno.EROFS)


def export(path: Path, pieces: Iterable[bytes]) -> None:
    """Write to the path that a person named.

    A device, pipe or descriptor of ours is written to. A regular file, or what a link leads to, is
    replaced as a whole, with the mode that it had. Ends at an interrupt only where the reader of a
    pipe keeps it waiting. Raises OSError, which names `path`.
    """
    try:
        mode = path.stat().st_mode if path.exists() else stat.S_IFREG | 0o644
        standard = _own_descriptor(path)
        if standard is not None:
            for piece in pieces:
                write_all(standard, piece)
        elif stat.S_ISREG(mode):
            _replace(path.resolve(), pieces, stat.S_IMODE(mode))
        else:
            descriptor = _opened(path, mode)
            try:
                for piece in pieces:
                    write_all(descriptor, piece)
            finally:
                os.close(descriptor)
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def require_writable(path: Path, room_bytes: int) -> None:
    """Try whether `export` can write so many bytes, before there is anything to lose.

    Nothing is written, and no pipe is opened: its reader would take that for the end. Raises
    OSError.
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
        if not (error.errno in NO_RENAME and os.access(path, os.W_OK)):
            raise


def is_stdout(path: Path | None) -> bool:
    """Whether this is where standard output goes, if that is kept."""
    with suppress(OSError):
        info = os.fstat(1)
        null = os.path.samestat(info, Path(os.devnull).stat())
        return path is not None and not null and os.path.samestat(info, path.stat())
    return False


def is_abandoned(stream: TextIO) -> bool:
    """Whether the stream is a pipe that no program reads any more."""
    poll = select.poll()
    try:
        poll.register(stream.fileno(), 0)
    except (OSError, ValueError):  # not of the system's, as in a test
        return False
    return any(event & select.POLLERR for _, event in poll.poll(0))


def show(text: str, stream: TextIO | None) -> None:
    """Write text to a standard stream. Raises OSError, also where it is closed."""
    if stream is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    stream.flush()
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # not of the system's, as in a test
        stream.write(text)
        stream.flush()
        return
    write_all(descriptor, text.encode(stream.encoding, "backslashreplace"))


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it; an interrupt is heard only while the other end takes nothing.

    Raises OSError or KeyboardInterrupt.
    """
    left, poll = memoryview(data), select.poll()
    poll.register(descriptor, select.POLLOUT)
    with noted_signals(*ENDING) as came:
        while left:
            if poll.poll(1e3 * WAIT_S):
                left = left[os.write(descriptor, left[:PIECE_BYTES]) :]
            elif came:
                raise KeyboardInterrupt


def _own_descriptor(path: Path) -> int | None:
    """Return the descriptor by which this process writes to that file, as of /dev/stdout."""
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
            replayable = isinstance(pieces, Sequence)  # what was read once is not there again
            if not (replayable and error.errno in NO_RENAME and os.access(path, os.W_OK)):
                raise
            path.write_bytes(b"".join(pieces))


def _opened(path: Path, mode: int) -> int:
    """Open a device or pipe for writing; a pipe as soon as somebody reads it, if that is soon."""
    limit_s = time.monotonic() + READER_LIMIT_S
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with noted_signals(*ENDING) as came:
        while True:
            try:
                descriptor = os.open(path, flags)
                break
            except OSError as error:
                if error.errno != errno.ENXIO or not stat.S_ISFIFO(mode):
                    raise
                if time.monotonic() > limit_s:
                    raise OSError(errno.ENXIO, "no program reads it") from None
            if came:
                raise KeyboardInterrupt
            time.sleep(WAIT_S)
    os.set_blocking(descriptor, True)
    return descriptor
