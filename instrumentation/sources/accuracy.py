"""Stated accuracy of RAPL's counters, by domain."""

from __future__ import annotations

import math
from collections.abc import Iterable

from instrumentation.accuracy import LINEARITY, NOT_STATED, ErrorTerm

# Counts of 2^-14 or 2^-16 J: the coarser one, for suites do not record the processor's unit.
STEP_J, UPDATE_S = 2.0**-14, 1e-3
# For an update interval that was not observed: the longest that is known of any platform.
UNOBSERVED_S = 0.1
_COUNT = ErrorTerm("count", STEP_J, "energy unit of 2^-14 J, the coarser of the two in use")
_UPDATE = ErrorTerm("update", UPDATE_S, "Intel SDM, volume 3B: counters change about every 1 ms")
_DRAM = ErrorTerm(
    "gain",
    0.3,
    "Intel Power Gadget 2.0 for Linux, readme: memory up to about 30 % on Intel's reference "
    "platforms; others are not stated",
)
_UNKNOWN = ErrorTerm("gain", None, f"{NOT_STATED} by the processor's maker")


def rapl_terms(component: str) -> tuple[ErrorTerm, ...]:
    """Return the terms of a component of RAPL: `dram` or `package-0/dram` is memory."""
    gain = _DRAM if component.rsplit("/", 1)[-1] == "dram" else _UNKNOWN
    return gain, LINEARITY, _COUNT, _UPDATE


def counter_uncertainty_j(edges: Iterable[tuple[float, float]], step_j: float) -> float:
    """Return the standard uncertainty of a difference of counts, in J.

    `edges` are (power in W, seconds) at its two ends; within these seconds the count belongs to the
    edge. Each is a rectangle, as is the counter's last digit at either end. Only the mean power at
    an edge is known: it may be from 0 to twice that, so the product's variance is 4/9 − 1/4.
    """
    products_j = [power_w * seconds for power_w, seconds in edges]
    squares = sum(x * x for x in products_j)  # x**2 may differ in the last bit
    return math.sqrt(squares * 7 / 36 + step_j * step_j / 6)
