"""Time of the report of a night: 10 h at 1 kHz, 1,000 runs, 36 million records.

A record holds the voltage and current of a meter's four rails, two of which are recorded channels.
The suite is made once and kept, as in validation.inference.scale, whose measurement this is.
"""

from __future__ import annotations

from validation.bench import Figure, at_most
from validation.inference.scale import suite
from validation.report.speed import report
from validation.synthetic import large

NIGHT = large.Size(blocks=25, configurations=4, workloads=10, hours=10.0)
QUICK = large.Size(blocks=3, configurations=3, workloads=2, hours=0.1)
MOST_S, MOST_MB = 15.0, 1000.0


def measure(quick: bool = False) -> list[Figure]:
    """Return the figures of a night, or of a tiny suite if `quick`."""
    folder = suite(QUICK if quick else NIGHT)
    took = report(folder)
    return [
        at_most("report of a night", took.wall_s, "s", MOST_S),
        Figure("its CPU time", took.cpu_s, "s"),
        at_most("its peak memory, all processes", took.peak_mb, "MB", MOST_MB),
        Figure("size of its page", (folder / "report.html").stat().st_size / 1e6, "MB"),
    ]
