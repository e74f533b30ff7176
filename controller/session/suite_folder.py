"""Lock a suite's folder on the controller, log into it, and check the room on its disk."""

from __future__ import annotations

import fcntl
import getpass
import logging
import os
import platform
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from contract import names
from contract.derived import MARKS
from contract.errors import ControllerError

LOCK = ".lock"
LEAST_FREE_BYTES = 256 << 20
LOG = "controller.log"

log = logging.getLogger("controller")


def require_plain(folder: Path) -> None:
    """Raise ControllerError if a suite's folder contains a path that leads out of it."""
    if strange := names.stranger(folder):
        raise ControllerError("strange-file", folder=folder, strange=strange)


@contextmanager
def locked(suite_dir: Path) -> Iterator[None]:
    """Lock the folder; the kernel unlocks it if this process dies.

    Raises ControllerError, or OSError with the path if no lock can be made there.
    """
    require_plain(suite_dir)
    try:
        file = (suite_dir / LOCK).open("a+", encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ControllerError(
            "suite-folder-unusable", suite_dir=suite_dir, reason=error.strerror
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ControllerError(
                "suite-in-use", suite_dir=suite_dir, holder=file.read().strip() or "another process"
            ) from None
        except OSError as error:  # a file system without locks
            error.filename = file.name
            raise
        file.truncate(0)
        file.write(myself())
        file.flush()
        yield


def myself() -> str:
    """Describe this process as `user@host, process 123, since 2026-01-02 03:04`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = str(os.getuid())
    since = f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}"
    return f"{user}@{platform.node()}, process {os.getpid()}, since {since}"


@contextmanager
def logged(suite_dir: Path) -> Iterator[None]:
    """Append this package's log to controller.log, with times in UTC, and the error that ends it.

    Raises OSError if that file cannot be opened.
    """
    handler = _LogFile(suite_dir / LOG, encoding="utf-8")
    line = logging.Formatter(
        "%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
    )
    line.converter = time.gmtime
    handler.setFormatter(line)
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        yield
    except KeyboardInterrupt:
        log.warning("interrupted")
        raise
    except Exception as error:
        log.error("ended: %s", error)
        raise
    finally:
        log.removeHandler(handler)
        with suppress(OSError):
            handler.close()


class _LogFile(logging.FileHandler):
    def format(self, record: logging.LogRecord) -> str:
        return names.sentence(super().format(record))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Ignore a full disk, which must not end a suite."""


def remove_unused(suite_dir: Path) -> bool:
    """Remove the folder of a new plan if nothing else was written to it; return whether it was.

    Raises ControllerError if another session uses it.
    """
    with locked(suite_dir):
        is_unused = {path.name for path in suite_dir.iterdir()} <= {"plan.json", MARKS, LOCK, LOG}
        if is_unused:
            shutil.rmtree(suite_dir)
    return is_unused


def lack_of_room(suite_dir: Path) -> str:
    """Return a sentence if the controller's disk has too little room; else an empty one."""
    if shutil.disk_usage(suite_dir).free >= LEAST_FREE_BYTES:
        return ""
    return f"the controller's disk is nearly full (less than {LEAST_FREE_BYTES >> 20} MiB left)"


def require_room(suite_dir: Path) -> None:
    """Raise ControllerError if the disk has too little room to begin."""
    if reason := lack_of_room(suite_dir):
        raise ControllerError("no-room", reason=reason, suite_dir=suite_dir)
