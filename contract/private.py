"""What is ours alone: folders that nobody else had a hand in, memory that is never dumped."""

from __future__ import annotations

import os
import resource
import stat
from pathlib import Path

from contract.errors import AgentError


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
        found = folder.lstat()
    except OSError as error:
        raise AgentError(f"{folder} is not there ({error.strerror}): start again.") from None
    if not stat.S_ISDIR(found.st_mode):
        raise AgentError(f"{folder} is not a folder: somebody put it there; remove it.")
    if found.st_uid != os.geteuid():
        raise AgentError(f"{folder} belongs to user {found.st_uid}: it is not used.")
    if found.st_mode & 0o077:
        raise AgentError(f"{folder} is open to other users: it is not used; chmod 700 it.")
