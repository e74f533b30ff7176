"""A disk's own account of its health, as smartctl reports it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from agent.storage import nvme
from agent.system.command import CommandError, run
from contract import strict_json
from contract.disks import Health, Lifetime

# ATA attributes that count what the medium lost: reallocated, uncorrectable, pending, offline.
_LOST = frozenset({5, 187, 197, 198})
_WRITTEN = 241  # total LBAs written


@dataclass(frozen=True)
class _Status:
    passed: bool | None = None


@dataclass(frozen=True)
class _NvmeLog:
    media_errors: int = 0
    warning_temp_time: int | None = None
    critical_comp_time: int | None = None
    data_units_written: int | None = None
    available_spare: int | None = None
    percentage_used: int | None = None


@dataclass(frozen=True)
class _Raw:
    value: int


@dataclass(frozen=True)
class _Attribute:
    id: int
    raw: _Raw


@dataclass(frozen=True)
class _Attributes:
    table: tuple[_Attribute, ...] = ()


@dataclass(frozen=True)
class _ScsiErrors:
    total_uncorrected_errors: int = 0


@dataclass(frozen=True)
class _Temperature:
    current: float | None = None


@dataclass(frozen=True)
class Report:
    """smartctl's JSON (smartmontools 7): NVMe, ATA and SCSI each have their own part."""

    serial_number: str = ""
    smart_status: _Status = _Status()
    nvme_smart_health_information_log: _NvmeLog | None = None
    ata_smart_attributes: _Attributes = _Attributes()
    scsi_error_counter_log: Mapping[str, _ScsiErrors] = field(default_factory=dict)
    temperature: _Temperature = _Temperature()


def read(program: str, name: str) -> Health | None:
    """Return the health of the disk with this kernel name.

    None without smartctl or without SMART.
    """
    try:
        # Its exit code is a set of bits that the JSON says better.
        output = run(
            [program, "-j", "-i", "-H", "-A", f"/dev/{name}"], ok=range(256), timeout_s=20
        ).out
        health = health_of(strict_json.parse(Report, output))
    except (CommandError, ValueError):
        return None
    # Its JSON leaves out how often an NVMe disk became slower.
    with suppress(OSError):
        return health and replace(health, throttled=nvme.throttlings(f"/dev/{name}"))
    return health


def lifetime(name: str | None) -> Lifetime | None:
    """Return the lifetime of the disk with this kernel name; None without SMART."""
    health = read("smartctl", name) if name else None
    return Lifetime(health.written_bytes, health.used_percent) if health else None


def health_of(report: Report) -> Health | None:
    """Return the health in a report; None without SMART."""
    passed, log = report.smart_status.passed, report.nvme_smart_health_information_log
    ata, scsi = report.ata_smart_attributes.table, report.scsi_error_counter_log
    if passed is None and not (log or ata or scsi):
        return None
    log = log or _NvmeLog()
    errors = log.media_errors
    errors += sum(attribute.raw.value for attribute in ata if attribute.id in _LOST)
    errors += sum(part.total_uncorrected_errors for part in scsi.values())
    heat = [n for n in (log.warning_temp_time, log.critical_comp_time) if n is not None]
    units = log.data_units_written
    sectors = next((attribute.raw.value for attribute in ata if attribute.id == _WRITTEN), None)
    return Health(
        report.serial_number,
        passed,
        errors,
        throttled=sum(heat) if heat else None,
        temperature_c=report.temperature.current,
        # NVMe Base Specification, SMART log: thousands of 512 bytes.
        written_bytes=units * 512_000 if units is not None else sectors and sectors * 512,
        spare_percent=log.available_spare,
        used_percent=log.percentage_used,
    )
