"""A suite's folder here: one session at a time, its log, room on its disk, one target for good."""

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
from contract.errors import ControllerError

LOCK = ".lock"
LEAST_FREE_BYTES = 256 << 20
LOG = "controller.log"

log = logging.getLogger("controller")


def require_plain(folder: Path) -> None:
    """ControllerError where a suite's folder holds what would lead out of it."""
    if strange := names.stranger(folder):
        raise ControllerError("strange-file", folder=folder, strange=strange)


@contextmanager
def locked(suite_dir: Path) -> Iterator[None]:
    """Hold the folder; the kernel lets go of it if we die. Raises ControllerError."""
    require_plain(suite_dir)
    try:
        file = (suite_dir / LOCK).open("a+", encoding="utf-8")
    except OSError as error:
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


@contextmanager
def logged(suite_dir: Path) -> Iterator[None]:
    """Append to controller.log, with times in UTC, what this package logs meanwhile.

    Also what ended it early. Raises OSError where that file cannot be opened.
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
        """Ignore a disk without room: it ends no suite."""


def lack_of_room(suite_dir: Path) -> str:
    """Return a sentence where the controller's disk has too little room, else nothing."""
    if shutil.disk_usage(suite_dir).free >= LEAST_FREE_BYTES:
        return ""
    return f"the controller's disk is nearly full (less than {LEAST_FREE_BYTES >> 20} MiB left)"


def require_room(suite_dir: Path) -> None:
    """ControllerError where there is too little to begin."""
    if reason := lack_of_room(suite_dir):
        raise ControllerError("no-room", reason=reason, suite_dir=suite_dir)
