"""One session at a time in a suite's folder, and who that is."""

from __future__ import annotations

import fcntl
import getpass
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from contract import names
from contract.errors import ControllerError

FILE = ".lock"


def require_plain(folder: Path) -> None:
    """ControllerError where a suite's folder holds what would lead out of it."""
    if strange := names.stranger(folder):
        raise ControllerError(
            f"In {folder}, {strange}, and a suite has files and folders alone: take it out."
        )


@contextmanager
def locked(suite_dir: Path) -> Iterator[None]:
    """Hold the folder; the kernel lets go of it if we die. Raises ControllerError."""
    require_plain(suite_dir)
    try:
        file = (suite_dir / FILE).open("a+", encoding="utf-8")
    except OSError as error:
        raise ControllerError(
            f"{suite_dir} cannot be used ({error.strerror}): name the folder of a planned suite."
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ControllerError(
                f"{suite_dir} is in use by {file.read().strip() or 'another process'}: wait for "
                "it, or stop it."
            ) from None
        file.truncate(0)
        file.write(myself())
        file.flush()
        yield


def myself() -> str:
    """`user@host, process 123, since 2026-01-02 03:04`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = str(os.getuid())
    since = f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}"
    return f"{user}@{platform.node()}, process {os.getpid()}, since {since}"
