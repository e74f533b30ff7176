"""Folders and files of this user alone, and memory that is never dumped."""

from __future__ import annotations

import os
import resource
import stat
from pathlib import Path

from contract.errors import AgentError

_MOST_SECRET_BYTES = 4096


def no_core_dumps() -> None:
    """Keep this process's memory, and that of all it starts, off every disk should it crash.

    A limit of 0 still lets a dump go to a program (systemd-coredump, apport), a limit of 1 byte
    forbids that as well (core(5)); where 0 is set already, only root may raise it.
    """
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    except (ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def require(folder: Path) -> None:
    """AgentError where it is a link, another user's, or open to others (mode 0700 is wanted)."""
    try:
        status = folder.lstat()
    except OSError as error:
        raise AgentError(f"{folder} is not there ({error.strerror}): start again.") from None
    if not stat.S_ISDIR(status.st_mode):
        raise AgentError(f"{folder} is not a folder: somebody put it there; remove it.")
    if status.st_uid != os.geteuid():
        raise AgentError(f"{folder} belongs to user {status.st_uid}: it is not used.")
    if status.st_mode & 0o077:
        raise AgentError(f"{folder} is open to other users: it is not used; chmod 700 it.")


def expanded(path: str | Path) -> Path:
    """Return the path with `~` replaced, unchanged where this user has no home directory."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def read_secret(path: Path) -> str:
    """Return the one line of a file that its owner alone can read.

    AgentError where others can as well.
    """
    try:
        fd = os.open(expanded(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise AgentError(
            f"The secret {path} cannot be read ({error.strerror}): write it there, mode 0600."
        ) from None
    with open(fd, "rb") as file:  # noqa: PTH123 - what was opened is what is looked at
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise AgentError(f"The secret {path} is not a file: name another one.")
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o077:
            raise AgentError(f"The secret {path} is open to other users: chmod 600 it.")
        try:
            text = file.read(_MOST_SECRET_BYTES).decode().strip()
        except UnicodeDecodeError:
            text = ""
    if not text or not text.isprintable():
        raise AgentError(f"The secret {path} is not one line of text: write it again.")
    return text
