"""Cost of sampling the counters on the target, as CPU time of the sampling process.

A tree on tmpfs replaces sysfs: the reading itself is then cheaper than on hardware, where the
kernel asks the processor (about a microsecond more a counter). The sampler, its marks and their
parsing are the agent's, in a separate process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from agent.marks import Marks
from agent.sampler import Sampler
from instrumentation.sources.powercap import PowercapSource
from lab.state import REPOSITORY
from validation.bench import Figure, at_most

TMPFS = Path("/dev/shm")
MARK_S = 5.0


def measure(quick: bool = False) -> list[Figure]:
    """Measure the cost at 10 Hz and 1 kHz in % of one core, and the samples' lateness."""
    # Long enough that beginning and ending weigh as little as in a run.
    repeats, slow_s, fast_s = (1, 0.3, 0.3) if quick else (3, 8.0, 3.0)
    with tempfile.TemporaryDirectory(dir=TMPFS if TMPFS.is_dir() else None) as folder:
        root = zones_tree(Path(folder))
        slow = [_run(root, 10, slow_s) for _ in range(repeats)]
        fast = [_run(root, 1000, fast_s) for _ in range(repeats)]
        with _busy():
            slow_busy = [_run(root, 10, slow_s) for _ in range(repeats)]
            fast_busy = [_run(root, 1000, fast_s) for _ in range(repeats)]
    runs = {
        ("10 Hz", ""): (slow, 0.1),
        ("1 kHz", ""): (fast, 2.0),
        ("10 Hz", ", processors busy"): (slow_busy, 0.1),
        ("1 kHz", ", processors busy"): (fast_busy, 2.0),
    }
    figures = []
    for (rate, beside), (share, target) in runs.items():
        title = f"{rate} RAPL + marks on tmpfs for sysfs{beside}"
        figures.append(at_most(title, _middle(share, "share"), "% core", target))
        waking = f"  of it, waking up at {rate} alone{beside}"
        figures.append(Figure(waking, _middle(share, "waking_share"), "% core"))
        late = f"  lateness p99 at {rate}{beside}"
        figures.append(Figure(late, _middle(share, "late_p99_ms"), "ms"))
    return figures


def zones_tree(root: Path) -> Path:
    """Create one package with its memory in an empty folder, the zones of the lab's guest."""
    package = root / "intel-rapl" / "intel-rapl:0"
    for zone, name in ((package, "package-0"), (package / "intel-rapl:0:0", "dram")):
        zone.mkdir(parents=True)
        (zone / "name").write_text(name + "\n")
        (zone / "energy_uj").write_text("123456789012\n")
        (zone / "max_energy_range_uj").write_text("262143328850\n")
    return root


def _run(root: Path, rate_hz: float, seconds: float) -> dict[str, float]:
    command = [sys.executable, "-m", "validation.metrology.cost"]
    result = subprocess.run(
        [*command, str(root), str(rate_hz), str(seconds)],
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
    )
    figures: dict[str, float] = json.loads(result.stdout)
    return figures


def _middle(runs: list[dict[str, float]], key: str) -> float:
    factor = 100 if key.endswith("share") else 1
    return round(median(run[key] for run in runs) * factor, 4)


@contextmanager
def _busy() -> Iterator[None]:
    """Keep every processor busy at the lowest priority, as while a workload runs.

    A processor that sleeps costs more to wake, and that is counted as the sampler's.
    """
    spin = "import os\nos.nice(19)\nwhile True: pass"
    command = [sys.executable, "-I", "-c", spin]
    spinning = [subprocess.Popen(command) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def _cpu_share(stretch: Callable[[], None]) -> float:
    cpu_ns, wall_ns = time.process_time_ns(), time.monotonic_ns()
    stretch()
    return (time.process_time_ns() - cpu_ns) / (time.monotonic_ns() - wall_ns)


def _wake(rate_hz: float, seconds: float) -> None:
    due_s, end_s = time.monotonic(), time.monotonic() + seconds
    while due_s < end_s:
        due_s += 1 / rate_hz
        time.sleep(max(0.0, due_s - time.monotonic()))


def sample_alone(root: Path, rate_hz: float, seconds: float) -> None:
    """Print, in a separate process, the shares of one core and the sampler's lateness as JSON.

    Three stretches of equal length: rest, waking up at the rate without reading, and the agent's
    sampler with a mark every five seconds. The first is subtracted from the other two.
    """
    phases = max(1, round(seconds / MARK_S))
    source = PowercapSource.open(root)
    sampler = Sampler(source, rate_hz)
    marks = Marks(source, sampler)

    def idle() -> None:
        for _ in range(phases):
            time.sleep(seconds / phases)

    def sample() -> None:
        with sampler:
            for n in range(phases):
                with marks.phase(f"phase {n}"):
                    time.sleep(seconds / phases)

    idle_share = _cpu_share(idle)
    waking = _cpu_share(lambda: _wake(rate_hz, seconds)) - idle_share
    share = _cpu_share(sample) - idle_share
    marks.phases()
    print(json.dumps({"share": share, "waking_share": waking, **sampler.lateness()}))


if __name__ == "__main__":
    sample_alone(Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
