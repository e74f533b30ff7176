"""Repeat a step for some time; where it is short, look at the clock seldom."""

from __future__ import annotations

import itertools
import resource
import time
from collections.abc import Callable

from workloads.children.serving import Outcome

NS = 1_000_000_000
# How long a batch may take between two looks at the clock, and be tried out for.
BATCH_NS = 5_000_000
Step = Callable[[], object]


def for_seconds(step: Step, seconds: float, batch: int = 1) -> Outcome:
    """Do whole batches, at least one, until the time is over.

    Reports the `steps`, the `seconds` they took, and the processor time of this process in
    programs (`user_s`) and in the kernel (`system_s`).
    """
    steps, before = 0, resource.getrusage(resource.RUSAGE_SELF)
    started_ns = time.monotonic_ns()
    end_ns = started_ns + int(seconds * NS)
    while True:
        _batch(step, batch)
        steps += batch
        now_ns = time.monotonic_ns()
        if now_ns >= end_ns:
            break
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "steps": steps,
        "seconds": (now_ns - started_ns) / NS,
        "user_s": after.ru_utime - before.ru_utime,
        "system_s": after.ru_stime - before.ru_stime,
    }


def calibrate(step: Step) -> tuple[int, float]:
    """How many steps make a batch of some 5 ms, and the CPU seconds of one; warms it up."""
    count = 1
    while True:
        started_ns = time.process_time_ns()
        _batch(step, count)
        taken_ns = time.process_time_ns() - started_ns
        if taken_ns >= BATCH_NS // 2:
            return max(1, count * BATCH_NS // taken_ns), taken_ns / count / NS
        count *= 2


def _batch(step: Step, count: int) -> None:
    for _ in itertools.repeat(None, count):
        step()
