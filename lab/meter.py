"""Simulate the lab's power meter: a SmartPower3 on a pseudo-terminal.

    python -m lab.meter --state FILE --link PATH --ready-file FILE [--truth FILE]
        [--truth-period SECONDS]

Every 10 ms of its time it sends one line: channel 0 is the whole machine, channel 1 the drives. The
watts are computed from the power model, the guest's CPU time and the drives' counters. While the
host runs something else instead of the guest or of a drive that the guest waits for, the modelled
machine stands still; the guest's modelled counters get that time through a page of memory
(lab/host_time.py). If this process was late, all due lines carry the mean since the last reading,
so that no energy is lost. `--truth` gets the energies before they become lines, every second or as
`--truth-period` sets; 0 is at every reading.

The meter is not powered by the target: if the guest ends, it shows 0 W until the lab's state names
another. SIGUSR1 unplugs its cable to the controller, SIGUSR2 plugs it in. SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import struct
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, cast

import numpy as np

from contract.errors import LabError
from contract.files import write_json
from contract.interrupts import noted_signals
from instrumentation.simulators.play import SimulatedPort
from instrumentation.simulators.smartpower3 import SmartPower3Simulator
from lab.host_time import Delay, GuestTime, HostPage, PowerLostError, ProcessTree, Threads
from lab.power_model import DRIVE, Activity, DriveActivity, Power, PowerModel
from lab.state import LabState

INTERVAL_NS = 10_000_000
OFF = Power(0.0, 0.0)
# Bytes read, written, encrypted, decrypted, busy_ns, reads, writes, service_ns, a mark.
_STATS = struct.Struct("<9Q")


class Counters:
    """The counters of a running lab; keeps their files open."""

    def __init__(self, state: LabState, model: PowerModel) -> None:
        """Open all counters. Raises LabError if the state is incomplete or the lab is down."""
        try:
            guest = state["guest"]
            pid, vcpu_tids = int(guest["pid"]), guest.get("vcpu_tids")
            drives = state["drives"].values()
            stats = [Path(drive["stats"]) for drive in drives]
            self._delays = [Delay(int(drive["pid"])) for drive in drives]
            page = Path(state["host_page"])
            self.media = tuple(str(drive.get("medium") or DRIVE) for drive in drives)
        except (KeyError, TypeError, ValueError) as error:
            raise LabError("state-incomplete", error=error) from None
        try:
            self._page = HostPage(page)
            self._cpu = Threads(pid, vcpu_tids) if vcpu_tids else ProcessTree(pid, self._page)
            self._drives = [os.open(path, os.O_RDONLY) for path in stats]
        except OSError as error:
            raise LabError("lab-not-running", path=error.filename) from None
        self._last: list[tuple[int, ...]] = [(0,) * 9 for _ in self._drives]
        self._model = model
        self._guest = GuestTime()
        self._delay_ns = self._owed_ns = self._stolen_ns = 0
        self._last_ns = 0

    def close(self) -> None:
        self._cpu.close()
        self._page.close()
        for delay in self._delays:
            delay.close()
        for fd in self._drives:
            os.close(fd)

    def _stood_still_ns(self, guest: GuestTime, now_ns: int) -> int:
        """Return the time stolen from the machine: from its CPUs, or a drive that it waits for.

        Time stolen from a drive while the guest worked has stopped nothing. A wait is reported only
        when it ends: the part longer than the time since the last reading is added at later ones.
        """
        before, self._guest = self._guest, guest
        delay_ns = sum(delay.read_ns() for delay in self._delays)
        waited_ns, self._delay_ns = delay_ns - self._delay_ns, delay_ns
        idle_ns = guest.idle_ns - before.idle_ns
        self._owed_ns += (guest.stolen_ns - before.stolen_ns) // self._cpu.cpus
        self._owed_ns += max(0, min(waited_ns, idle_ns // self._cpu.cpus))
        counted_ns = min(self._owed_ns, now_ns - (self._last_ns or now_ns))
        self._owed_ns -= counted_ns
        self._stolen_ns += counted_ns
        self._last_ns = now_ns
        return self._stolen_ns

    def read(self, now_ns: int) -> Activity:
        """Return all counters now. Raises PowerLostError."""
        guest = self._cpu.read(now_ns)
        stolen_ns = self._stood_still_ns(guest, now_ns)
        self._page.publish(guest.stolen_ns, self._model.uncharged_ns(stolen_ns))
        for index, fd in enumerate(self._drives):
            raw = os.pread(fd, _STATS.size, 0)
            if len(raw) == _STATS.size:  # a restarting drive empties its file for a moment
                self._last[index] = _STATS.unpack(raw)
        drives = (DriveActivity(s[0], s[1], s[2] + s[3], s[7]) for s in self._last)
        return Activity(guest.cpu_ns, tuple(drives), stolen_ns)


class Mains:
    """The lab's power supply: reads the counters of the guest named in its state file, if any."""

    def __init__(self, path: Path, model: PowerModel) -> None:
        """Open the counters. Raises LabError if the lab is not running."""
        self._path, self.model = path, model
        self._counters: Counters | None = Counters(_load_state(path), model)
        self._seen = self._stamp()
        self.media = self._counters.media

    def read(self, now_ns: int) -> Activity | None:
        """Return all counters now; None while there is no power."""
        try:
            if self._counters is None and self._stamp() != self._seen:
                self._seen = self._stamp()
                self._counters = Counters(_load_state(self._path), self.model)
            return self._counters.read(now_ns) if self._counters else None
        except PowerLostError:
            assert self._counters is not None
            self._counters.close()
            self._counters = None
        except LabError:
            pass  # the state after a power cut, or one being written
        return None

    def _stamp(self) -> tuple[int, int]:
        """Return numbers that change with every write of the state file."""
        try:
            status = self._path.stat()
        except OSError:
            return (0, 0)
        return (status.st_ino, status.st_mtime_ns)


@dataclass
class Integral:
    """Energy used since the start, in J, at the last reading and at the one before.

    `activity` is None while the lab has no power; `stolen_ns` is how long the machine stood still.
    """

    model: PowerModel
    media: Sequence[str]
    t_ns: int
    activity: Activity | None
    energy_j: tuple[float, float] = (0.0, 0.0)
    before_ns: int = 0
    before_j: tuple[float, float] = (0.0, 0.0)
    stolen_ns: int = 0

    def look(self, t_ns: int, activity: Activity | None) -> None:
        """Add the energy since the last reading; without power at either end it is 0."""
        dt_s = (t_ns - self.t_ns) / 1e9
        power = OFF
        if activity is not None and self.activity is not None:
            did = activity.since(self.activity)
            power = self.model.power(did, dt_s, self.media)
            self.stolen_ns += did.stolen_ns
        self.before_ns, self.before_j = self.t_ns, self.energy_j
        system_j, drive_j = self.energy_j
        self.energy_j = (system_j + power.system_w * dt_s, drive_j + power.drive_w * dt_s)
        self.t_ns, self.activity = t_ns, activity

    def at(self, t_ns: int) -> tuple[float, float]:
        """Return the energy at a moment between the last two readings, at constant power."""
        share = (t_ns - self.before_ns) / (self.t_ns - self.before_ns)
        (s0, d0), (s1, d1) = self.before_j, self.energy_j
        return s0 + (s1 - s0) * share, d0 + (d1 - d0) * share


class Truth:
    """Log of energies before they become lines: one JSON line a period, and one at each end."""

    def __init__(self, path: Path | None, period_s: float, start_ns: int) -> None:
        self._period_ns = round(period_s * 1e9)
        self._file: TextIO | None = path.open("w", encoding="utf-8") if path else None
        self._start_ns = start_ns
        self._due_ns = 0

    def write(self, integral: Integral, *, flush: bool = False) -> None:
        """Write a line if one is due."""
        if self._file is None or (integral.t_ns < self._due_ns and not flush):
            return
        self._due_ns = integral.t_ns + self._period_ns
        system_j, drive_j = integral.energy_j
        record = {
            "t_mono_ns": integral.t_ns,
            "t_device_ms": (integral.t_ns - self._start_ns) / 1e6,
            "system_j": system_j,
            "drive_j": drive_j,
            "stolen_s": integral.stolen_ns / 1e9,
        }
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()


class Cable:
    """The meter's port while it is plugged in; data sent without it is lost."""

    def __init__(self, link: Path) -> None:
        self._link = link
        self._port: SimulatedPort | None = SimulatedPort(link)
        self._dropped = 0
        self._requested = True
        signal.signal(signal.SIGUSR1, lambda *_: self._request(False))
        signal.signal(signal.SIGUSR2, lambda *_: self._request(True))

    @property
    def dropped(self) -> int:
        """Return the number of pieces that no reader received."""
        return self._dropped + (self._port.dropped if self._port else 0)

    def _request(self, plugged: bool) -> None:
        self._requested = plugged  # `move` acts on it between two pieces

    def move(self) -> None:
        """Plug in or unplug as the last signal requested."""
        if self._requested and self._port is None:
            self._port = SimulatedPort(self._link)
        elif not self._requested:
            self.close()

    def send(self, data: bytes) -> None:
        if self._port is None:
            self._dropped += 1
        else:
            self._port.send(data)

    def close(self) -> None:
        if self._port is not None:
            self._dropped += self._port.dropped
            self._port.close()
            self._port = None


def stream(
    mains: Mains,
    cable: Cable,
    truth_to: tuple[Path | None, float],
    ready: Callable[[], object],
    stopped: Callable[[], bool],
) -> int:
    """Send lines until `stopped`; return their number."""
    simulator = SmartPower3Simulator(INTERVAL_NS // 1_000_000)
    start_ns = time.monotonic_ns()
    integral = Integral(mains.model, mains.media, start_ns, mains.read(start_ns))
    truth = Truth(*truth_to, start_ns)
    truth.write(integral)
    ready()
    lines = 0
    while not stopped():
        due_ns = start_ns + (lines + 1) * INTERVAL_NS
        wait_ns = due_ns - time.monotonic_ns()
        if wait_ns > 0:
            time.sleep(wait_ns / 1e9)
        cable.move()
        now_ns = time.monotonic_ns()
        integral.look(now_ns, mains.read(now_ns))
        while (due_ns := start_ns + (lines + 1) * INTERVAL_NS) <= integral.t_ns:
            cable.send(simulator.advance(np.array([integral.at(due_ns)])))
            lines += 1
        truth.write(integral)
    truth.write(integral, flush=True)
    return lines


def _load_state(path: Path) -> LabState:
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LabError("state-unread", error=error) from None
    if not isinstance(state, dict):
        raise LabError("no-state", path=path)
    return cast(LabState, state)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the meter; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m lab.meter")
    parser.add_argument("--state", required=True, type=Path, help="state.json of the lab")
    parser.add_argument("--link", required=True, type=Path, help="becomes a link to the port")
    parser.add_argument("--ready-file", required=True, type=Path, help="written once it streams")
    parser.add_argument("--truth", type=Path, help="JSON lines of the energies themselves")
    parser.add_argument("--truth-period", type=float, default=1.0, help="seconds between them")
    options = parser.parse_args(arguments)
    ready = {"port": str(options.link), "pid": os.getpid()}
    try:
        with noted_signals(signal.SIGTERM, signal.SIGINT) as ended:
            mains = Mains(options.state, PowerModel.load())
            cable = Cable(options.link)
            try:
                lines = stream(
                    mains,
                    cable,
                    (options.truth, options.truth_period),
                    lambda: write_json(options.ready_file, ready),
                    lambda: bool(ended),
                )
            finally:
                cable.close()
    except LabError as error:
        print(f"fde: {error}", file=sys.stderr)
        return 1
    print(f"meter: {lines} lines, {cable.dropped} of them without a reader")
    return 0


if __name__ == "__main__":
    sys.exit(main())
