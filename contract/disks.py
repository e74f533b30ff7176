"""Disks of a target, as the agent reports them to `fde check` and `fde init`."""

from __future__ import annotations

from dataclasses import dataclass

from contract.problem import Problem


@dataclass(frozen=True)
class OpalState:
    """State of a drive's Opal; None if reading it needs a PIN.

    All four are None if the drive does not answer.
    """

    owned: bool | None
    locked: bool | None
    shadowed: bool | None
    sid_blocked: bool | None


@dataclass(frozen=True)
class Lifetime:
    """Bytes that a disk has written in its life, and the used share of its rated life."""

    written_bytes: int | None = None
    used_percent: int | None = None


@dataclass(frozen=True)
class Health:
    """Health of a disk: `passed` is its self-assessment (None without one), `errors` of its medium.

    `throttled` counts what heat did to an NVMe disk in its life: minutes above its limits and, if
    reported, transitions to slower states; `written_bytes` those of its life,
    `kernel_written_bytes` what the kernel had written by then since the disk appeared,
    `spare_percent` its remaining spare blocks, `used_percent` the used part of its rated life. None
    if not reported.
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
    """A disk named in the inventory: its contents (`found`), and what provisioning `would` do.

    `path` is None if no such disk is attached; `fingerprint` is of its contents. `ours`: the
    testbed has used this disk before; `ready`: it is provisioned, as far as can be seen without a
    PIN.
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

    `by_id` and `serial` are empty if it has none; `print` are 12 digits computed from its contents.
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
