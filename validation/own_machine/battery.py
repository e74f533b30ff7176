"""A modelled battery for a guest: it discharges by what the lab's meter counts.

The host renews its files every second in the folder that User Mode Linux mounts as /run/fde-host;
the guest shows them as /sys/class/power_supply. Steps and pace are a laptop's: 10 mWh, a second.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.machines.uml import HOST_FOLDER
from lab.state import Layout
from validation.first_use.guest import OVER

FULL_UWH, STEP_UWH = 50_000_000, 10_000
PERIOD_S = 1.0
LINE_BYTES = 512  # longer than a line of the meter's truth
UWH_PER_J = 1e6 / 3600
SHOW = f"""{OVER}
[ -e /sys/class/power_supply ] || over /sys/class
mkdir -p /sys/class/power_supply
mountpoint -q /sys/class/power_supply ||
  mount --bind /run/fde-host/power_supply /sys/class/power_supply
"""


@contextmanager
def discharging(layout: Layout) -> Iterator[Path]:
    """Yield the battery's folder on the host, kept up to date meanwhile.

    The lab must run on User Mode Linux, with `truth`. The guest shows it after the script `SHOW`,
    which is to be repeated when the guest has started again.
    """
    supplies = layout.directory / HOST_FOLDER / "power_supply"
    battery, mains = supplies / "BAT0", supplies / "AC"
    for folder, files in (
        (mains, {"type": "Mains", "online": "0"}),
        (battery, {"type": "Battery", "present": "1", "status": "Discharging"}),
    ):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write(folder / name, content)
    write(battery / "energy_full", str(FULL_UWH))
    ended = threading.Event()
    start = _last(layout.truth)
    _show(battery, 0.0, 10.0)
    keeper = threading.Thread(target=_keep, args=(layout.truth, start, battery, ended))
    keeper.start()
    try:
        yield battery
    finally:
        ended.set()
        keeper.join()


def write(file: Path, content: str) -> None:
    """Replace a file at once: the guest then reads the new one, never a half of it."""
    part = file.with_name(f".{file.name}")
    part.write_text(content + "\n", encoding="ascii")
    part.replace(file)


def _keep(truth: Path, start: tuple[float, float], battery: Path, ended: threading.Event) -> None:
    last_s, last_j = start
    while not ended.wait(PERIOD_S):
        with contextlib.suppress(OSError, ValueError):  # the lab may have ended
            now_s, now_j = _last(truth)
            if now_s > last_s:
                _show(battery, now_j - start[1], (now_j - last_j) / (now_s - last_s))
                last_s, last_j = now_s, now_j


def _show(battery: Path, used_j: float, power_w: float) -> None:
    left_uwh = FULL_UWH - round(used_j * UWH_PER_J)
    write(battery / "energy_now", str(left_uwh // STEP_UWH * STEP_UWH))
    write(battery / "power_now", str(round(power_w * 1e6)))


def _last(truth: Path) -> tuple[float, float]:
    """Return the time, s, and the energy, J, of the meter's last whole line."""
    with truth.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 2 * LINE_BYTES))
        line = json.loads(file.read().split(b"\n")[-2])
    return line["t_mono_ns"] / 1e9, line["system_j"]
