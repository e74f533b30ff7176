"""What the lab's target uses: the guest's CPU time, and the modelled power of it and its drives.

CPU time is read from outside, of QEMU's virtual CPUs or of a process tree: often, so that files
stay open and nothing is started.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import yaml

from contract.errors import LabError

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
CHILDREN_TIME = slice(13, 15)  # cutime and cstime of /proc/PID/stat, counted after the name


class PowerLostError(Exception):
    """The guest is gone."""


class Threads:
    """CPU time of single threads of one process: QEMU's virtual CPUs, without its own work."""

    def __init__(self, pid: int, thread_ids: Sequence[int]) -> None:
        """Raises OSError where there is no such thread."""
        tasks = Path(f"/proc/{pid}/task")
        self._files = [os.open(tasks / str(int(t)) / "schedstat", os.O_RDONLY) for t in thread_ids]

    def read_ns(self) -> int:
        """Their sum in ns. Raises PowerLostError."""
        try:
            # First field: time on a CPU in ns (kernel, Documentation/scheduler/sched-stats).
            return sum(int(os.pread(file, 64, 0).split()[0]) for file in self._files)
        except (ProcessLookupError, IndexError):
            raise PowerLostError from None

    def close(self) -> None:
        for file in self._files:
            os.close(file)


class ProcessTree:
    """CPU time of a process and its children, of those that have ended too: User Mode Linux.

    Live processes have a clock in ns. What ended ones used is exact once their parent has waited
    for them, but the kernel shows it in ticks: the clocks as last seen fill in what a tick hides.
    """

    def __init__(self, pid: int) -> None:
        """Raises OSError where there is no such process."""
        self._pid = pid
        self._stat = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        self._seen_ns: dict[int, int] = {}
        self._ended_ns = 0
        self._last_ns = 0

    def read_ns(self) -> int:
        """The sum in ns; never less than before. Raises PowerLostError."""
        alive_ns: dict[int, int] = {}
        for child in self._children():
            with contextlib.suppress(OSError):
                alive_ns[child] = _clock_ns(child)
        try:
            own_ns = _clock_ns(self._pid)
            fields = os.pread(self._stat, 4096, 0).rpartition(b")")[2].split()
            ticks = sum(int(field) for field in fields[CHILDREN_TIME])
            if fields[0] in (b"Z", b"X"):
                raise PowerLostError
        except (OSError, IndexError):
            raise PowerLostError from None
        self._ended_ns += sum(ns for pid, ns in self._seen_ns.items() if pid not in alive_ns)
        self._seen_ns = alive_ns
        floor_ns = ticks * TICK_NS  # two figures, each cut to a whole tick
        self._ended_ns = min(max(self._ended_ns, floor_ns), floor_ns + 2 * TICK_NS)
        self._last_ns = max(self._last_ns, own_ns + self._ended_ns + sum(alive_ns.values()))
        return self._last_ns

    def _children(self) -> list[int]:
        """Of every thread of the process (kernel: CONFIG_PROC_CHILDREN)."""
        tasks = Path(f"/proc/{self._pid}/task")
        try:
            named = [(task / "children").read_text(encoding="ascii") for task in tasks.iterdir()]
        except OSError:
            raise PowerLostError from None
        return [int(word) for text in named for word in text.split()]

    def close(self) -> None:
        os.close(self._stat)


def _clock_ns(pid: int) -> int:
    """CPU clock of a process; the number is that of clock_getcpuclockid(3) in the GNU library."""
    return time.clock_gettime_ns((~pid << 3) | 2)


MODEL_FILE = Path(__file__).with_name("power_model.yml")
ZONES = ("package", "dram")  # of the modelled RAPL counters
DRIVE = "drive"  # section of the drives that name no medium


@dataclass(frozen=True)
class DriveActivity:
    """What one drive did, as counters that only grow or as their differences.

    `bytes_crypt` is what it encrypted or decrypted itself, `service_ns` how long its medium worked,
    by a drive that behaves as a declared model.
    """

    bytes_read: int = 0
    bytes_written: int = 0
    bytes_crypt: int = 0
    service_ns: int = 0

    def since(self, before: DriveActivity) -> DriveActivity:
        """The difference. A counter that went back (its process was restarted) counts from 0."""
        return DriveActivity(*map(_grown, vars(self).values(), vars(before).values()))


@dataclass(frozen=True)
class Activity:
    """What the lab did: `cpu_ns` is CPU time of all virtual CPUs; the drives in the lab's order."""

    cpu_ns: int = 0
    drives: tuple[DriveActivity, ...] = ()

    def since(self, before: Activity) -> Activity:
        """The difference, as of its drives."""
        drives = zip(self.drives, before.drives, strict=True)
        cpu_ns = _grown(self.cpu_ns, before.cpu_ns)
        return Activity(cpu_ns, tuple(now.since(then) for now, then in drives))


def _grown(now: int, then: int) -> int:
    return now - then if now >= then else now


@dataclass(frozen=True)
class Power:
    """Mean power of the whole machine, drives included, and of the drives' rails alone, in W."""

    system_w: float
    drive_w: float


@dataclass(frozen=True)
class DrivePower:
    """The coefficients of one medium; units stand in the names. `busy_w` is added while the medium
    works."""

    idle_w: float
    j_per_byte_read: float = 0.0
    j_per_byte_written: float = 0.0
    j_per_byte_crypt: float = 0.0
    busy_w: float = 0.0

    def energy_j(self, activity: DriveActivity, dt_s: float) -> float:
        """Of `dt_s` seconds in which `activity` happened."""
        return (
            self.idle_w * dt_s
            + self.j_per_byte_read * activity.bytes_read
            + self.j_per_byte_written * activity.bytes_written
            + self.j_per_byte_crypt * activity.bytes_crypt
            + self.busy_w * activity.service_ns / 1e9
        )


@dataclass(frozen=True)
class PowerModel:
    """The coefficients of power_model.yml that the meter needs; units stand in the names.

    `media` has those of a drive by the name of its medium, `DRIVE` for one that names none.
    """

    system_idle_w: float
    system_busy_w_per_cpu: float
    media: Mapping[str, DrivePower]

    @classmethod
    def load(cls, path: Path = MODEL_FILE) -> Self:
        """Read the file. Raises LabError where a coefficient is missing or has no source."""
        model = _load(path)
        idle_w, busy_w = (
            _coefficient(path, model, "system", key) for key in ("idle_w", "busy_w_per_cpu")
        )
        media = {*model, DRIVE} - {"rapl", "system"}
        return cls(idle_w, busy_w, {name: _medium(path, model, name) for name in media})

    def power(self, activity: Activity, dt_s: float, media: Sequence[str]) -> Power:
        """Mean power over `dt_s` seconds in which `activity` happened; `media` as its drives.

        drives: idle of each + joules per byte read, written, en- or decrypted + of a busy medium;
        system: idle + busy per CPU × CPUs busy on average + drives.
        """
        drives = zip(media, activity.drives, strict=True)
        drive_w = sum(self.media[name].energy_j(did, dt_s) for name, did in drives) / dt_s
        cpus_busy = activity.cpu_ns / 1e9 / dt_s
        return Power(self.system_idle_w + self.system_busy_w_per_cpu * cpus_busy + drive_w, drive_w)


def _medium(path: Path, model: Any, name: str) -> DrivePower:
    """A medium's section; of a drive without a model of its own all but `busy_w` must be there."""
    given = model.get(name)
    keys = [field.name for field in fields(DrivePower)]
    if name == DRIVE:
        keys.remove("busy_w")
    elif isinstance(given, Mapping) and set(given) <= set(keys):
        keys = ["idle_w", *(key for key in given if key != "idle_w")]
    return DrivePower(**{key: _coefficient(path, model, name, key) for key in keys})


def _load(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise LabError(f"The power model {path} cannot be read: {error}") from None


def _coefficient(path: Path, model: Any, section: str, key: str) -> float:
    keys = model.get(section) if isinstance(model, Mapping) else None
    entry = keys.get(key) if isinstance(keys, Mapping) else None
    if not isinstance(entry, Mapping) or not {"value", "unit", "source"} <= entry.keys():
        raise LabError(f"{path}: {section}.{key} needs a value, a unit and a source.")
    value = entry["value"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e6:
        raise LabError(f"{path}: {section}.{key} is {value!r}, which is not a coefficient.")
    return float(value)


def rapl_words(path: Path = MODEL_FILE, packages: int = 1) -> list[str]:
    """Kernel words that give fde_rapl_sim the coefficients of the power model, in mW, and how many
    packages share the energy. Raises LabError as `PowerModel.load` does.
    """
    model = _load(path)
    names = [f"{zone}_{part}" for zone in ZONES for part in ("idle_mw", "busy_mw_per_cpu")]
    words = [f"{name}={round(_coefficient(path, model, 'rapl', name))}" for name in names]
    return [f"fde_rapl_sim.{word}" for word in (*words, f"packages={packages}")]
