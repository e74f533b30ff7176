"""Timing model of a disk: arm and platter, flash, write cache, heat, power states, TRIM.

A declared model, not a measured disk. Callers pass the time in, so the same model serves a drive
that really waits and a simulation that does not.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

_MIB = 1 << 20
_REGION_BYTES = _MIB  # what counts as used or trimmed as a whole


class BehaviourError(ValueError):
    """The parameters do not describe a disk; one sentence for people."""


@dataclass(frozen=True)
class Behaviour:
    """Parameters of a disk's speed and temperature; 0 switches a part off.

    Writes go at `write_mib_s` into a cache of `cache_mib`, which drains at `flash_mib_s`; once it
    is full they go at the latter. `full_slowdown` divides the speed of the flash on a disk all of
    whose blocks are in use (in between: linear). The first command after `idle_after_ms` waits for
    `wake_ms`. Busy, the disk warms towards `ambient_c + rise_c` with the time constant
    `warm_up_s`; from `throttle_c` on until `recover_c` every speed is divided by
    `throttle_slowdown`. `time_factor` multiplies all times: one specimen against another.

    Each read waits for `access_ms`, each write for `program_ms`: what flash takes for a page.
    With `rpm` the disk has an arm and a platter. A command that does not begin where the last one
    ended moves the arm, which takes `settle_ms` and, over the whole disk, `full_seek_ms`: in
    between as the root of the distance (Ruemmler and Wilkes, "An introduction to disk drive
    modeling", 1994, for short seeks; taken for all here). Then it waits until the sector passes
    by, on tracks of one turn's worth of bytes. `inner_slowdown` divides the speed at the disk's
    end. A hybrid disk reads what is in its `hybrid_mib` of flash, the regions that were used last,
    without arm and platter, at `hybrid_mib_s`. No command overtakes another, as NCQ would let it.
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
    access_ms: float = 0.0
    program_ms: float = 0.0
    rpm: float = 0.0
    settle_ms: float = 0.0
    full_seek_ms: float = 0.0
    inner_slowdown: float = 1.0
    hybrid_mib: float = 0.0
    hybrid_mib_s: float = 0.0

    def __post_init__(self) -> None:
        if self.cache_mib and not self.flash_mib_s:
            raise BehaviourError("a write cache needs flash_mib_s, the speed at which it drains")
        slowdowns = self.full_slowdown, self.throttle_slowdown, self.inner_slowdown
        if min(slowdowns) < 1 or self.warm_up_s <= 0:
            raise BehaviourError("slowdowns are 1 or more, warm_up_s is more than 0")
        if self.throttle_c and self.recover_c >= self.throttle_c:
            raise BehaviourError("recover_c must be below throttle_c")
        if self.rpm and not (self.read_mib_s and self.settle_ms <= self.full_seek_ms):
            raise BehaviourError("a platter needs read_mib_s, and settle_ms up to full_seek_ms")
        if self.hybrid_mib and not (self.rpm and self.hybrid_mib_s):
            raise BehaviourError(
                "a hybrid disk needs rpm, and hybrid_mib_s, the speed of its flash"
            )


def parse(parameters: Mapping[str, Any]) -> Behaviour:
    """Build a behaviour from names and numbers; raises BehaviourError."""
    names = {field.name for field in fields(Behaviour)}
    for name, value in parameters.items():
        if name not in names:
            raise BehaviourError(f"there is no parameter {name}: choose from {', '.join(names)}")
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
        self._size_bytes = size_bytes
        self._head_bytes = 0  # where the last command ended
        self._hybrid: OrderedDict[int, None] = OrderedDict()  # regions in flash, the oldest first
        self._used = bytearray(-(-size_bytes // _REGION_BYTES))
        self._regions_used = 0
        self._cached_bytes = 0.0
        self._throttling = False
        self._temperature_c = behaviour.ambient_c
        self._busy_until_s = self._at_s = now_s
        self._lock = threading.Lock()

    @property
    def throttling(self) -> bool:
        """Whether heat slows the disk down now."""
        return self._throttling

    @property
    def used_share(self) -> float:
        """Share of the disk's blocks that were written and not deallocated since."""
        return self._regions_used / len(self._used)

    def temperature_c(self, now_s: float) -> float:
        with self._lock:
            self._advance(now_s)
            return self._temperature_c

    def read(self, offset_bytes: int, size_bytes: int, now_s: float) -> tuple[float, float]:
        """Return the seconds until a read that begins now ends, and those the medium works."""
        with self._lock:
            self._advance(now_s)
            b, service_s = self.behaviour, self.behaviour.access_ms / 1e3
            if self._in_flash(offset_bytes, size_bytes):
                return self._serve(service_s + size_bytes / (b.hybrid_mib_s * _MIB), now_s)
            service_s += self._transfer_s(offset_bytes, size_bytes, b.read_mib_s)
            return self._serve(service_s, now_s, (offset_bytes, size_bytes))

    def write(self, offset_bytes: int, size_bytes: int, now_s: float) -> tuple[float, float]:
        """Return the seconds until a write that begins now ends, and those the medium works."""
        with self._lock:
            self._advance(now_s)
            self._mark(offset_bytes, size_bytes, in_use=True)
            self._in_flash(offset_bytes, size_bytes)
            mib_s = self._flash_mib_s or self.behaviour.write_mib_s
            if self._cached_bytes + size_bytes <= self.behaviour.cache_mib * _MIB:
                mib_s = self.behaviour.write_mib_s
                self._cached_bytes += size_bytes
            service_s = self.behaviour.program_ms / 1e3
            service_s += self._transfer_s(offset_bytes, size_bytes, mib_s)
            return self._serve(service_s, now_s, (offset_bytes, size_bytes))

    def deallocate(self, offset_bytes: int, size_bytes: int) -> None:
        """Mark the blocks as no longer in use."""
        with self._lock:
            self._mark(offset_bytes, size_bytes, in_use=False)

    @property
    def _flash_mib_s(self) -> float:
        slowdown = 1 + (self.behaviour.full_slowdown - 1) * self.used_share
        return self.behaviour.flash_mib_s / slowdown

    def _mark(self, offset_bytes: int, size_bytes: int, *, in_use: bool) -> None:
        end = offset_bytes + size_bytes
        if in_use:
            first, last = offset_bytes // _REGION_BYTES, -(-end // _REGION_BYTES)
        else:  # only what is deallocated as a whole
            first, last = -(-offset_bytes // _REGION_BYTES), end // _REGION_BYTES
        if first < last:
            before = sum(self._used[first:last])
            self._used[first:last] = bytes([in_use]) * (last - first)
            self._regions_used += (last - first if in_use else 0) - before

    def _transfer_s(self, offset_bytes: int, size_bytes: int, mib_s: float) -> float:
        slowdown = 1 + (self.behaviour.inner_slowdown - 1) * offset_bytes / self._size_bytes
        return size_bytes / (mib_s * _MIB) * slowdown if mib_s else 0.0

    def _in_flash(self, offset_bytes: int, size_bytes: int) -> bool:
        """Return whether a hybrid disk's flash holds all of it; cache it, evicting the oldest."""
        end = -(-(offset_bytes + size_bytes) // _REGION_BYTES)
        regions = range(offset_bytes // _REGION_BYTES, end)
        if not self.behaviour.hybrid_mib:
            return False
        is_cached = all(region in self._hybrid for region in regions)
        for region in regions:
            self._hybrid[region] = None
            self._hybrid.move_to_end(region)
        while len(self._hybrid) * _REGION_BYTES > self.behaviour.hybrid_mib * _MIB:
            self._hybrid.popitem(last=False)
        return is_cached

    def _position_s(self, offset_bytes: int, begin_s: float) -> float:
        """Return the seconds until the head reaches a place: seek, then rotation."""
        b, distance = self.behaviour, abs(offset_bytes - self._head_bytes)
        if not b.rpm or not distance:
            return 0.0
        way = math.sqrt(distance / self._size_bytes)
        seek_s = (b.settle_ms + (b.full_seek_ms - b.settle_ms) * way) / 1e3
        turn_s = 60 / b.rpm
        angle = offset_bytes / (b.read_mib_s * _MIB * turn_s)  # in turns
        return seek_s + (angle - (begin_s + seek_s) / turn_s) % 1.0 * turn_s

    def _serve(
        self, service_s: float, now_s: float, place: tuple[int, int] | None = None
    ) -> tuple[float, float]:
        """Queue the command behind earlier ones; `place` is its extent if it uses the medium."""
        b = self.behaviour
        if self._throttling:
            service_s *= b.throttle_slowdown
        if b.idle_after_ms and now_s - self._busy_until_s > b.idle_after_ms / 1e3:
            service_s += b.wake_ms / 1e3
        begin_s = max(now_s, self._busy_until_s)
        if place is not None:
            service_s += self._position_s(place[0], begin_s)
            self._head_bytes = sum(place)
        service_s *= b.time_factor
        self._busy_until_s = begin_s + service_s
        return self._busy_until_s - now_s, service_s

    def _advance(self, now_s: float) -> None:
        """Drain the cache and update the temperature from the last call until now."""
        elapsed_s = max(0.0, now_s - self._at_s)
        busy_s = min(elapsed_s, max(0.0, self._busy_until_s - self._at_s))
        self._cached_bytes = max(0.0, self._cached_bytes - elapsed_s * self._flash_mib_s * _MIB)
        self._at_s = max(now_s, self._at_s)
        self._towards(self.behaviour.ambient_c + self.behaviour.rise_c, busy_s)
        self._throttle()
        self._towards(self.behaviour.ambient_c, elapsed_s - busy_s)
        self._throttle()

    def _towards(self, end_c: float, elapsed_s: float) -> None:
        remaining_share = math.exp(-elapsed_s / self.behaviour.warm_up_s)
        self._temperature_c = end_c + (self._temperature_c - end_c) * remaining_share

    def _throttle(self) -> None:
        b = self.behaviour
        if not self._throttling and b.throttle_c and self._temperature_c >= b.throttle_c:
            self._throttling = True
            self.throttlings += 1
        elif self._throttling and self._temperature_c <= b.recover_c:
            self._throttling = False
