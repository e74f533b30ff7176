"""A disk's own account of its health, as smartctl tells it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from agent.command import CommandError, run

# ATA attributes that count what the medium lost: reallocated, uncorrectable, pending, offline.
_LOST = frozenset({5, 187, 197, 198})


@dataclass(frozen=True)
class Health:
    """`passed` is the disk's verdict on itself, None if it gives none; `errors` of its medium."""

    serial: str
    passed: bool | None
    errors: int


def read(program: str, name: str) -> Health | None:
    """The health of the disk with this kernel name; None without smartctl or without SMART."""
    try:
        # Its exit code is a set of bits that the JSON says better.
        said = run(
            [program, "-j", "-i", "-H", "-A", f"/dev/{name}"], ok=range(256), timeout_s=20
        ).out
        report = json.loads(said)
    except (CommandError, ValueError):
        return None
    return parse(report) if isinstance(report, dict) else None


def parse(report: dict[str, Any]) -> Health | None:
    """From smartctl's JSON (smartmontools 7: NVMe, ATA and SCSI each have their own part)."""
    passed = report.get("smart_status", {}).get("passed")
    nvme = report.get("nvme_smart_health_information_log", {})
    ata = report.get("ata_smart_attributes", {}).get("table", [])
    scsi = report.get("scsi_error_counter_log", {})
    if passed is None and not (nvme or ata or scsi):
        return None
    errors = nvme.get("media_errors", 0)
    errors += sum(row["raw"]["value"] for row in ata if row["id"] in _LOST)
    errors += sum(part.get("total_uncorrected_errors", 0) for part in scsi.values())
    return Health(str(report.get("serial_number", "")), passed, errors)
