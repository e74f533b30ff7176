"""Parts of an examination of a target, as `agent.examine` prints them for `fde check`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from contract.disks import Health


@dataclass(frozen=True)
class Finding:
    """An entry of `checks` in run.json: what a check observed, and how long the agent waited.

    `cause`, `facts` and `message` are empty if it is `ok`; `helped` names what the agent did
    meanwhile.
    """

    name: str
    when: str
    severity: str
    ok: bool
    cause: str
    facts: Mapping[str, str]
    value: int | float | str | None
    message: str
    waited_s: float | None = None
    helped: str = ""

    def document(self) -> dict[str, object]:
        """Return the entry as JSON holds it; empty `waited_s` and `helped` are left out."""
        unused = {key for key in ("waited_s", "helped") if not getattr(self, key)}
        return {key: value for key, value in asdict(self).items() if key not in unused}


@dataclass(frozen=True)
class RaplCounts:
    """Readable zones, those that `moved`, and `steady` packages.

    The latter took no more with all processors busy than at rest.
    """

    zones: tuple[str, ...]
    moved: tuple[str, ...]
    steady: tuple[str, ...] = ()


@dataclass(frozen=True)
class DiskReport:
    """Link, power management and health of a disk; null if not reported.

    `sata_link` is by serial number, `name` the kernel's.
    """

    name: str
    serial: str
    model: str
    link_speed: str | None
    link_speed_max: str | None
    link_width: int | None
    link_width_max: int | None
    sata_link: Mapping[str, str]
    apst_tolerance_us: str | None
    alpm_policy: str | None
    temperature_c: float | None
    health: Health | None


@dataclass(frozen=True)
class AssetState:
    """State of an asset: ok, missing or wrong; the sentence is empty if it is ok."""

    state: str
    sentence: str = ""


@dataclass(frozen=True)
class SleepState:
    """Settings that can put a machine to sleep.

    `able`: whether the kernel can sleep (None: unknown). `masked`: sleep is off. `idle_action`,
    `lid_action`: logind's actions, empty if not sleep or there is no lid. `desktop`: the display
    manager, empty without one.
    """

    able: bool | None
    masked: bool
    idle_action: str
    lid_action: str
    desktop: str


@dataclass(frozen=True)
class PowerSupply:
    """Batteries, whether one is discharging, and the mains (null without such a supply)."""

    batteries: tuple[str, ...]
    discharging: bool
    mains: bool | None


@dataclass(frozen=True)
class KernelOptions:
    """Whether the kernel was built with these; None if its configuration is not available."""

    sed_opal: bool | None
    dm_crypt: bool | None


@dataclass(frozen=True)
class IdleStates:
    """C-states that may be entered, and those that are disabled."""

    allowed: str | None
    off: tuple[str, ...]
