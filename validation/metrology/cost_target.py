"""The process whose CPU time validation.metrology.cost measures: `ROOT RATE_HZ SECONDS`.

Three stretches of equal length: rest, waking up at the rate without reading, and the agent's
sampler with a mark every five seconds. The first is taken off the other two.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from agent.marks import Marks
from agent.sampler import Sampler
from instrumentation.sources.powercap import PowercapSource

MARK_S = 5.0


def _cpu_share(stretch: Callable[[], None]) -> float:
    cpu_ns, wall_ns = time.process_time_ns(), time.monotonic_ns()
    stretch()
    return (time.process_time_ns() - cpu_ns) / (time.monotonic_ns() - wall_ns)


def _wake(rate_hz: float, seconds: float) -> None:
    due_s, end_s = time.monotonic(), time.monotonic() + seconds
    while due_s < end_s:
        due_s += 1 / rate_hz
        time.sleep(max(0.0, due_s - time.monotonic()))


def main(root: Path, rate_hz: float, seconds: float) -> None:
    """Print the shares of one core and the sampler's lateness as JSON."""
    phases = max(1, round(seconds / MARK_S))
    source = PowercapSource.open(root)
    sampler = Sampler(source, rate_hz)
    marks = Marks(source, sampler)

    def rest() -> None:
        for _ in range(phases):
            time.sleep(seconds / phases)

    def sample() -> None:
        with sampler:
            for n in range(phases):
                with marks.phase(f"phase {n}"):
                    time.sleep(seconds / phases)

    idle = _cpu_share(rest)
    waking = _cpu_share(lambda: _wake(rate_hz, seconds)) - idle
    share = _cpu_share(sample) - idle
    marks.document()
    print(json.dumps({"share": share, "waking_share": waking, **sampler.document()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
