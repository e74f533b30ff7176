"""What the inventory says of a line meter."""

from __future__ import annotations

import math
from dataclasses import dataclass

from instrumentation.meters.line_pattern import layout

_MOST_LINE_BYTES = 1024


@dataclass(frozen=True)
class Settings:
    r"""What the inventory must say: all but `start`, `stop`, `max_line_bytes` and
    `arrival_delay_limit_s`.

    `pattern` matches one whole line without its end; `period_s` is the time between two lines and
    the window that their power is the mean of; the maker's limits of error are `relative_limit` of
    the reading and `absolute_limit_w`, as `accuracy_source` states them. `start` and `stop` are
    sent as they are, so end them as the meter expects it ("\n"). `arrival_delay_limit_s` is one
    period unless it is known better.
    """

    pattern: str = ""
    period_s: float = 0.0
    relative_limit: float | None = None
    absolute_limit_w: float | None = None
    accuracy_source: str = ""
    start: str = ""
    stop: str = ""
    max_line_bytes: int = 256
    arrival_delay_limit_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("pattern", "accuracy_source", "start", "stop"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} is a text.")
        if not self.pattern:
            raise ValueError("pattern is missing: give a regular expression for one line.")
        layout(self.pattern)
        _require(self.period_s, "period_s", "the time between two lines in s", least=1e-6)
        limits = (self.relative_limit, self.absolute_limit_w)
        for name, limit in zip(("relative_limit", "absolute_limit_w"), limits, strict=True):
            _require(limit, name, "a limit of error from the maker (0 where there is none)")
        if not any(limits) or not self.accuracy_source.strip():
            raise ValueError(
                "a limit of error above 0 and its accuracy_source are needed: without an accuracy "
                "no uncertainty of the joules can be given."
            )
        if self.arrival_delay_limit_s is not None:
            _require(self.arrival_delay_limit_s, "arrival_delay_limit_s", "a time in s", least=1e-6)
        if not isinstance(self.max_line_bytes, int) or not (
            8 <= self.max_line_bytes <= _MOST_LINE_BYTES
        ):
            raise ValueError(f"max_line_bytes is a number from 8 to {_MOST_LINE_BYTES}.")


def _require(value: object, name: str, what: str, least: float = 0.0) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not least <= float(value) < math.inf:  # type: ignore[arg-type]
        raise ValueError(f"{name} must be given: {what}.")
