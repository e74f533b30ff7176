"""Time and memory to decode and integrate ten hours of a fast meter.

The job: `stream.raw` of a PowerSensor3 with frames at 1 kHz for 10 h, 8 sensors each, so 36 million
frames in pieces of 5 as the recorder gathers them; decoded by the driver to `samples.parquet`, a
record a frame with the power of 4 rails, written to disk; read again, put on the controller's clock
and integrated over 1,000 phases of each rail by `analysis.energy.metered`. Each is its own process:
its time is from its start to its end, the interpreter's start and all imports included; its memory
is the peak of its resident set. The truth is the simulator's own integral.

Beside it the same from the raw bytes to the joules of the phases in pandas, as one would write it
who knows that nothing is damaged and every piece has the same size, so that NumPy can cut the
frames out at once: no look for damage or gaps, no clock, no uncertainty, and no Parquet (pandas
writes none without another package).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fde_instruments.meters.powersensor3 import MAX_LEVEL, SUPPLY_V, PowerSensor3
from fde_instruments.meters.powersensor3_talk import Sensor
from fde_instruments.simulators.powersensor3 import PowerSensor3Simulator
from instrumentation.decode import write_samples
from lab.state import REPOSITORY
from validation.bench import Figure, at_most
from validation.synthetic.powersensor3 import (
    DELAY_NS,
    FRAME_BYTES,
    FRAMES_HZ,
    PIECE,
    PIECE_FRAMES,
    chunks,
    write_recording,
)

RAILS = {"0": "system", "1": "aux", "2": "drive", "3": "board"}
START_NS = 1_000_000_000_000
_HOURS, _QUICK_HOURS = 10.0, 0.02
_PHASES, _QUICK_PHASES = 1000, 5


def make(folder: Path, frames: int, edges_us: NDArray[np.int64]) -> NDArray[np.float64]:
    """Write a recording of that many frames; return each rail's true energy [edges, 4]."""
    chance = np.random.default_rng(1)
    parts_j: list[NDArray[np.float64]] = []

    def energies_j() -> Iterator[NDArray[np.float64]]:
        done_j = np.zeros(len(RAILS))
        for first, count in chunks(frames):
            levels = chance.choice([0.2, 3.0, 12.0, 25.0], (count // 500 + 1, 4))
            watts = np.repeat(levels, 500, axis=0)[:count] + chance.random((count, 4))
            energy_j = done_j + np.cumsum(watts / FRAMES_HZ, axis=0)
            ends_us = (first + np.arange(count + 1)) * 1_000_000 // FRAMES_HZ
            covered = edges_us[(edges_us >= ends_us[0]) & (edges_us < ends_us[-1])]
            known_j = np.vstack([done_j, energy_j])
            parts_j.append(np.stack([np.interp(covered, ends_us, j) for j in known_j.T], axis=1))
            done_j = energy_j[-1]
            yield energy_j

    write_recording(folder, RAILS, energies_j(), START_NS)
    return np.concatenate(parts_j)


def ours(folder: Path) -> None:
    """Decode and integrate by this project's code; writes joules.npy [phases, 4]."""
    from analysis.energy.curve import Edge
    from analysis.energy.metered import Metered
    from analysis.suite.samples import of_file

    decoder = write_samples(folder)
    assert not decoder.faults
    edges_ns = START_NS + np.load(folder / "edges_us.npy") * 1000 + DELAY_NS
    channels = tuple(RAILS.values())
    samples = of_file(folder / "samples.parquet", channels)
    limit_s = PowerSensor3.arrival_delay_limit_s
    edges = {Edge(int(t_ns)) for t_ns in edges_ns}
    metered = Metered.from_samples(samples, PowerSensor3.timing, limit_s, channels, edges)
    phases = list(zip(edges_ns[:-1].tolist(), edges_ns[1:].tolist(), strict=True))
    joules = [[metered.energy(name, [phase]).energy_j for name in channels] for phase in phases]
    np.save(folder / "joules.npy", np.array(joules, np.float64))


def by_pandas(folder: Path) -> None:
    """Integrate the same in pandas; writes joules.npy [phases, 4]."""
    import pandas as pd

    raw = (folder / "stream.raw").read_bytes()
    offset = len(raw) - (len(raw) // PIECE.itemsize) * PIECE.itemsize
    while raw[offset + 8 : offset + 12] != (PIECE_FRAMES * FRAME_BYTES).to_bytes(4, "little"):
        offset += PIECE.itemsize  # behind the configuration, which is of other sizes
    frames = np.frombuffer(raw, PIECE, offset=offset)["frames"].reshape(-1, FRAME_BYTES)
    words = frames.view(">u2").astype(np.uint16)
    level = (words >> 2) & 0x3C0 | words & 0x3F
    simulator = PowerSensor3Simulator(FRAMES_HZ)
    sensors = [Sensor.from_bytes(record) for record in simulator.eeprom]
    table = pd.DataFrame({"stamp": level[:, 0].astype(np.int64)})
    for n, sensor in enumerate(sensors):
        volt = SUPPLY_V * level[:, 1 + n] / MAX_LEVEL
        table[f"value_{n}"] = (volt - sensor.vref_v) / sensor.sensitivity
    step_us = table["stamp"].diff().mod(1024).fillna(1000)
    table["t_us"] = step_us.cumsum()
    for rail, name in enumerate(RAILS.values()):
        power = table[f"value_{2 * rail}"] * table[f"value_{2 * rail + 1}"]
        table[name] = power * step_us * 1e-6
    edges_us = np.load(folder / "edges_us.npy")
    phase = pd.cut(table["t_us"], edges_us, labels=False)
    sums = table.groupby(phase)[list(RAILS.values())].sum()
    np.save(folder / "joules.npy", sums.to_numpy())


@dataclass(frozen=True)
class Run:
    """Time, CPU time and memory of a process, and the joules it computed."""

    took_s: float
    cpu_s: float
    peak_mb: float
    joules: NDArray[np.float64]

    def error_percent(self, true_j: NDArray[np.float64]) -> float:
        """Return the largest error of a phase's energy in one rail."""
        return float(np.abs(self.joules / true_j - 1).max()) * 100


def _run(job: str, folder: Path) -> Run:
    start_s = time.monotonic()
    command = [sys.executable, "-m", "validation.metrology.throughput", job, str(folder)]
    process = subprocess.Popen(command, cwd=REPOSITORY)
    _, status, usage = os.wait4(process.pid, 0)
    took_s = time.monotonic() - start_s
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{job} ended with {process.returncode}")
    cpu_s = usage.ru_utime + usage.ru_stime
    return Run(took_s, cpu_s, usage.ru_maxrss / 1000, np.load(folder / "joules.npy"))


def measure(quick: bool = False) -> list[Figure]:
    """Measure the full stream, or a minute of it if `quick`."""
    frames = round((_QUICK_HOURS if quick else _HOURS) * 3600 * FRAMES_HZ)
    phases = _QUICK_PHASES if quick else _PHASES
    # Edges lie anywhere, for windows are cut by them.
    end_us = frames * 1_000_000 // FRAMES_HZ - 5_000_321
    edges_us = np.linspace(5_000_123, end_us, phases + 1, dtype=np.int64)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        np.save(folder / "edges_us.npy", edges_us)
        true_j = np.diff(make(folder, frames, edges_us), axis=0)
        raw_mb = (folder / "stream.raw").stat().st_size / 1e6
        mine = _run("ours", folder)
        samples_mb = (folder / "samples.parquet").stat().st_size / 1e6
        other = _run("pandas", folder)
    name = f"{frames / FRAMES_HZ / 3600:g} h × 1 kHz × 8 sensors"
    error = mine.error_percent(true_j)
    return [
        Figure("raw stream", raw_mb, "MB"),
        Figure("samples.parquet", samples_mb, "MB"),
        at_most(f"decode and integrate {name}", mine.took_s, "s", 20),
        Figure("its CPU time", mine.cpu_s, "s"),
        at_most("its peak memory", mine.peak_mb, "MB", 1000),
        at_most(f"largest error of {phases * 4} energies", error, "%", 0.2),
        Figure("the same in pandas", other.took_s, "s"),
        Figure("its CPU time in pandas", other.cpu_s, "s"),
        Figure("its peak memory in pandas", other.peak_mb, "MB"),
        Figure("largest error of an energy in pandas", other.error_percent(true_j), "%"),
        Figure("time, pandas / ours", other.took_s / mine.took_s, ""),
        Figure("CPU time, pandas / ours", other.cpu_s / mine.cpu_s, ""),
        Figure("memory, pandas / ours", other.peak_mb / mine.peak_mb, ""),
    ]


if __name__ == "__main__":
    {"ours": ours, "pandas": by_pandas}[sys.argv[1]](Path(sys.argv[2]))
