"""Figures of a run of the testbed itself: its time, the image's size, the lab's memory."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

GB = 1e9
SAMPLE_S = 2.0
# Targets: from a fresh clone to the report, the same with the image in the cache, building the
# image, its size, the lab's memory.
FRESH_MIN = 45.0
CACHED_MIN = 30.0
IMAGE_MIN = 6.0
IMAGE_GB = 3.0
LAB_GB = 6.0


class LabMemory:
    """A context that samples the resident memory of all processes that the lab's state names.

    `peak_bytes` is the largest sum seen; pages shared by two processes count twice. `accelerator`
    is the lab's own word for how the guest ran.
    """

    def __init__(self, state: Path) -> None:
        self._state = state
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.peak_bytes = 0
        self.accelerator = ""

    def __enter__(self) -> LabMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            state = read_state(self._state)
            self.accelerator = state.get("accel", self.accelerator)
            now = sum(resident_bytes(pid) for pid in lab_pids(state))
            self.peak_bytes = max(self.peak_bytes, now)


def read_state(path: Path) -> dict[str, Any]:
    """The lab's state; empty while there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def lab_pids(state: Mapping[str, Any]) -> list[int]:
    """Processes of a running lab: the guest, the drives, the meter."""
    named = [{"pid": state.get("qemu_pid")}, *state.get("drives", {}).values()]
    named.append(state.get("meter") or {})
    return [entry["pid"] for entry in named if entry.get("pid")]


def resident_bytes(pid: int) -> int:
    """Resident set of a process; 0 if it is gone."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def figures(
    *,
    total_s: float,
    image: Mapping[str, Any] | None,
    image_is_new: bool,
    lab_memory_gb: float | None,
    measuring_share: float | None,
) -> list[dict[str, Any]]:
    """The list of `{figure, value, unit, target, meets}`; what was not seen is left out."""
    name, limit = ("total", FRESH_MIN) if image_is_new else ("total, image cached", CACHED_MIN)
    found = [_at_most(name, total_s / 60, "min", limit)]
    if image is not None:
        found.append(_at_most("image build", image["build_s"] / 60, "min", IMAGE_MIN))
        found.append(_at_most("image size", image["allocated_bytes"] / GB, "GB", IMAGE_GB))
    if lab_memory_gb is not None:
        found.append(_at_most("lab memory, peak", lab_memory_gb, "GB", LAB_GB))
    if measuring_share is not None:
        share = round(100 * measuring_share, 1)
        found.append(
            {
                "figure": "share of the suite that was measuring",
                "value": share,
                "unit": "%",
                "target": None,
                "meets": None,
            }
        )
    return found


def write(path: Path, found: Sequence[Mapping[str, Any]], where: Mapping[str, Any]) -> Path:
    """Print the table; write the list, and NAME.machine.json with commit and machine beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    print(f"\n{'figure':<40} {'value':>8} {'unit':<4} {'target':>8}  meets")
    for row in found:
        target = "" if row["target"] is None else f"{row['target']:g}"
        meets = {True: "yes", False: "no", None: ""}[row["meets"]]
        print(f"{row['figure']:<40} {row['value']:8.2f} {row['unit']:<4} {target:>8}  {meets}")
    path.write_text(json.dumps(list(found), indent=2) + "\n", encoding="utf-8")
    beside = path.with_suffix(".machine.json")
    beside.write_text(json.dumps(where, indent=2) + "\n", encoding="utf-8")
    return path


def machine(accelerator: str) -> dict[str, Any]:
    """Commit and machine: what a figure is worth nothing without."""
    cpu = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    memory_kib = Path("/proc/meminfo").read_text(encoding="utf-8").split()[1]
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "machine": {
            "cpu": cpu[0] if cpu else platform.machine(),
            "cores": len(cpu) or os.cpu_count(),
            "memory_gb": round(int(memory_kib) * 1024 / GB, 1),
            "kernel": platform.release(),
            "system": platform.freedesktop_os_release().get("PRETTY_NAME", ""),
            "python": platform.python_version(),
            "accelerator": accelerator,
        },
    }


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def _at_most(figure: str, value: float, unit: str, target: float) -> dict[str, Any]:
    return {
        "figure": figure,
        "value": round(value, 2),
        "unit": unit,
        "target": target,
        "meets": value <= target,
    }
