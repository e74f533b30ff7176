"""How long a recorder waits: for its meter, and on after the process that started it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from instrumentation.clock import monotonic_ns
from instrumentation.meters.base import Meter


@dataclass(frozen=True)
class Limits:
    """How long to wait for a meter with a record each `period_s`, in s.

    `silence_s` without a byte: it is off, or the port's driver does not report an unplugging.
    `foreign_s` with bytes but no record: one period, and what a driver needs to start. That is the
    rest of the record in which it came in, and one more to know from when the next one is a mean
    of; a meter that is asked must be set up first.
    """

    silence_s: float
    foreign_s: float

    @classmethod
    def of(cls, meter: Meter) -> Limits:
        """Those of a meter whose port was just opened."""
        asked = meter.timing == "poll" or meter.due_ns is not None
        start_s = 2 * meter.period_s + (5.0 if asked else 1.0)
        return cls(3 * meter.period_s + 2.0, meter.period_s + start_s)


class Parent:
    """The process that started this one, which need not live as long."""

    def __init__(self, outlive_s: float | None) -> None:
        self._pid = os.getppid()
        self._outlive_s = outlive_s
        self._gone_ns = 0

    def long_gone(self) -> bool:
        """Whether it ended more than `outlive_s` ago; never where none was said."""
        if self._outlive_s is None or os.getppid() == self._pid:
            return False
        self._gone_ns = self._gone_ns or monotonic_ns()
        return monotonic_ns() - self._gone_ns > self._outlive_s * 1e9
