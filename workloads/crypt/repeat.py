"""Repeat a fast operation for some time, looking at the clock seldom."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from workloads.crypt.child import Outcome

NS = 1_000_000_000
# How long a batch may take between two looks at the clock, and be tried out for.
BATCH_NS = 5_000_000


def calibrate(operation: Callable[[], object]) -> tuple[int, float]:
    """How many operations make a batch of some 5 ms, and the CPU seconds of one; warms it up."""
    count = 1
    while True:
        started_ns = time.process_time_ns()
        _batch(operation, count)
        taken_ns = time.process_time_ns() - started_ns
        if taken_ns >= BATCH_NS // 2:
            return max(1, count * BATCH_NS // taken_ns), taken_ns / count / NS
        count *= 2


def for_seconds(operation: Callable[[], object], seconds: float, batch: int) -> Outcome:
    """Do whole batches until the time is over: `operations`, and `busy_s`, `cpu_s` in seconds."""
    operations = 0
    cpu_ns, started_ns = time.process_time_ns(), time.perf_counter_ns()
    end_ns = started_ns + int(seconds * NS)
    now_ns = started_ns
    while now_ns < end_ns:
        _batch(operation, batch)
        operations += batch
        now_ns = time.perf_counter_ns()
    return {
        "operations": operations,
        "busy_s": (now_ns - started_ns) / NS,
        "cpu_s": (time.process_time_ns() - cpu_ns) / NS,
    }


def _batch(operation: Callable[[], object], count: int) -> None:
    for _ in itertools.repeat(None, count):
        operation()
