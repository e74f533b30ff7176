"""Large sequential and small random access with fio, as in Sassani et al. 2020, section 2.1."""

from __future__ import annotations

from typing import ClassVar

from contract.parameters import Parameter
from workloads import fio
from workloads.base import Context

MIB = fio.MIB
SEQUENTIAL_BYTES, RANDOM_BYTES = 4 * MIB, 4096


class AccessPatterns(fio.OnOneFile):
    """Phases `write-sequential`, `read-sequential` (4 MiB), `write-random`, `read-random` (4 KiB).

    All use one file, laid out beforehand with data that zlib cannot compress, so that every write
    replaces existing data; direct I/O bypasses the page cache. The sequential phases pass over the
    whole file `passes` times. The random phases end after `random_seconds` or `random_mib`,
    whichever is first; the paper has neither. fio is started before each phase.
    """

    name = "access_patterns"
    summary = "4 MiB sequential and 4 KiB random access, written and read"
    parameters = (
        Parameter("file_mib", 1024, "MiB", "size of the test file", minimum=4),
        Parameter("passes", 1, "", "times that a sequential phase goes over the file", minimum=1),
        Parameter("random_mib", 1024, "MiB", "most that a random phase moves", minimum=1),
        Parameter("random_seconds", 30.0, "s", "longest time of a random phase; 0: no limit"),
        Parameter("fsync", True, "", "whether a write phase ends when the drive has the data"),
        *fio.io_parameters("psync", 1),
    )
    small: ClassVar = {"file_mib": 4, "random_mib": 1, "random_seconds": 0.2}

    def run(self, context: Context) -> None:
        for order in ("sequential", "random"):
            for way in ("write", "read"):
                file = fio.test_file(context)
                fio.measure(context, f"{way}-{order}", file, job(context, way, order))


def job(context: Context, way: str, order: str) -> fio.Job:
    """Return fio's job for the phase `<way>-<order>`."""
    parameters = context.parameters
    fsync = bool(parameters["fsync"])
    if order == "sequential":
        passes = int(parameters["passes"])
        return fio.planned(parameters, way, SEQUENTIAL_BYTES, fsync=fsync, passes=passes)
    most_bytes, seconds = int(parameters["random_mib"]) * MIB, float(parameters["random_seconds"])
    limits = {"at_most_bytes": most_bytes, "seconds": seconds}
    return fio.planned(parameters, f"rand{way}", RANDOM_BYTES, fsync=fsync, **limits)
