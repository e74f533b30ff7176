"""Files of batteries as kernels show them, and logs of drives."""

from __future__ import annotations

import struct
from functools import partial
from pathlib import Path

import pytest

from instrumentation.sources import nvme

BATTERY = {
    "type": "Battery",
    "status": "Discharging",
    "energy_now": "40000000",
    "power_now": "10000000",
}
CHARGE = {
    "type": "Battery",
    "status": "Discharging",
    "charge_now": "3000000",
    "voltage_now": "12000000",
    "current_now": "-500000",
}


def lay_out(folder: Path, files: dict[str, str]) -> Path:
    """Write the files of one folder; return it."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    return folder


def lay_out_nvme(root: Path, patch: pytest.MonkeyPatch, **drives: int | None) -> None:
    """Simulate drives whose logs have this word of power; None for a drive that measures none.

    Their pages are files; a guest's test reads those of a drive.
    """

    def page(device: str, page_name: str) -> bytes:
        return Path(device, page_name).read_bytes()

    for name, word in drives.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        attributes = struct.pack("<96xI", 0 if word is None else 1 << 21)
        (root / name / "identify").write_bytes(attributes)
        (root / name / "health").write_bytes(struct.pack("<240xI", word or 0))
    patch.setattr(nvme, "identify_controller", partial(page, page_name="identify"))
    patch.setattr(nvme, "read_health", partial(page, page_name="health"))
