"""Locks of one agent at a time, on the machine and in a suite's folder; and its lease."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from contract import strict_json, system_text
from contract.errors import AgentError
from contract.files import write_json

HOLD = Path("/run/fde-testbed/hold.json")
LONGEST_S = 3600.0


class HoldError(AgentError):
    """An invalid lease."""


@dataclass(frozen=True)
class _Lease:
    reason: str
    until_ns: int


def take(reason: str, seconds: float, path: Path = HOLD) -> None:
    """Hold for `seconds` from now, in place of any lease before."""
    if not 0 < seconds <= LONGEST_S:
        raise HoldError("hold-too-long", longest_s=LONGEST_S)
    path.parent.mkdir(parents=True, exist_ok=True)
    until_ns = time.monotonic_ns() + round(seconds * 1e9)
    write_json(path, asdict(_Lease(" ".join(reason.split()), until_ns)))


def end(path: Path = HOLD) -> None:
    """Remove the lease, if there is one."""
    path.unlink(missing_ok=True)


def reason(path: Path = HOLD) -> str | None:
    """Return the reason why the next run must wait; None without a valid lease.

    A lease that cannot be read, or that ends later than any lease may, does not count.
    """
    lease = strict_json.load(_Lease, path)
    left_ns = lease.until_ns - time.monotonic_ns() if lease else 0
    return lease.reason if lease and 0 < left_ns <= LONGEST_S * 1e9 else None


RUN = Path("/run/fde-testbed")

_held: set[int] = set()


class LockError(AgentError):
    """Someone else holds the lock."""


@contextmanager
def disks(who: str, path: Path = RUN / "agent.lock") -> Iterator[None]:
    """Hold the machine's test disks; `who` is shown to the next who wants them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _take(fd, lambda: f"The test disks are in use by {_holder(fd)}: wait for it, or stop it.")
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{who} (process {os.getpid()})".encode(), 0)
        _held.add(fd)
        yield
    finally:
        _held.discard(fd)
        os.close(fd)


def descriptors() -> tuple[int, ...]:
    """Return descriptors that hold the disks.

    Programs that write the disks inherit them, so that one that outlives a killed agent still keeps
    the next agent away.
    """
    return tuple(_held)


@contextmanager
def suite(folder: Path) -> Iterator[None]:
    """Hold a suite's folder itself, so that no lock file is left in it."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise LockError("folder-unopened", folder=folder, reason=error.strerror) from error
    try:
        _take(fd, lambda: f"Another agent is at work in {folder}: wait for it, or stop it.")
        yield
    finally:
        os.close(fd)


def holder(folder: Path) -> int | None:
    """Return the process that holds a suite's folder, found without taking the lock.

    None if the folder is free.
    """
    try:
        inode = folder.stat().st_ino
    except OSError:
        return None
    # "1: FLOCK  ADVISORY  WRITE 812 fe:01:131090 0 EOF"; btrfs shows another device than stat.
    for fields in (line.split() for line in system_text.read(Path("/proc/locks")).splitlines()):
        if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
            pid = int(fields[4])
            with suppress(OSError):  # it ended while we looked
                files = Path(f"/proc/{pid}/fd").iterdir()
                if any(file.samefile(folder) for file in files if file.exists()):
                    return pid
    return None


def _take(fd: int, why: Callable[[], str]) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockError(why()) from None


def _holder(fd: int) -> str:
    holder_name = system_text.decode(os.pread(fd, 200, 0))
    pid = holder_name.rpartition("(process ")[2].rstrip(")")
    if pid.isdigit() and not Path(f"/proc/{pid}").exists():
        return f"what {holder_name} called before it was killed"
    return holder_name or "another process"
