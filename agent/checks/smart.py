"""The health that a disk reports about itself, read with smartctl."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from agent.storage import nvme
from agent.system.command import CommandError, run
from contract import strict_json
from contract.disks import Health, Lifetime

# ATA attributes that count what the medium lost: reallocated, uncorrectable, pending, offline.
_LOST = frozenset({5, 187, 197, 198})
_WRITTEN = 241  # written by the host, in a unit that its maker chose and smartctl's name has
_UNIT = re.compile(r"Writ.*_(\d*)([KMGT])(i?)B$")
_SECTORS = re.compile(r"Total_LBAs_Written|Host_Write\w*_Sectors?|Sectors_Written")
_DEFAULT_SECTOR_BYTES = 512
# By the standards: pages of the ATA Command Set's device statistics log (ACS-4, 9.5).
_GENERAL, _SECTORS_WRITTEN = 1, 24
_SOLID_STATE, _USED_PERCENT = 7, 8
# What a disk can be: a sensor that reports less or more is broken or absent (NVMe: 0 K, 65,535 K).
POSSIBLE_C = (-60.0, 150.0)


@dataclass(frozen=True)
class _Status:
    passed: bool | None = None


@dataclass(frozen=True)
class _NvmeLog:
    media_errors: int = 0
    warning_temp_time: int | None = None
    critical_comp_time: int | None = None
    data_units_read: int | None = None
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
    name: str = ""


@dataclass(frozen=True)
class _Attributes:
    table: tuple[_Attribute, ...] = ()


@dataclass(frozen=True)
class _ScsiErrors:
    total_uncorrected_errors: int = 0
    gigabytes_processed: str | float | None = None


@dataclass(frozen=True)
class _Flags:
    valid: bool = False


@dataclass(frozen=True)
class _Statistic:
    offset: int
    value: int | None = None
    flags: _Flags = _Flags()


@dataclass(frozen=True)
class _Page:
    number: int
    table: tuple[_Statistic, ...] = ()


@dataclass(frozen=True)
class _Statistics:
    pages: tuple[_Page, ...] = ()

    def value(self, page: int, offset: int) -> int | None:
        """Return a statistic that the disk calls valid; None without it."""
        rows = (row for section in self.pages if section.number == page for row in section.table)
        return next((r.value for r in rows if r.offset == offset and r.flags.valid), None)


@dataclass(frozen=True)
class _Temperature:
    current: float | None = None


@dataclass(frozen=True)
class Report:
    """smartctl's JSON (smartmontools 7): NVMe, ATA and SCSI each have their own part."""

    serial_number: str = ""
    in_smartctl_database: bool | None = None
    logical_block_size: int = _DEFAULT_SECTOR_BYTES
    smart_status: _Status = _Status()
    nvme_smart_health_information_log: _NvmeLog | None = None
    ata_smart_attributes: _Attributes = _Attributes()
    ata_device_statistics: _Statistics = _Statistics()
    scsi_error_counter_log: Mapping[str, _ScsiErrors] = field(default_factory=dict)
    scsi_grown_defect_list: int = 0
    temperature: _Temperature = _Temperature()


def read(program: str, name: str) -> Health | None:
    """Read the health of the disk with this kernel name.

    None without smartctl or without SMART.
    """
    try:
        # Its exit code is a set of bits that the JSON says better.
        output = run(
            [program, "-j", "-i", "-H", "-A", "-l", "devstat", f"/dev/{name}"],
            ok=range(256),
            timeout_s=20,
        ).out
        health = health_of(strict_json.parse(Report, output))
    except (CommandError, ValueError):
        return None
    # Its JSON leaves out how often an NVMe disk became slower.
    with suppress(OSError):
        return health and replace(health, throttled=nvme.throttlings(f"/dev/{name}"))
    return health


def lifetime(name: str | None) -> Lifetime | None:
    """Read what the disk with this kernel name has written in its life; None without SMART."""
    health = read("smartctl", name) if name else None
    return Lifetime(health.written_bytes, health.used_percent) if health else None


def health_of(report: Report) -> Health | None:
    """Return the health in a report; None without SMART."""
    passed, log = report.smart_status.passed, report.nvme_smart_health_information_log
    ata, scsi = report.ata_smart_attributes.table, report.scsi_error_counter_log
    if passed is None and not (log or ata or scsi):
        return None
    log = log or _NvmeLog()
    errors = log.media_errors + report.scsi_grown_defect_list
    # "ECC" is in the names of counts of what a disk has corrected and lost nothing of.
    lost = (row for row in ata if row.id in _LOST and "ECC" not in row.name)
    errors += sum(row.raw.value for row in lost)
    errors += sum(part.total_uncorrected_errors for part in scsi.values())
    heat = [n for n in (log.warning_temp_time, log.critical_comp_time) if n is not None]
    used_percent = log.percentage_used
    if used_percent is None:
        used_percent = report.ata_device_statistics.value(_SOLID_STATE, _USED_PERCENT)
    return Health(
        report.serial_number,
        passed,
        errors,
        throttled=sum(heat) if heat else None,
        temperature_c=possible_c(report.temperature.current),
        written_bytes=_written_bytes(report, log),
        spare_percent=log.available_spare,
        used_percent=used_percent,
    )


def possible_c(reading_c: float | None) -> float | None:
    """Return a temperature; None if no disk can have it, so that the sensor is wrong."""
    low, high = POSSIBLE_C
    return reading_c if reading_c is not None and low < reading_c < high else None


def _written_bytes(report: Report, log: _NvmeLog) -> int | None:
    """Return the bytes that a disk has written in its life; None if their unit is uncertain.

    A standard defines the unit, or smartctl's database names it (241 counts sectors, 32 MiB, GiB,
    …). A disk that is not in the database gets the names of most disks, which may be wrong.
    """
    # NVMe Base Specification: thousands of 512 bytes, rounded up; 0: not reported, or a new disk.
    if log.data_units_written is not None and (log.data_units_written or log.data_units_read):
        return log.data_units_written * 512_000
    sectors = report.ata_device_statistics.value(_GENERAL, _SECTORS_WRITTEN)
    if sectors is not None:
        return sectors * report.logical_block_size
    processed = report.scsi_error_counter_log.get("write", _ScsiErrors()).gigabytes_processed
    if processed is not None:
        return round(float(processed) * 10**9)
    attributes = report.ata_smart_attributes.table
    written = next((attribute for attribute in attributes if attribute.id == _WRITTEN), None)
    if written is None or report.in_smartctl_database is False:
        return None
    if unit := _UNIT.search(written.name):
        base = 1024 if unit[3] else 1000
        return int(written.raw.value * int(unit[1] or 1) * base ** (1 + "KMGT".index(unit[2])))
    # Makers of disks with larger sectors count either kind.
    has_default_sectors = report.logical_block_size == _DEFAULT_SECTOR_BYTES
    return (
        written.raw.value * 512
        if has_default_sectors and _SECTORS.fullmatch(written.name)
        else None
    )
