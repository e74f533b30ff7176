"""Model the power of the lab's target and of its drives from their activity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Self

import yaml

from contract import schema
from contract.errors import LabError
from contract.schema import Closed, Range

MODEL_FILE = Path(__file__).with_name("power_model.yml")
ZONES = ("package", "dram")  # of the modelled RAPL counters
DRIVE = "drive"  # section of the drives that name no medium


@dataclass(frozen=True)
class DriveActivity:
    """Activity of one drive, as counters that only grow or as their differences.

    `bytes_crypt` is what the drive encrypted or decrypted, `service_ns` how long its medium worked,
    for a drive that behaves as a declared model.
    """

    bytes_read: int = 0
    bytes_written: int = 0
    bytes_crypt: int = 0
    service_ns: int = 0

    def since(self, before: DriveActivity) -> DriveActivity:
        """Return the difference; a counter that decreased (a restarted process) counts from 0."""
        return DriveActivity(*map(_grown, vars(self).values(), vars(before).values()))


@dataclass(frozen=True)
class Activity:
    """Activity of the lab: `cpu_ns` is CPU time of all virtual CPUs; drives in the lab's order.

    `stolen_ns` is how long the machine stood still because the host ran something else.
    """

    cpu_ns: int = 0
    drives: tuple[DriveActivity, ...] = ()
    stolen_ns: int = 0

    def since(self, before: Activity) -> Activity:
        """Return the difference, including that of its drives."""
        drives = zip(self.drives, before.drives, strict=True)
        cpu_ns = _grown(self.cpu_ns, before.cpu_ns)
        stolen_ns = _grown(self.stolen_ns, before.stolen_ns)
        return Activity(cpu_ns, tuple(current.since(then) for current, then in drives), stolen_ns)


def _grown(current: int, then: int) -> int:
    return current - then if current >= then else current


@dataclass(frozen=True)
class Power:
    """Mean power in W of the whole machine, drives included, and of the drives' rails only."""

    system_w: float
    drive_w: float


@dataclass(frozen=True)
class DrivePower:
    """Coefficients of one medium, units in their names; `busy_w` applies while it works."""

    idle_w: float
    j_per_byte_read: float = 0.0
    j_per_byte_written: float = 0.0
    j_per_byte_crypt: float = 0.0
    busy_w: float = 0.0

    def energy_j(self, activity: DriveActivity, dt_s: float) -> float:
        """Return the energy of `dt_s` seconds at rest, and of `activity`."""
        return (
            self.idle_w * dt_s
            + self.j_per_byte_read * activity.bytes_read
            + self.j_per_byte_written * activity.bytes_written
            + self.j_per_byte_crypt * activity.bytes_crypt
            + self.busy_w * activity.service_ns / 1e9
        )


@dataclass(frozen=True)
class PowerModel:
    """Coefficients of power_model.yml for the meter; units are in the names.

    `media` has those of a drive by the name of its medium, `DRIVE` for one without a name. The
    share `stolen_idle_share` of idle power continues while the host does not run the machine.
    """

    system_idle_w: float
    system_busy_w_per_cpu: float
    media: Mapping[str, DrivePower]
    stolen_idle_share: float = 0.0

    @classmethod
    def load(cls, path: Path = MODEL_FILE) -> Self:
        """Read the file. Raises LabError if a coefficient is missing or has no source."""
        model = _load(path)
        idle_w, busy_w = (_value(path, model, "system", k) for k in ("idle_w", "busy_w_per_cpu"))
        media = {*model, DRIVE} - {"rapl", "stolen", "system"}
        share = _value(path, model, "stolen", "idle_share")
        return cls(idle_w, busy_w, {name: _medium(path, model, name) for name in media}, share)

    def power(self, activity: Activity, dt_s: float, media: Sequence[str]) -> Power:
        """Return the mean power over `dt_s` seconds with `activity`; `media` by drive.

        drives: idle of each + joules per byte read, written, en- or decrypted + of a busy medium;
        system: idle + busy per CPU × CPUs busy on average + drives. Idle power applies to the time
        that was not stolen, and to the declared share of stolen time.
        """
        rest_s = max(0.0, dt_s - self.uncharged_ns(activity.stolen_ns) / 1e9)
        drives = zip(media, activity.drives, strict=True)
        drive_j = sum(self.media[name].energy_j(did, rest_s) for name, did in drives)
        busy_j = self.system_busy_w_per_cpu * activity.cpu_ns / 1e9
        system_j = self.system_idle_w * rest_s + busy_j + drive_j
        return Power(system_j / dt_s, drive_j / dt_s)

    def uncharged_ns(self, stolen_ns: int) -> int:
        """Return the part of stolen time that draws no idle power."""
        return round((1 - self.stolen_idle_share) * stolen_ns)


@dataclass(frozen=True)
class Coefficient(Closed):
    """A coefficient of power_model.yml, with its unit and source."""

    value: Annotated[float, Range(least=0, most=1e6)]
    unit: str
    source: str


Model = dict[str, dict[str, Coefficient]]


def _load(path: Path) -> Model:
    try:
        return schema.read(Model, yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise LabError("model-unread", path=path, error=error) from None


def _value(path: Path, model: Model, section: str, key: str) -> float:
    try:
        return model[section][key].value
    except KeyError:
        raise LabError("no-coefficient", path=path, section=section, key=key) from None


def _medium(path: Path, model: Model, name: str) -> DrivePower:
    """Return a medium's coefficients; `DRIVE` needs all but `busy_w`, others only `idle_w`."""
    coefficients = [field.name for field in fields(DrivePower)]
    needed = coefficients[:-1] if name == DRIVE else coefficients[:1]
    keys = dict.fromkeys([*needed, *model.get(name, ())])
    if unknown := set(keys) - set(coefficients):
        raise LabError("no-coefficient", path=path, section=name, key=min(unknown))
    return DrivePower(**{key: _value(path, model, name, key) for key in keys})


def rapl_words(path: Path = MODEL_FILE, packages: int = 1) -> list[str]:
    """Return the kernel words for fde_rapl_sim: the power model's coefficients in mW, `packages`.

    Raises LabError as `PowerModel.load` does.
    """
    model = _load(path)
    names = [f"{zone}_{part}" for zone in ZONES for part in ("idle_mw", "busy_mw_per_cpu")]
    words = [f"{name}={round(_value(path, model, 'rapl', name))}" for name in names]
    return [f"fde_rapl_sim.{word}" for word in (*words, f"packages={packages}")]
