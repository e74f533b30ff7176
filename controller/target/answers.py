"""Shapes of a target's answers, as `agent.preflight`, `agent check`, `agent.examine` print them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.checks import Finding
from agent.checks.smart import Health
from agent.preflight import Facts
from contract.disks import DiskAnswer, SurveyedDisk
from contract.problem import Problem


@dataclass(frozen=True)
class MachineAnswer:
    """The answer of `agent.preflight`."""

    facts: Facts
    refusals: tuple[Problem, ...]


@dataclass(frozen=True)
class DisksAnswer:
    """The answer of `agent check`; `disturbers` are units by group, None without systemctl."""

    disks: tuple[DiskAnswer, ...]
    disturbers: Mapping[str, tuple[str, ...]] | None = None


@dataclass(frozen=True)
class RaplState:
    """RAPL zones that can be read, those that counted, and totals below the sum of their parts."""

    zones: tuple[str, ...]
    moved: tuple[str, ...]
    below: tuple[str, ...] = ()


@dataclass(frozen=True)
class DiskState:
    """Link, power management and health of a disk."""

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
    """`state` is ok, missing or wrong; `sentence` explains the latter two."""

    state: str
    sentence: str = ""


@dataclass(frozen=True)
class SleepState:
    """Whether a machine may fall asleep (`agent.system.sleep`)."""

    able: bool | None
    masked: bool
    idle_action: str
    lid_action: str
    desktop: str


@dataclass(frozen=True)
class PowerState:
    """Mains (None where the machine does not report it) and batteries."""

    batteries: tuple[str, ...]
    discharging: bool
    mains: bool | None


@dataclass(frozen=True)
class KernelOptions:
    """Whether the kernel was built with these; None where its configuration is not available."""

    sed_opal: bool | None
    dm_crypt: bool | None


@dataclass(frozen=True)
class IdleStates:
    """C-states that the processor may enter, and those that are switched off."""

    allowed: str | None
    off: tuple[str, ...]


@dataclass(frozen=True)
class Examination:
    """The answer of `agent.examine`; `errors` are why other parts are None."""

    checks: tuple[Finding, ...] | None = None
    rapl: RaplState | None = None
    disks: Mapping[str, DiskState] | None = None
    assets: Mapping[str, AssetState] | None = None
    sleep: SleepState | None = None
    power: PowerState | None = None
    disturbers: Mapping[str, tuple[str, ...]] | None = None
    kernel: KernelOptions | None = None
    idle_states: IdleStates | None = None
    room_bytes: int | None = None
    simulated_rapl: bool | None = None
    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Survey:
    """Name of a machine, and its disks."""

    name: str
    disks: tuple[SurveyedDisk, ...]


@dataclass(frozen=True)
class KeptCheck:
    """The last check of a target, as far as provisioning compares with it."""

    fingerprints: Mapping[str, str]
    disks: tuple[KeptDisk, ...]


@dataclass(frozen=True)
class KeptDisk:
    """Which disk had a role when it was checked."""

    role: str
    by_id: str
