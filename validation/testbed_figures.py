"""Figures of the whole testbed, and the machine on which they were measured."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from contract import schema
from contract.strict_json import read_object

GB = 1e9
SAMPLE_S = 2.0
# Targets on two quiet processors without KVM: from a fresh clone to the report, the same with the
# image in the cache, building it, its size, the lab's memory, its start, provisioning, and the
# share of measuring.
FRESH_MIN = 9.0
CACHED_MIN = 6.0
IMAGE_MIN = 3.0
IMAGE_GB = 3.0
LAB_GB = 6.0
BOOT_S = 12.0
PROVISION_S = 25.0
MEASURING_PERCENT = 75.0


@dataclass(frozen=True)
class Process:
    """A process of a lab; `pid` is 0 if it has ended."""

    pid: int = 0


@dataclass(frozen=True)
class Machine:
    """The guest's machine: kvm, uml or tcg."""

    name: str = ""


@dataclass(frozen=True)
class LabState:
    """The parts of a virtual lab's state.json that are measured here."""

    guest: Process | None = None
    drives: Mapping[str, Process] = field(default_factory=dict)
    meter: Process | None = None
    machine: Machine = Machine()
    boot_s: float = 0.0
    processor: int | None = None

    @classmethod
    def from_file(cls, path: Path) -> LabState:
        """Read the state; it is empty for a lab that is not up."""
        return schema.read(cls, read_object(path))

    @property
    def pids(self) -> list[int]:
        """Processes of a running lab: the guest, the drives, the meter."""
        processes = [self.guest, *self.drives.values(), self.meter]
        return [process.pid for process in processes if process and process.pid]


@dataclass(frozen=True)
class Build:
    """A build of the guest's image; `new` if this run made it."""

    build_s: float
    allocated_bytes: int
    new: bool = False


@dataclass(frozen=True)
class Row:
    """A figure and its target; `meets` is whether it is reached."""

    figure: str
    value: float
    unit: str
    target: float
    meets: bool

    @classmethod
    def at_most(cls, figure: str, value: float, unit: str, target: float) -> Row:
        """Return a figure that its target limits."""
        return cls(figure, round(value, 2), unit, target, value <= target)


class LabMemory:
    """A context that samples the resident memory of all processes that the labs' states name.

    `peak_bytes` is the largest sum; pages shared by two processes count twice. `machine` is what
    the guests ran on, `boot_s` how long the slowest of them took to answer.
    """

    def __init__(self, states: Sequence[Path]) -> None:
        self.states = states
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.peak_bytes = 0
        self.machine = ""
        self.boot_s: float | None = None

    def __enter__(self) -> LabMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            states = [LabState.from_file(path) for path in self.states]
            for state in states:
                self.machine = state.machine.name or self.machine
                self.boot_s = max(state.boot_s, self.boot_s or 0.0) or None
            resident = sum(resident_bytes(pid) for state in states for pid in state.pids)
            self.peak_bytes = max(self.peak_bytes, resident)


def resident_bytes(pid: int) -> int:
    """Return the resident set of a process; 0 if it has ended."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def figures(
    *,
    steps_s: Mapping[str, float],
    image: Build | None = None,
    boot_s: float | None = None,
    lab_memory_gb: float | None = None,
    measuring_share: float | None = None,
) -> list[Row]:
    """Return the figures of a run; without a value a figure is left out."""
    built = image is not None and image.new
    name, limit = ("total", FRESH_MIN) if built else ("total, image cached", CACHED_MIN)
    rows = [Row.at_most(name, sum(steps_s.values()) / 60, "min", limit)]
    if image is not None:
        if built:  # a cached one was built in other circumstances
            rows.append(Row.at_most("image build", image.build_s / 60, "min", IMAGE_MIN))
        rows.append(Row.at_most("image size", image.allocated_bytes / GB, "GB", IMAGE_GB))
    if boot_s is not None:
        rows.append(Row.at_most("guest up to SSH", boot_s, "s", BOOT_S))
    if "provision" in steps_s:
        rows.append(Row.at_most("provision", steps_s["provision"], "s", PROVISION_S))
    if lab_memory_gb is not None:
        rows.append(Row.at_most("lab memory, peak", lab_memory_gb, "GB", LAB_GB))
    if measuring_share is not None:
        share = round(100 * measuring_share, 1)
        name = "share of the suite that was measuring"
        rows.append(Row(name, share, "%", MEASURING_PERCENT, share >= MEASURING_PERCENT))
    return rows


def write(path: Path, rows: Sequence[Row], where: Mapping[str, object]) -> Path:
    """Write the list, and NAME.machine.json with commit and machine next to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")
    beside = path.with_suffix(".machine.json")
    beside.write_text(json.dumps(where, indent=2) + "\n", encoding="utf-8")
    return path


def machine(lab_machine: str) -> dict[str, object]:
    """Return commit and machine, without which a figure is worth nothing."""
    cpu = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    memory_kib = Path("/proc/meminfo").read_text(encoding="utf-8").split()[1]
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "machine": {
            "cpu": cpu[0] if cpu else platform.machine(),
            "cores": len(cpu) or os.cpu_count(),
            "memory_gb": round(int(memory_kib) * 1024 / GB, 1),
            "kernel": platform.release(),
            "system": platform.freedesktop_os_release().get("PRETTY_NAME", ""),
            "python": platform.python_version(),
            "lab_machine": lab_machine,
        },
    }


def _git(*arguments: str) -> str:
    try:
        result = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return result.stdout.strip()
