"""The machine that the checks look at: its paths and programs, which tests replace."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from agent import marks
from agent.checks import kernel_log, smart
from agent.system.lock import RUN
from contract import strict_json, system_text
from contract.disks import Health
from contract.files import write_json

Value = int | float | str | None
Reading = TypeVar("Reading")


@dataclass(frozen=True)
class FirstReadings:
    """Document provenance/first-readings.json: values that must stay as the suite began.

    Values of disks are by serial number.
    """

    temperature_c: float | None = None
    disk_temperatures_c: Mapping[str, float] | None = None
    medium_errors: Mapping[str, int] | None = None
    firmware: Mapping[str, str] | None = None
    disk_links: Mapping[str, str] | None = None
    settings: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Observation:
    """The result of one check.

    `facts` fill the clause of the check's row, which names no figure, so that the same fault reads
    the same in every run; `detail` adds the figures for people who wait for it. `cause` is the code
    of the fault if that is not the check's own name.
    """

    value: Value
    ok: bool
    facts: Mapping[str, str] = field(default_factory=dict)
    detail: str = ""
    cause: str = ""


@dataclass(frozen=True)
class CheckContext:
    """A machine with a configuration mounted at `mount_point`.

    `suite_dir` holds the suite's first readings, None for no such record; `disks` are the kernel's
    names of the disks under test; `load_limit` is how many CPUs others may keep busy; `band_c` and
    `disk_c` are how far the temperatures of processor and disks may differ from the first;
    `known_health` is what the disks reported shortly before, so that they are not asked again.
    """

    mount_point: Path
    load_limit: float = 0.25
    suite_dir: Path | None = None
    disks: tuple[str, ...] = ()
    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    kmsg: Path = Path("/dev/kmsg")
    run_dir: Path = RUN
    smartctl: str = "smartctl"
    systemctl: str = "systemctl"
    window_s: float = 0.15
    poll_s: float = 0.25
    band_c: float = 3.0
    disk_c: float = 5.0
    min_free_share: float = 0.05
    min_free_bytes: int = 128 * 2**20
    min_memory_bytes: int = 256 * 2**20
    known_health: dict[str, Health] | None = None
    configuration: str = ""

    @property
    def cpus(self) -> Path:
        return self.sys / "devices/system/cpu"

    def unread(self, known_health: dict[str, Health] | None = None) -> CheckContext:
        """Return the same context with an empty cache.

        Each property of the new context is read at most once.
        """
        return replace(self, known_health=known_health)

    def first(self, name: str, current: Reading) -> Reading:
        """Return the suite's first reading of this name; record `current` if there is none yet."""
        if self.suite_dir is None:
            return current
        first: Reading | None = getattr(self._first_readings(), name)
        if first is None:
            self._keep(name, current)
        return current if first is None else first

    @property
    def _readings(self) -> Path:
        return (self.suite_dir or Path()) / "provenance" / "first-readings.json"

    def _first_readings(self) -> FirstReadings:
        return strict_json.load(FirstReadings, self._readings) or FirstReadings()

    def _keep(self, name: str, reading: object) -> None:
        if self.suite_dir is None:
            return
        with suppress(OSError):  # no room: the check of that waits for it, and says so
            self._readings.parent.mkdir(parents=True, exist_ok=True)
            readings = asdict(self._first_readings()) | {name: reading}
            write_json(self._readings, {k: v for k, v in readings.items() if v is not None})

    def first_of_each(self, name: str, current: Mapping[str, str]) -> dict[str, str]:
        """Return the suite's first reading of each key; record `current` for keys without one."""
        first = {**self.first(name, current)}
        if missing := {key: value for key, value in current.items() if key not in first}:
            self._keep(name, {**first, **missing})
        return {key: first.get(key, value) for key, value in current.items()}

    @cached_property
    def health(self) -> dict[str, Health]:
        """Return the disks' SMART reports by kernel name, with the kernel's write counts."""
        if self.known_health is not None:
            return self.known_health
        reports = {}
        for name in self.disks:
            if (report := smart.read(self.smartctl, name)) is not None:
                reports[name] = report
                with suppress(OSError):
                    written_bytes = marks.written_bytes(Path(name), self.sys / "class/block")
                    reports[name] = replace(report, kernel_written_bytes=written_bytes)
        return reports

    @cached_property
    def kernel_lines(self) -> list[kernel_log.Line] | None:
        """Return all lines that the kernel still has; None if they may not be read."""
        return kernel_log.read(self.kmsg)


def text(path: Path) -> str | None:
    """Return the content of a file of one line; None if it cannot be read."""
    try:
        return system_text.read(path).strip()
    except OSError:
        return None


def number(path: Path) -> int | None:
    """Parse a file that holds one whole number, hexadecimal with 0x; None if it is not one."""
    content = text(path)
    try:
        return None if content is None else int(content, 0)
    except ValueError:
        return None
