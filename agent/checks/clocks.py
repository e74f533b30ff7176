"""Clocks: those that people set must not matter, and the machine must not have slept."""

from __future__ import annotations

import time

from agent.checks.context import CheckContext, Observation
from instrumentation.clock import ahead_ns, asleep_ns

# Two clocks are read one after the other, and the reader may be put aside in between.
TOLERANCE_NS = 50_000_000


def wall_offset_ns(_scene: CheckContext) -> int:
    """CLOCK_REALTIME less CLOCK_MONOTONIC: changes when the clock is set, not when it is slewed."""
    return ahead_ns(time.CLOCK_REALTIME)


def sleep_ns(_scene: CheckContext) -> int:
    """CLOCK_BOOTTIME less CLOCK_MONOTONIC: the time that the machine was suspended since boot."""
    return asleep_ns()


def stepped(before_ns: int, now_ns: int) -> Observation:
    """Seconds by which the wall clock was set."""
    step_ns = now_ns - before_ns
    return Observation(round(step_ns / 1e9, 3) + 0.0, abs(step_ns) <= TOLERANCE_NS)


def suspended(before_ns: int, now_ns: int) -> Observation:
    """Seconds that the machine slept."""
    slept_ns = now_ns - before_ns
    return Observation(round(slept_ns / 1e9, 3) + 0.0, slept_ns <= TOLERANCE_NS)
