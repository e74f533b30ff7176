"""A disk's own account of its health, as smartctl tells it."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from agent.storage import nvme
from agent.system.command import CommandError, run

# ATA attributes that count what the medium lost: reallocated, uncorrectable, pending, offline.
_LOST = frozenset({5, 187, 197, 198})
_WRITTEN = 241  # total LBAs written

_HEAT = ("warning_temp_time", "critical_comp_time")


@dataclass(frozen=True)
class Health:
    """`passed` is the disk's verdict on itself, None if it gives none; `errors` of its medium.

    `throttled` counts what heat did to an NVMe disk in its life: minutes above its limits and, as
    far as it can be read, transitions to slower states; `written_bytes` those of its life,
    `spare_percent` of its spare blocks that are left, `used_percent` of the life that its maker
    states. None where it does not say.
    """

    serial: str
    passed: bool | None
    errors: int
    temperature_c: float | None = None
    throttled: int | None = None
    written_bytes: int | None = None
    spare_percent: int | None = None
    used_percent: int | None = None


def read(program: str, name: str) -> Health | None:
    """Return the health of the disk with this kernel name.

    None without smartctl or without SMART.
    """
    try:
        # Its exit code is a set of bits that the JSON says better.
        output = run(
            [program, "-j", "-i", "-H", "-A", f"/dev/{name}"], ok=range(256), timeout_s=20
        ).out
        report = json.loads(output)
    except (CommandError, ValueError):
        return None
    health = parse(report) if isinstance(report, dict) else None
    # Its JSON leaves out how often an NVMe disk became slower.
    with suppress(OSError):
        return health and replace(health, throttled=nvme.throttlings(f"/dev/{name}"))
    return health


def lifetime(name: str | None) -> dict[str, int | None] | None:
    """`written_bytes` and `used_percent` of the disk with this kernel name; None without SMART."""
    health = read("smartctl", name) if name else None
    if health is None:
        return None
    return {"written_bytes": health.written_bytes, "used_percent": health.used_percent}


def parse(report: dict[str, Any]) -> Health | None:
    """From smartctl's JSON (smartmontools 7: NVMe, ATA and SCSI each have their own part)."""
    passed = report.get("smart_status", {}).get("passed")
    log = report.get("nvme_smart_health_information_log", {})
    ata = report.get("ata_smart_attributes", {}).get("table", [])
    scsi = report.get("scsi_error_counter_log", {})
    if passed is None and not (log or ata or scsi):
        return None
    errors = log.get("media_errors", 0)
    errors += sum(row["raw"]["value"] for row in ata if row["id"] in _LOST)
    errors += sum(part.get("total_uncorrected_errors", 0) for part in scsi.values())
    heat = [log[key] for key in _HEAT if key in log]
    units = log.get("data_units_written")
    sectors = next((row["raw"]["value"] for row in ata if row["id"] == _WRITTEN), None)
    return Health(
        str(report.get("serial_number", "")),
        passed,
        errors,
        throttled=sum(heat) if heat else None,
        temperature_c=report.get("temperature", {}).get("current"),
        # NVMe Base Specification, SMART log: thousands of 512 bytes.
        written_bytes=units * 512_000 if units is not None else sectors and sectors * 512,
        spare_percent=log.get("available_spare"),
        used_percent=log.get("percentage_used"),
    )
