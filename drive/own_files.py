"""The files that a drive may write: missing, empty, or written by it before."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import stat
from pathlib import Path


class ForeignFileError(Exception):
    """A file of something else, left unchanged; the message is one sentence for people."""


def beside(path: Path, suffix: str) -> Path:
    """Return the path with a suffix: `disk.img` and `state` give `disk.img.state`."""
    return path.with_name(f"{path.name}.{suffix}")


def open_own(path: Path, option: str) -> int:
    """Open or create a regular file and lock it, unchanged. Raises OSError too."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ForeignFileError(f"{path} is not a regular file; name another one with {option}")
    fd = os.open(path, flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise ForeignFileError(
            f"{path} is in use by another drive; stop that one first, or name another file with "
            f"{option}"
        ) from error
    return fd


def check_ready_file(path: Path) -> None:
    """Raise ForeignFileError unless it is missing, empty, or what an earlier start wrote."""
    try:
        if stat.S_ISREG(path.lstat().st_mode):
            data = path.read_bytes()
            if not data or json.loads(data).keys() == {"port", "pid"}:
                return
    except FileNotFoundError:
        return
    except (ValueError, AttributeError):
        pass
    raise ForeignFileError(
        f"{path} was not written by a drive; name another file with --ready-file"
    )


def check_distinct(options: argparse.Namespace) -> None:
    """Raise ForeignFileError if two of the drive's files are the same."""
    named: list[tuple[str, Path]] = [("the image", options.backing), ("--control", options.control)]
    for option, path in (("--stats", options.stats), ("--ready-file", options.ready_file)):
        named += [(option, path)] if path is not None else []
    if options.opal:
        state: Path = options.state
        named += [("--state", state), ("--psid-file", options.psid_file)]
        named += [(f"--state's .{e}", beside(state, e)) for e in ("lock", "mbr", "datastore")]
    roles: dict[str, str] = {}
    for option, path in named:
        place = os.path.realpath(path)
        if place in roles:
            raise ForeignFileError(f"{path} is both {roles[place]} and {option}; name two files")
        roles[place] = option
