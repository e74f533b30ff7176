"""Protect folders, files and memory of this user from other users."""

from __future__ import annotations

import os
import resource
import stat
from pathlib import Path

from contract.errors import AgentError

_MOST_SECRET_BYTES = 4096
PASSWORD_FILE = "ANSIBLE_BECOME_PASSWORD_FILE"
"""Ansible's own name for the file of sudo's password, an environment variable."""


def no_core_dumps() -> None:
    """Disable core dumps of this process and its children.

    A limit of 0 still lets a program receive a dump (systemd-coredump, apport), a limit of 1 byte
    forbids that as well (core(5)); if 0 is set already, only root may raise it.
    """
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    except (ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def require(folder: Path) -> None:
    """Raise AgentError for a folder that is a link, another user's or not of mode 0700."""
    try:
        status = folder.lstat()
    except OSError as error:
        raise AgentError("folder-gone", folder=folder, reason=error.strerror) from None
    if not stat.S_ISDIR(status.st_mode):
        raise AgentError("not-a-folder", folder=folder)
    if status.st_uid != os.geteuid():
        raise AgentError("folder-of-other", folder=folder, user=status.st_uid)
    if status.st_mode & 0o077:
        raise AgentError("folder-open", folder=folder)


def expanded(path: str | Path) -> Path:
    """Return the path with `~` replaced, or unchanged if this user has no home directory."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def read_secret(path: Path) -> str:
    """Return the only line of a file that only its owner can read.

    Raises AgentError if others can read it, too.
    """
    try:
        fd = os.open(expanded(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise AgentError("secret-unread", path=path, reason=error.strerror) from None
    with open(fd, "rb") as file:  # noqa: PTH123 - check the file that was opened
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise AgentError("secret-not-file", path=path)
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o077:
            raise AgentError("secret-open", path=path)
        try:
            text = file.read(_MOST_SECRET_BYTES).decode().strip()
        except UnicodeDecodeError:
            text = ""
    if not text or not text.isprintable():
        raise AgentError("secret-not-line", path=path)
    return text
