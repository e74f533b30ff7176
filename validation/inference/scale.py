"""How long a report takes, and how much memory, for a suite as large as any we expect.

40 blocks × 8 configurations × 10 workloads with 10 h of two channels at 1 kHz: 3,200 runs, 36
million records. The suite is made once (build/large, about 1 GB) and kept while the code that makes
it stays the same. Measured is `fde report` from its start to its end, as a separate process:
its wall time, the CPU time of it and its children, and the most memory that all its
processes had together, each page counted once (proportional set sizes, asked for every 50 ms). The
report's own files are removed before, so that nothing of an earlier one is used; the files' pages
may be in memory.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from contract.places import module_command
from contract.suite_files import DERIVED
from lab.state import REPOSITORY
from validation import processes
from validation.bench import Figure, at_most
from validation.synthetic import large

KEPT = REPOSITORY / "build" / "large"
PAGES = ("report.html",)
FULL, QUICK = large.Size(), large.Size(blocks=3, configurations=3, workloads=2, hours=0.1)
MOST_S, MOST_MB = 60.0, 1500.0
POLL_S = 0.05


@dataclass(frozen=True)
class Took:
    """Time, CPU time and memory of a command with all its processes."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def measure(quick: bool = False) -> list[Figure]:
    """Return the figures of the full suite, or of a tiny one if `quick`."""
    size = QUICK if quick else FULL
    folder = suite(size)
    for name in (*DERIVED, *PAGES):
        (folder / name).unlink(missing_ok=True)
    took = run(module_command("controller", "report", str(folder)))
    energy = pl.read_parquet(folder / "energy.parquet")
    records = pl.scan_parquet(folder / "meters/meter0/samples.parquet").select(pl.len()).collect()
    name = (
        f"{size.blocks} blocks × {size.configurations} configurations × {size.workloads} "
        f"workloads, {size.hours:g} h at 1 kHz"
    )
    return [
        Figure("runs", energy["run_id"].n_unique(), ""),
        Figure("records of the meter", int(records.item()), ""),
        at_most(f"report of {name}", took.wall_s, "s", MOST_S),
        Figure("its CPU time", took.cpu_s, "s"),
        at_most("its peak memory, all processes", took.peak_mb, "MB", MOST_MB),
        Figure("size of the page", (folder / "report.html").stat().st_size / 1e6, "MB"),
    ]


def suite(size: large.Size) -> Path:
    """Return the folder of a suite of this size, created if it is missing."""
    made_by = hashlib.sha256()
    for path in sorted(Path(large.__file__).parent.glob("*.py")):
        made_by.update(path.read_bytes())
    made_by.update(repr(size).encode())
    folder = KEPT / made_by.hexdigest()[:16]
    if not folder.exists():
        unfinished = folder.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        large.write_large_suite(unfinished, size)
        unfinished.rename(folder)
    return folder


def run(command: list[str]) -> Took:
    """Run a command. Raises RuntimeError if it fails."""
    start_s = time.monotonic()
    process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
    most_mb = 0.0
    while True:
        # By wait4 and not by poll: it alone gives what the process and its children have used.
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        members = (process.pid, *processes.descendants(process.pid))
        most_mb = max(most_mb, sum(map(processes.proportional_mb, members)))
        time.sleep(POLL_S)
    wall_s = time.monotonic() - start_s
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return Took(wall_s, usage.ru_utime + usage.ru_stime, most_mb)
