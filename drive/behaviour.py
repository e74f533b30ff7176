"""How a disk behaves in time: a write cache that fills, heat, power states, trimmed and full.

A declared model, not a measured disk. Time is handed in, so that the same model serves a drive that
really waits and a simulation that does not.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

_MIB = 1 << 20
_REGION_BYTES = _MIB  # what counts as used or trimmed as a whole


class BehaviourError(ValueError):
    """The parameters describe no disk; one sentence for people."""


@dataclass(frozen=True)
class Behaviour:
    """What a disk's time and temperature depend on; a 0 switches its part off.

    Writes go at `write_mib_s` into a cache of `cache_mib`, which drains at `flash_mib_s`; once it
    is full they go at the latter. `full_slowdown` divides the speed of the flash on a disk all of
    whose blocks are in use (in between: linear). The first command after `idle_after_ms` waits for
    `wake_ms`. Busy, the disk warms towards `ambient_c + rise_c` with the time constant
    `warm_up_s`; from `throttle_c` on until `recover_c` every speed is divided by
    `throttle_slowdown`. `time_factor` multiplies all times: one specimen against another.
    """

    read_mib_s: float = 0.0
    write_mib_s: float = 0.0
    cache_mib: float = 0.0
    flash_mib_s: float = 0.0
    full_slowdown: float = 1.0
    idle_after_ms: float = 0.0
    wake_ms: float = 0.0
    ambient_c: float = 30.0
    rise_c: float = 0.0
    warm_up_s: float = 60.0
    throttle_c: float = 0.0
    recover_c: float = 0.0
    throttle_slowdown: float = 1.0
    time_factor: float = 1.0

    def __post_init__(self) -> None:
        if self.cache_mib and not self.flash_mib_s:
            raise BehaviourError("a write cache needs flash_mib_s, the speed at which it drains")
        if min(self.full_slowdown, self.throttle_slowdown) < 1 or self.warm_up_s <= 0:
            raise BehaviourError("slowdowns are 1 or more, warm_up_s is more than 0")
        if self.throttle_c and self.recover_c >= self.throttle_c:
            raise BehaviourError("recover_c must be below throttle_c")


def parse(parameters: Mapping[str, Any]) -> Behaviour:
    """From names and numbers; raises BehaviourError."""
    known = {field.name for field in fields(Behaviour)}
    for name, value in parameters.items():
        if name not in known:
            raise BehaviourError(f"there is no parameter {name}: choose from {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
            raise BehaviourError(f"{name} is {value!r}, which is not a number from 0 to 10⁹")
    return Behaviour(**{name: float(value) for name, value in parameters.items()})


class Timing:
    """The state of one disk of `size_bytes`; times are seconds of any clock that never goes back.

    Commands follow one another: the medium does one at a time.
    """

    def __init__(self, behaviour: Behaviour, size_bytes: int, now_s: float = 0.0) -> None:
        self.behaviour = behaviour
        self.throttlings = 0
        self._used = bytearray(-(-size_bytes // _REGION_BYTES))
        self._regions_used = 0
        self._cached_bytes = 0.0
        self._throttling = False
        self._temperature_c = behaviour.ambient_c
        self._busy_until_s = self._at_s = now_s
        self._lock = threading.Lock()

    @property
    def throttling(self) -> bool:
        """Whether heat makes it slower now."""
        return self._throttling

    @property
    def used_share(self) -> float:
        """Of the disk's blocks, those that were written and not deallocated since."""
        return self._regions_used / len(self._used)

    def temperature_c(self, now_s: float) -> float:
        with self._lock:
            self._advance(now_s)
            return self._temperature_c

    def read(self, size_bytes: int, now_s: float) -> float:
        """Seconds until a read that is asked for now is done."""
        with self._lock:
            return self._serve(size_bytes, self.behaviour.read_mib_s, now_s)

    def write(self, offset_bytes: int, size_bytes: int, now_s: float) -> float:
        """Seconds until a write that is asked for now is done."""
        with self._lock:
            self._advance(now_s)
            self._mark(offset_bytes, size_bytes, used=True)
            mib_s = self._flash_mib_s or self.behaviour.write_mib_s
            if self._cached_bytes + size_bytes <= self.behaviour.cache_mib * _MIB:
                mib_s = self.behaviour.write_mib_s
                self._cached_bytes += size_bytes
            return self._serve(size_bytes, mib_s, now_s)

    def deallocate(self, offset_bytes: int, size_bytes: int) -> None:
        """The blocks are in use no more."""
        with self._lock:
            self._mark(offset_bytes, size_bytes, used=False)

    @property
    def _flash_mib_s(self) -> float:
        slowdown = 1 + (self.behaviour.full_slowdown - 1) * self.used_share
        return self.behaviour.flash_mib_s / slowdown

    def _mark(self, offset_bytes: int, size_bytes: int, *, used: bool) -> None:
        end = offset_bytes + size_bytes
        if used:
            first, last = offset_bytes // _REGION_BYTES, -(-end // _REGION_BYTES)
        else:  # only what is deallocated as a whole
            first, last = -(-offset_bytes // _REGION_BYTES), end // _REGION_BYTES
        if first < last:
            before = sum(self._used[first:last])
            self._used[first:last] = bytes([used]) * (last - first)
            self._regions_used += (last - first if used else 0) - before

    def _serve(self, size_bytes: int, mib_s: float, now_s: float) -> float:
        b = self.behaviour
        self._advance(now_s)
        service_s = size_bytes / (mib_s * _MIB) if mib_s else 0.0
        if self._throttling:
            service_s *= b.throttle_slowdown
        if b.idle_after_ms and now_s - self._busy_until_s > b.idle_after_ms / 1e3:
            service_s += b.wake_ms / 1e3
        self._busy_until_s = max(now_s, self._busy_until_s) + service_s * b.time_factor
        return self._busy_until_s - now_s

    def _advance(self, now_s: float) -> None:
        """Drain the cache, and warm and cool the disk, from the last look until now."""
        elapsed_s = max(0.0, now_s - self._at_s)
        busy_s = min(elapsed_s, max(0.0, self._busy_until_s - self._at_s))
        self._cached_bytes = max(0.0, self._cached_bytes - elapsed_s * self._flash_mib_s * _MIB)
        self._at_s = max(now_s, self._at_s)
        self._towards(self.behaviour.ambient_c + self.behaviour.rise_c, busy_s)
        self._throttle()
        self._towards(self.behaviour.ambient_c, elapsed_s - busy_s)
        self._throttle()

    def _towards(self, end_c: float, elapsed_s: float) -> None:
        left = math.exp(-elapsed_s / self.behaviour.warm_up_s)
        self._temperature_c = end_c + (self._temperature_c - end_c) * left

    def _throttle(self) -> None:
        b = self.behaviour
        if not self._throttling and b.throttle_c and self._temperature_c >= b.throttle_c:
            self._throttling = True
            self.throttlings += 1
        elif self._throttling and self._temperature_c <= b.recover_c:
            self._throttling = False
