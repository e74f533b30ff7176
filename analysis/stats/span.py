"""A figure with its interval, as it is carried from joules to money."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """A figure with its interval; a limit is None where there is no bound, or no interval at all.

    What rises with a figure carries its limits on as they are (`scaled`, `shifted`); what falls
    with it swaps them.
    """

    mid: float
    low: float | None
    high: float | None

    def scaled(self, factor: float) -> Span:
        """The same in another unit; `factor` is exact and not negative."""
        return Span(
            self.mid * factor,
            None if self.low is None else self.low * factor,
            None if self.high is None else self.high * factor,
        )

    def shifted(self, by: float) -> Span:
        """The same with something exact added."""
        return Span(
            self.mid + by,
            None if self.low is None else self.low + by,
            None if self.high is None else self.high + by,
        )

    def not_below(self, least: float) -> Span:
        """The same, cut off at what it cannot fall short of."""
        return Span(
            max(least, self.mid),
            None if self.low is None else max(least, self.low),
            None if self.high is None else max(least, self.high),
        )
