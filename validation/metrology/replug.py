"""Time until a replugged meter gives a valid sample, with another port number each time.

A simulated SmartPower3 at a pseudo-terminal is unplugged (the terminal goes) and plugged in again
(a new one, at the same link), a thousand times, while the real recorder runs as a process of its
own. The time is from the link's coming back to the first byte of the next record that the
recording holds.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from contract.errors import LabError
from contract.places import module_command
from instrumentation.clock import monotonic_ns
from instrumentation.decode import decode
from instrumentation.meters.smartpower3 import LINE_BYTES
from instrumentation.simulators.play import SimulatedPort
from instrumentation.simulators.smartpower3 import SmartPower3Simulator
from validation.bench import Figure, at_most

CYCLES = 1_000
INTERVAL_MS = 10
LIMIT_S = 2.0 + INTERVAL_MS / 1000
WATTS = (20.0, 0.06)
KEPT_BYTES = 5 * LINE_BYTES  # that are in the recording before it is unplugged again
AWAY_S = (0.005, 0.25)
GIVEN_UP_S = 10.0


@dataclass
class Plugs:
    """A meter that sends a line each interval, plugged in or not, and when it was plugged in."""

    link: Path
    stream: Path
    chance: random.Random
    plugged_ns: list[int] = field(default_factory=list)
    numbers: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._simulator = SmartPower3Simulator(INTERVAL_MS)
        self._port = SimulatedPort(self.link)
        self._lines = 0
        self._start_ns = monotonic_ns()

    def _line(self) -> None:
        """Write the next line when it is due."""
        self._lines += 1
        due_ns = self._start_ns + self._lines * INTERVAL_MS * 1_000_000
        time.sleep(max(0.0, (due_ns - monotonic_ns()) / 1e9))
        seconds = self._lines * INTERVAL_MS / 1000
        self._port.send(self._simulator.advance(np.array([WATTS]) * seconds))

    def _recorded_bytes(self) -> int:
        return self.stream.stat().st_size if self.stream.exists() else 0

    def wait_recorded(self) -> None:
        """Send until some lines are recorded. Raises LabError if none ever are."""
        enough, limit = self._recorded_bytes() + KEPT_BYTES, time.monotonic() + GIVEN_UP_S
        while self._recorded_bytes() < enough and time.monotonic() < limit:
            self._line()
        if self._recorded_bytes() < enough and not self.plugged_ns:
            raise LabError("The recorder does not read from the meter.")

    def cycle(self) -> None:
        """Unplug the meter, wait, plug it in under another number."""
        back = SimulatedPort(self.link.with_name("unplugged"))
        self.numbers.add(self._port.device)
        self._port.close()
        self._port = back  # what it sends now reaches no recorder
        until = time.monotonic() + self.chance.uniform(*AWAY_S)
        while time.monotonic() < until:
            self._line()
        self.plugged_ns.append(monotonic_ns())
        back.rename(self.link)
        self.wait_recorded()

    def close(self) -> None:
        """Unplug the meter for good."""
        self._port.close()


def _recorder(link: Path, out: Path) -> subprocess.Popen[str]:
    entry = {
        "name": "meter0",
        "kind": "smartpower3",
        "port": str(link),
        "origin": "modelled",
        "channels": {"0": "system", "1": "drive"},
        "settings": {"interval_ms": INTERVAL_MS},
    }
    command = module_command("instrumentation.recorder", "--meter", json.dumps(entry))
    return subprocess.Popen(
        [*command, "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def delays_s(directory: Path, cycles: int) -> tuple[list[float], int]:
    """Return each cycle's seconds to the next sample, and how many numbers the port had.

    Infinite where no sample came before the next cycle. Raises LabError where the recorder fails.
    """
    stream = directory / "out/stream.raw"
    plugs = Plugs(directory / "meter", stream, random.Random(cycles))
    recorder = _recorder(plugs.link, stream.parent)
    try:
        plugs.wait_recorded()
        for _ in range(cycles):
            plugs.cycle()
    finally:
        recorder.send_signal(signal.SIGTERM)
        _, err = recorder.communicate(timeout=60)
        plugs.close()
    if recorder.returncode:
        raise LabError(f"The recorder ended: {err.strip()}")
    came_ns = decode(stream.parent).samples["t_mono_ns"].to_numpy()
    ends_ns = [*plugs.plugged_ns[1:], monotonic_ns()]
    delays = []
    for plugged_ns, end_ns in zip(plugs.plugged_ns, ends_ns, strict=True):
        at = int(np.searchsorted(came_ns, plugged_ns))
        in_time = at < len(came_ns) and came_ns[at] < end_ns
        delays.append((int(came_ns[at]) - plugged_ns) / 1e9 if in_time else float("inf"))
    return delays, len(plugs.numbers)


def measure(quick: bool = False) -> list[Figure]:
    """Return the delays of all cycles."""
    cycles = 10 if quick else CYCLES
    with tempfile.TemporaryDirectory(prefix="fde-replug-") as directory:
        delays, numbers = delays_s(Path(directory), cycles)
    late = sum(delay > LIMIT_S for delay in delays)
    return [
        Figure("times plugged in again", cycles, ""),
        Figure("numbers that its port had", numbers, ""),
        at_most("plugged in again without a valid sample in 2 s + 1 period", late, "", 0),
        at_most("time to a valid sample, longest", max(delays), "s", LIMIT_S),
        at_most("time to a valid sample, p99", float(np.quantile(delays, 0.99)), "s", LIMIT_S),
    ]
