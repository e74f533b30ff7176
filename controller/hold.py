"""One session at a time in a suite's folder, and the lease that lets the agent begin runs."""

from __future__ import annotations

import fcntl
import getpass
import os
import platform
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Protocol

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


LEAST_FREE_BYTES = 256 << 20
LEASE_S = 90.0
RENEW_S = 30.0
LOOK_S = 1.0
RETRY_S = 2.0
# A reason is one when it has stood so long (a recorder is started again sooner), and gone when it
# has been gone so long.
SETTLE_S = 3.0


class Lease(Protocol):
    """Who holds the agent; each says whether the target was told."""

    def hold(self, reason: str, seconds: float) -> bool: ...
    def let_go(self) -> bool: ...


def free_bytes(suite_dir: Path) -> int:
    """Room left for a suite."""
    return shutil.disk_usage(suite_dir).free


def lack_of_room(suite_dir: Path) -> str:
    """A sentence where the controller's disk has too little room, else nothing."""
    if free_bytes(suite_dir) >= LEAST_FREE_BYTES:
        return ""
    return f"the controller's disk is nearly full (less than {LEAST_FREE_BYTES >> 20} MiB left)"


def require_room(suite_dir: Path) -> None:
    """ControllerError where there is too little to begin."""
    if reason := lack_of_room(suite_dir):
        raise ControllerError(f"Nothing was started, {reason}: free some in {suite_dir}.")


class Hold:
    """A context in which the agent is held as long as `reason()` gives a sentence.

    It works in a thread of its own: asking the target may take long.
    """

    def __init__(
        self, lease: Lease, reason: Callable[[], str], note: Callable[[str], None]
    ) -> None:
        self._lease = lease
        self._reason = reason
        self._note = note
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._told = ""
        self._held = False
        self._due_s = 0.0
        self._since_s: float | None = None  # the reason has come, or gone

    def __enter__(self) -> Hold:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._held:
            self._lease.let_go()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S):
            reason = self._reason()
            if bool(reason) == bool(self._told):
                self._since_s = None
            elif not self._stands():
                continue
            if reason:
                self._keep(reason)
            elif self._told:
                self._end()

    def _stands(self) -> bool:
        """Whether the change has lasted."""
        now_s = time.monotonic()
        self._since_s = self._since_s or now_s
        return now_s - self._since_s >= SETTLE_S

    def _keep(self, reason: str) -> None:
        if reason != self._told:
            self._told = reason
            self._note(f"{reason}: no run is begun until that is mended")
            self._due_s = 0.0
        if time.monotonic() >= self._due_s:
            held = self._lease.hold(reason, LEASE_S)
            self._held = self._held or held
            self._due_s = time.monotonic() + (RENEW_S if held else RETRY_S)

    def _end(self) -> None:
        if self._held and not self._lease.let_go():
            return  # it runs out by itself, should the target not answer
        self._note("mended, runs are begun again")
        self._held, self._told = False, ""
