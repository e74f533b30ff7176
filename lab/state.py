"""Paths and state files of the lab, and checks for free room."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

from contract import strict_json
from contract.errors import LabError
from contract.files import write_json
from contract.journal import boot_id

REPOSITORY = Path(__file__).resolve().parent.parent
GIB = 1 << 30


def cache_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of expensive builds, which the machine's checkouts share."""
    if environment.get("FDE_CACHE"):
        return Path(environment["FDE_CACHE"]).absolute()
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base).absolute() / "fde-testbed"


def require_room(
    directory: Path, needed_bytes: int, purpose: str, free_bytes: int | None = None
) -> None:
    """Raise LabError unless `needed_bytes` are free at `directory`, which may not exist yet."""
    if free_bytes is None:
        existing = next(p for p in (directory, *directory.parents) if p.exists())
        free_bytes = shutil.disk_usage(existing).free
    if free_bytes < needed_bytes:
        raise LabError(
            "no-room",
            what=purpose,
            needed_bytes=needed_bytes / GIB,
            directory=directory,
            free_bytes=free_bytes / GIB,
            remedy="FDE_CACHE" if "image" in purpose else "--dir",
        )


FORMAT = "fde-lab/2"


class SshState(TypedDict):
    """SSH connection to the guest, in the form of a plan's target."""

    host: str
    port: int
    user: str
    key: str
    known_hosts: str
    options: list[str]


class Running(TypedDict):
    """A started guest; QEMU's has CPU threads and a socket for QMP."""

    pid: int
    vcpu_tids: NotRequired[list[int]]
    qmp: NotRequired[str]


class GuestState(TypedDict):
    """The guest's command, for starting it again, and its process, if it has power."""

    command: list[str]
    pid: NotRequired[int]
    vcpu_tids: NotRequired[list[int]]
    qmp: NotRequired[str]


class DriveState(TypedDict):
    """A virtual drive; `disk` is its inventory entry; `psid_file` is only for Opal drives."""

    pid: int
    port: int
    nqn: str
    backing: str
    stats: str
    control: str
    model: str
    serial: str
    size_bytes: int
    block_size: int
    medium: str
    disk: dict[str, str | int]
    psid_file: NotRequired[str]


class MeterState(TypedDict):
    """The simulated meter and the link to its port."""

    pid: int
    port: str


class LabState(TypedDict):
    """Contents of state.json."""

    format: str
    ready: bool
    machine: dict[str, str | float]  # its name and provenance
    guest: GuestState
    processor: int | None
    host_page: str
    network_pid: int | None
    address: tuple[str, int]  # in JSON an array
    sockets: str
    ssh: SshState
    drives: dict[str, DriveState]
    secrets: str
    meter: NotRequired[MeterState]
    boot_s: NotRequired[float]


@dataclass(frozen=True)
class Process:
    """One process of the lab; `start_ticks` is field 22 of /proc/PID/stat, `boot_id` the host's."""

    name: str
    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def from_pid(cls, name: str, pid: int) -> Process:
        """Return the process with this id. Raises ProcessLookupError."""
        stat = _stat(pid)
        if stat is None:
            raise ProcessLookupError(pid)
        return cls(name, pid, stat.start_ticks, boot_id())

    def alive(self) -> bool:
        """Return whether this very process still runs; a zombie does not.

        While other threads than the first still end, they hold the process's file locks.
        """
        stat = _stat(self.pid)
        return (
            stat is not None
            and (stat.state not in "ZX" or stat.threads > 1)
            and stat.start_ticks == self.start_ticks
            and boot_id() == self.boot_id
        )


class InDirectory:
    """A descriptor that returns the path of this name below its object's `directory`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, _type: type) -> Path:
        return Path(owner.directory, self._name)


@dataclass(frozen=True)
class Layout:
    """Paths within a lab's directory."""

    directory: Path
    state = InDirectory("state.json")
    processes = InDirectory("processes.json")
    console = InDirectory("console.log")
    truth = InDirectory("meter.truth.jsonl")
    secrets = InDirectory("secrets.json")
    key = InDirectory("id_ed25519")
    host_key = InDirectory("host_ed25519")
    known_hosts = InDirectory("known_hosts")


@dataclass(frozen=True)
class Started:
    """Contents of processes.json: `sockets` is the short directory for Unix sockets."""

    sockets: str | None
    processes: tuple[Process, ...]

    def with_process(self, process: Process) -> Started:
        """Return the list with one more process, which replaces an earlier one of that name."""
        others = tuple(p for p in self.processes if p.name != process.name)
        return Started(self.sockets, (*others, process))


def read_started(layout: Layout) -> Started:
    """Return the processes started in this directory; none if the file is unreadable."""
    return strict_json.load(Started, layout.processes) or Started(None, ())


def write_started(layout: Layout, started: Started) -> None:
    """Write processes.json."""
    write_json(layout.processes, asdict(started))


class _Stat(NamedTuple):
    """Fields 3, 20 and 22 of /proc/PID/stat."""

    state: str
    threads: int
    start_ticks: int


def _stat(pid: int) -> _Stat | None:
    """Return the state of a process, None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may contain blanks and brackets
    return _Stat(fields[0], int(fields[17]), int(fields[19]))
