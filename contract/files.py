"""Replace files atomically, and reserve room for them."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from contract import strict_json
from contract.names import SURROGATES

RESERVE_BYTES = 256 * 1024


def json_text(document: Any) -> str:
    """Return JSON on one line, as `strict_json.dumps` writes it."""
    return strict_json.dumps(document, None)


def yaml_text(value: Any) -> str:
    """Return a value as YAML for an inventory; text from a machine is marked as no template."""
    text = json_text(value)
    return f"!unsafe {text}" if "{{" in text or "{%" in text else text


def write_json(path: Path, document: Any, mode: int = 0o644, sync: bool = True) -> str:
    """Write JSON as `write` does."""
    return write_lines(path, [strict_json.dumps(document)], mode, sync)


def write_lines(path: Path, lines: Iterable[str], mode: int = 0o644, sync: bool = True) -> str:
    """Write lines as `write` does."""
    return write(path, (line.encode() + b"\n" for line in lines), mode, sync)


def write(path: Path, pieces: Iterable[bytes], mode: int = 0o644, sync: bool = True) -> str:
    """Replace a file by a temporary one and a rename; return the SHA-256 (hex) of its contents.

    Its mode is `mode` less the umask. Readers see the old contents or the new; with `sync` the new
    are on the medium on return. If it raises, the old file is unchanged and no other remains; an
    OSError names `path`.
    """
    # No other process writes to the same name, however many write to `path`.
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.new")
    sha256 = hashlib.sha256()
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, mode), "wb") as file:
            for piece in pieces:
                sha256.update(piece)
                file.write(piece)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None
        raise
    if sync:
        sync_path(path.parent)
    return sha256.hexdigest()


def sha256_of(path: Path, *, sync: bool = False) -> str:
    """Return the SHA-256 (hex) of a file, with `sync` after flushing it. Raises OSError."""
    with path.open("rb") as file:
        if sync:
            os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def short_digest(texts: Iterable[str]) -> str:
    """Return 12 hexadecimal digits that identify these texts in a file name."""
    return hashlib.sha256("\0".join(texts).encode(errors="surrogateescape")).hexdigest()[:12]


def for_polars(path: Path) -> Path | BinaryIO:
    """Return the path, or the opened file if its name is not UTF-8, which Polars does not take."""
    return path.open("rb") if SURROGATES.search(str(path)) else path


def append_line(path: Path, document: Any) -> None:
    """Append one JSON line and flush it to the medium.

    A line torn by a power cut remains one unreadable line.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        data = (json_text(document) + "\n").encode()
        if (size := os.fstat(fd).st_size) and os.pread(fd, 1, size - 1) != b"\n":
            data = b"\n" + data
        while data:
            data = data[os.write(fd, data) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    sync_path(path.parent)


class Reserve:
    """A file that reserves room, released for lines that must be written on a full disk."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def keep(self) -> None:
        """Reserve the room, if it is not reserved and available."""
        if self._path.exists():
            return
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(fd, 0, RESERVE_BYTES)
            finally:
                os.close(fd)
        except OSError:
            self.give_up()

    def give_up(self) -> None:
        """Release the room."""
        with suppress(OSError):
            self._path.unlink()


def sync_path(path: Path) -> None:
    """Flush a file, or the names in a folder, to the medium; CIFS and others cannot do the latter.

    Raises OSError.
    """
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(fd)
