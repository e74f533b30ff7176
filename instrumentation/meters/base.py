"""What a meter driver is: a pure function of the bytes that came, remembering only the stream."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from instrumentation.trace import Fault, Record


class MeterError(Exception):
    """A meter that is described wrongly or cannot be used; the message says what mends it."""


@dataclass(frozen=True)
class Accuracy:
    """Limits of error that the maker states: `relative_limit` of the reading plus
    `absolute_limit_w`.

    `source` says where they are stated and for which range. A limit is taken as the half width of a
    rectangular distribution (GUM 4.3.7), so the standard uncertainty is limit / √3.
    """

    relative_limit: float
    absolute_limit_w: float
    source: str

    def standard_uncertainty_w(self, power_w: float) -> float:
        """Type B standard uncertainty of a power reading, in W."""
        relative_w = self.relative_limit * abs(power_w)
        return math.hypot(relative_w, self.absolute_limit_w) / math.sqrt(3)


class Meter(ABC):
    """A driver of one meter's stream. Does no I/O; the same bytes and times give the same records.

    `channels` maps the meter's own names of its channels to those of the inventory; channels that
    are not named yield no records. Raises MeterError on a channel that the meter does not have.
    """

    kind: ClassVar[str]
    default_baud: ClassVar[int]
    accuracy: ClassVar[Accuracy]
    own_channels: ClassVar[tuple[str, ...]]

    def __init__(self, channels: Mapping[str, str]) -> None:
        for own in channels:
            if own not in self.own_channels:
                raise MeterError(
                    f"A {self.kind} has no channel {own}: it has {', '.join(self.own_channels)}."
                )
        if not channels:
            raise MeterError(f"Name at least one channel of the {self.kind} in the inventory.")
        if len(set(channels.values())) != len(channels):
            raise MeterError(f"Two channels of the {self.kind} have one name in the inventory.")
        self.channels = dict(channels)
        self.epoch = 0

    def opened(self) -> None:
        """The port was opened (again): what came before is not continued. Call before `feed`."""
        self.epoch += 1
        self._forget()

    @abstractmethod
    def feed(self, data: bytes, t_ns: int) -> list[Record | Fault]:
        """Records and faults completed by these bytes, the first of which came at `t_ns`."""

    @abstractmethod
    def _forget(self) -> None:
        """Drop the unfinished record and everything that does not outlive a closed port."""
