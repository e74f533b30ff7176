"""Power that NVMe drives report in their health log (NVM Express 2.3).

A controller with Power Measurement (Identify Controller, CTRATT bit 21) gives in bytes 240 to 243
of the SMART / Health log the mean of its samples over the last second: 16 bits, times the scale of
the next two, for the whole subsystem if bits 25:20 are 0. Layout: libnvme's `nvme_smart_log`.
Tried only on the virtual drive. The drive's energy counter is in watt-hours, too coarse for a run.
"""

from __future__ import annotations

import struct
from functools import partial
from pathlib import Path
from typing import ClassVar

from instrumentation.nvme import identify_controller, read_health
from instrumentation.sources.polled import PolledSource
from instrumentation.sources.registry import SourceError

ROOT = Path("/sys/class/nvme")
DEVICES = Path("/dev")
PERIOD_S = 1.0  # over which the drive averages; each read is a command to the drive
_ATTRIBUTES = struct.Struct("<96xI")
_POWER_MEASUREMENT = 1 << 21
_INTERVAL_POWER = struct.Struct("<240xI")
_SCALES_UW = {1: 100, 2: 10_000}


class NvmePowerError(SourceError):
    """No drive reports its power; the message has the remedy."""


class NvmeSource(PolledSource):
    """NVMe controllers that measure their power, by the kernel's names (`nvme0`, `nvme1` …)."""

    name: ClassVar[str] = "nvme"
    # A command a second can keep a drive from sleeping, so suites, which measure disks, omit it.
    disturbs_disks: ClassVar[bool] = True

    @classmethod
    def open(
        cls, root: Path = ROOT, devices: Path = DEVICES, period_s: float = PERIOD_S
    ) -> NvmeSource:
        """Find the drives that measure power and begin to poll them. Raises NvmePowerError."""
        controllers = sorted(path.name for path in root.glob("nvme*"))
        if not controllers:
            raise NvmePowerError("no-nvme-drive", root=root)
        names, refused = [], []
        for name in controllers:
            try:
                if _measures_power(devices / name):
                    names.append(name)
            except PermissionError:
                refused.append(str(devices / name))
            except OSError:
                pass  # a controller that appears or vanishes just now
        if not names and refused:
            raise NvmePowerError("nvme-drives-refused", devices=", ".join(refused))
        if not names:
            raise NvmePowerError("no-nvme-power", drives=", ".join(controllers))
        powers = {name: partial(power_uw, devices / name) for name in names}
        return cls(powers, {}, period_s, names, dict.fromkeys(names, round(PERIOD_S * 1e9)))

    @classmethod
    def is_present(cls, root: Path = ROOT, devices: Path = DEVICES) -> bool:
        """Return whether this machine is known to have such a drive."""
        try:
            return any(_measures_power(devices / path.name) for path in root.glob("nvme*"))
        except OSError:
            return False


def _measures_power(device: Path) -> bool:
    (attributes,) = _ATTRIBUTES.unpack_from(identify_controller(str(device)))
    return bool(attributes & _POWER_MEASUREMENT)


def power_uw(device: Path) -> int:
    """Return the mean power of the last second, in µW. Raises OSError if the drive gives none."""
    word: int
    (word,) = _INTERVAL_POWER.unpack_from(read_health(str(device)))
    scale_uw, kind = _SCALES_UW.get(word >> 16 & 0b11), word >> 20 & 0x3F
    if scale_uw is None or kind:
        raise OSError(f"its log of health has no power of the whole drive ({word:#010x})")
    return (word & 0xFFFF) * scale_uw
