"""Disks of a target, as the agent reports them to `fde check` and `fde init`."""

from __future__ import annotations

from dataclasses import dataclass

from contract.problem import Problem


@dataclass(frozen=True)
class OpalState:
    """State of a drive's Opal; None where it cannot be read without a PIN.

    All four are None where the drive does not answer.
    """

    owned: bool | None
    locked: bool | None
    shadowed: bool | None
    sid_blocked: bool | None


@dataclass(frozen=True)
class Lifetime:
    """What a disk has written in its life, and how much of that its maker promises it has used."""

    written_bytes: int | None = None
    used_percent: int | None = None


@dataclass(frozen=True)
class Health:
    """`passed` is the disk's verdict on itself, None if it gives none; `errors` of its medium.

    `throttled` counts what heat did to an NVMe disk in its life: minutes above its limits and, as
    far as it can be read, transitions to slower states; `written_bytes` those of its life,
    `kernel_written_bytes` what the kernel had written by then since the disk appeared,
    `spare_percent` of its spare blocks that are left, `used_percent` of the life that its maker
    states. None where it is not reported.
    """

    serial: str
    passed: bool | None
    errors: int
    temperature_c: float | None = None
    throttled: int | None = None
    written_bytes: int | None = None
    spare_percent: int | None = None
    used_percent: int | None = None
    kernel_written_bytes: int | None = None


@dataclass(frozen=True)
class DiskAnswer:
    """A disk that the inventory names: its contents (`found`), and what provisioning would do.

    `path` is None where no such disk is attached; `fingerprint` is of its contents. `ours`: the
    testbed has had this disk before; `ready`: it is as it must be, as far as no PIN is tried.
    """

    role: str
    by_id: str
    refusals: tuple[Problem, ...]
    path: str | None = None
    serial: str | None = None
    size_bytes: int | None = None
    model: str | None = None
    transport: str | None = None
    lifetime: Lifetime | None = None
    found: str = ""
    opal: OpalState | None = None
    would: tuple[str, ...] = ()
    fingerprint: str | None = None
    ours: bool = False
    ready: bool = False


@dataclass(frozen=True)
class SurveyedDisk:
    """A whole disk of a machine, as `agent.examine --survey` prints it.

    `by_id` and `serial` are empty where it has none; `print` are the 12 digits of its contents.
    """

    name: str
    by_id: str
    serial: str
    size_bytes: int
    model: str
    transport: str
    uses: tuple[str, ...]
    ours: bool
    blank: bool
    known: bool
    contents: str
    print: str
    opal: OpalState | None
    opal_words: str
