"""A machine of files on which every check finds something, all of it in order."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from agent.checks import Inspection, Memory
from agent.checks.context import CheckContext
from contract.tests import programs

DISK = "sdx"
Value = TypeVar("Value")
SMART: dict[str, Any] = {
    "serial_number": "S1",
    "smart_status": {"passed": True},
    "nvme_smart_health_information_log": {
        "critical_warning": 0,
        "media_errors": 3,
        "warning_temp_time": 1,
        "data_units_written": 2,
        "available_spare": 100,
    },
}
FILES = {
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
    "sys/devices/system/cpu/intel_pstate/no_turbo": "1",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq": "4000000",
    "sys/devices/system/cpu/cpu0/cpuidle/state0/name": "POLL",
    "sys/devices/system/cpu/cpu0/cpuidle/state0/disable": "0",
    "sys/devices/system/cpu/cpu0/cpuidle/state1/name": "C6",
    "sys/devices/system/cpu/cpu0/cpuidle/state1/disable": "0",
    "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "7",
    "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count": "2",
    "sys/class/thermal/thermal_zone0/type": "acpitz",
    "sys/class/thermal/thermal_zone0/temp": "99000",
    "sys/class/thermal/thermal_zone1/type": "x86_pkg_temp",
    "sys/class/thermal/thermal_zone1/temp": "45000",
    "sys/class/powercap/intel-rapl:0/energy_uj": "1",
    f"sys/class/block/{DISK}/queue/scheduler": "[none] mq-deadline",
    f"sys/class/block/{DISK}/queue/read_ahead_kb": "128",
    f"sys/class/block/{DISK}/device/rev": "1.0",
    f"sys/class/block/{DISK}/device/ioerr_cnt": "0x2",
    f"sys/class/block/{DISK}/device/queue_depth": "32",
    f"sys/class/block/{DISK}/device/device/current_link_speed": "8.0 GT/s PCIe",
    f"sys/class/block/{DISK}/device/device/current_link_width": "4",
    f"sys/class/block/{DISK}/device/hwmon3/temp1_input": "35000",
    f"sys/class/block/{DISK}/queue/write_cache": "write back",
    f"sys/class/block/{DISK}/queue/fua": "0",
    f"sys/class/block/{DISK}/device/scsi_disk/0:0:0:0/cache_type": "write back",
    "proc/1/root/etc/ld.so.preload": "",
    "proc/sys/vm/dirty_ratio": "20",
    "proc/sys/vm/drop_caches": "0",
    "proc/self/mountinfo": "30 1 8:1 / / rw,noatime shared:1 - ext4 /dev/sdx rw,discard",
    "proc/stat": "cpu  10 0 10 100 0 0 0 0 0 0\n",
    "proc/meminfo": "MemAvailable:    9000000 kB\n",
    "proc/swaps": "Filename Type Size Used Priority\n",
    "kmsg": "6,1,0,-;booted\n4,2,5,-;something before the run: I/O error\n SUBSYSTEM=block\n",
    "units": "",
    "smart.json": json.dumps(SMART),
    "run/.keep": "",
    "suite/plan.json": "{}",
}


@dataclass(frozen=True)
class Machine:
    """`root` holds the tree; `context` looks at it."""

    root: Path
    context: CheckContext

    def write(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)

    def append(self, name: str, text: str) -> None:
        with (self.root / name).open("a") as file:
            file.write(text)

    def with_scene(self, **changes: Any) -> Machine:
        return replace(self, context=replace(self.context, **changes))


def build(root: Path) -> Machine:
    """Return the machine with all files in place."""
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    units = f'[ "$1" = show ] && echo Id=cron.service || cat {root}/units'
    context = CheckContext(
        Path("/"),
        suite_dir=root / "suite",
        disks=(DISK,),
        sys=root / "sys",
        proc=root / "proc",
        kmsg=root / "kmsg",
        run_dir=root / "run",
        smartctl=program(root / "smartctl", f"cat {root}/smart.json"),
        systemctl=program(root / "systemctl", units),
        window_s=0.01,
        poll_s=10.0,
        min_free_share=0.0,
        min_free_bytes=1,
    )
    return Machine(root, context)


def program(path: Path, body: str) -> str:
    """Write a shell script; returns its path."""
    return str(programs.program(path, body))


class Patience:
    """A clock that only sleeping moves; `acts` happen at the first sleeps, in order."""

    def __init__(self, *acts: Callable[[], None]) -> None:
        self.now_s = 0.0
        self._acts = list(acts)

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self._acts:
            self._acts.pop(0)()


def inspect_before(
    place: Machine, memory: Memory, *acts: Callable[[], None]
) -> tuple[Inspection, list[str], float]:
    """Inspect before a run; return the reasons and seconds of waits. Each sleep makes an act."""
    patience, reasons = Patience(*acts), list[str]()
    inspection = Inspection(place.context, memory, sleep=patience.sleep, clock=patience.clock)
    inspection.before(lambda cause, why: reasons.append(f"{cause}: {why}"))
    return inspection, reasons, patience.now_s


def not_none(value: Value | None) -> Value:
    """Return what is not None; fails where it is."""
    assert value is not None
    return value
