"""The documents that `agent.preflight`, `agent check` and `agent.examine` print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.preflight import Facts
from contract.disks import DiskAnswer, SurveyedDisk
from contract.examination import (
    AssetState,
    DiskReport,
    Finding,
    IdleStates,
    KernelOptions,
    PowerSupply,
    RaplCounts,
    SleepState,
)
from contract.problem import Problem


@dataclass(frozen=True)
class MachineAnswer:
    """The answer of `agent.preflight`."""

    facts: Facts
    refusals: tuple[Problem, ...]


@dataclass(frozen=True)
class DisksAnswer:
    """The answer of `agent check`; `disturbers` are units by group, or None without systemctl."""

    disks: tuple[DiskAnswer, ...]
    disturbers: Mapping[str, tuple[str, ...]] | None = None


@dataclass(frozen=True)
class Examination:
    """The answer of `agent.examine`; `errors` give the reason for each part that is None."""

    checks: tuple[Finding, ...] | None = None
    rapl: RaplCounts | None = None
    disks: Mapping[str, DiskReport] | None = None
    assets: Mapping[str, AssetState] | None = None
    sleep: SleepState | None = None
    power: PowerSupply | None = None
    disturbers: Mapping[str, tuple[str, ...]] | None = None
    kernel: KernelOptions | None = None
    idle_states: IdleStates | None = None
    room_bytes: int | None = None
    simulated_rapl: bool | None = None
    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Survey:
    """The name of a machine and its disks."""

    name: str
    disks: tuple[SurveyedDisk, ...]


@dataclass(frozen=True)
class CheckRecord:
    """The part of a saved check that provisioning compares with."""

    fingerprints: Mapping[str, str]
    disks: tuple[RecordedDisk, ...]


@dataclass(frozen=True)
class RecordedDisk:
    """The disk that had a role when the target was checked."""

    role: str
    by_id: str
