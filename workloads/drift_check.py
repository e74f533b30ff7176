"""A constant load whose power shows whether the machine has changed during a suite."""

from __future__ import annotations

import os
import re
import time
from typing import ClassVar

from contract.parameters import Parameter
from workloads import programs
from workloads.base import Context, Workload, WorkloadError


class DriftCheck(Workload):
    """Phases `idle` and `busy`: the machine at rest, then with all processors at work.

    It does not use the disk, so that a change of its power is one of the machine or the meter. The
    work is sysbench's search for primes, for a fixed time on as many threads as there are
    processors. The page cache is emptied before `busy`; the program has been started once by then.
    """

    name = "drift_check"
    summary = "rest and full load without the disk, between the blocks of a suite"
    parameters = (Parameter("seconds", 10, "s", "length of each of its two phases", minimum=1),)
    small: ClassVar = {"seconds": 1}
    program = "sysbench cpu"
    programs = ("sysbench",)

    def run(self, context: Context) -> None:
        seconds = int(context.parameters["seconds"])
        with context.phase("idle") as work:
            time.sleep(seconds)
        work.add(idle_s=seconds)
        work.disk_rests()

        programs.cold_start(context, ["sysbench", "cpu", "help"])
        threads = len(os.sched_getaffinity(0))
        options = [f"--threads={threads}", f"--time={seconds}", f"--rand-seed={context.seed}"]
        busy = ["sysbench", "cpu", *options, "run"]
        work, output = programs.measured(context, "busy", busy, timeout_s=10 * seconds + 60)
        (context.kept / "sysbench-busy.txt").write_text(output, encoding="utf-8")
        counts = counted(output)
        work.plan(seconds=seconds, threads=threads)
        work.report(seconds=counts["seconds"], threads=counts["threads"])
        work.add(events=counts["events"])
        work.disk_rests()


REPORTED = {
    "events": r"^\s*total number of events:\s+(\d+)\s*$",
    "seconds": r"^\s*(?:total time|time elapsed):\s+([\d.]+)s\s*$",  # of 1.0, and from 1.1 on
    "threads": r"^Number of threads:\s+(\d+)\s*$",
}


def counted(output: str) -> dict[str, float]:
    """Return events, seconds and threads in sysbench's report; WorkloadError without them."""
    matches = {name: re.search(text, output, re.MULTILINE) for name, text in REPORTED.items()}
    counts = {name: float(match[1]) for name, match in matches.items() if match}
    if set(counts) != set(REPORTED) or counts["events"] < 1:
        raise WorkloadError("no-sysbench-report", output=programs.last_line(output) or "silence")
    return counts
