"""RAPL counters from the kernel's powercap files, read by one system call each."""

from __future__ import annotations

import os
import platform
import shlex
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic_ns
from typing import ClassVar

from contract.system_text import not_a_number
from instrumentation.sources.counter import ReadFailure, Reading, read_stamped, reason
from instrumentation.sources.registry import SourceError
from instrumentation.sources.updates import ENOUGH, WATCH_S
from instrumentation.sources.zones import (
    MIRROR_WAIT_S,
    HeldZones,
    Zone,
    discover,
    kind_of,
    named_zones,
    watch_counters,
)

ROOT = Path("/sys/class/powercap")
COUNTER_BYTES = 32
_MOST_DIGITS = 19  # with the line's end: what an array takes
_FAILED = -1


class PowercapError(SourceError):
    """No counter can be read; the message gives the command that fixes it."""


class PowercapSource(HeldZones):
    """The counters of this machine, with their files open.

    A zone can vanish during a run (a driver is reloaded, a processor taken offline): its reads then
    give the reason, and every further read first tries to open it again. May be used from several
    threads: a descriptor keeps its number, and its file is replaced in one step.
    """

    name: ClassVar[str] = "powercap"

    def __init__(self, zones: tuple[Zone, ...], descriptors: tuple[int, ...]) -> None:
        super().__init__(zones, descriptors)
        self.reopened_ns: list[list[int]] = [[] for _ in zones]
        self.away: dict[int, str] = {}
        self.omitted = ""  # a sentence if only root can read some zones
        self.uncounted: frozenset[str] = frozenset()  # zones of the tree that are not read

    @classmethod
    def open(
        cls,
        root: Path = ROOT,
        mirror_wait_s: float = MIRROR_WAIT_S,
        watch_s: float = WATCH_S,
        enough: int = ENOUGH,
    ) -> PowercapSource:
        """Find the counters and open them.

        Watches dies of one package for at most `mirror_wait_s` to see whether they show one
        counter; all counters for at most `watch_s`, or until each had `enough` updates, to see
        their rate. Raises PowercapError.
        """
        try:
            zones = discover(root)
            names = frozenset(name for name, *_ in named_zones(root))
        except OSError as error:
            where = error.filename or f"A zone's name under {root}"
            raise PowercapError("zones-unreadable", where=where, error=reason(error)) from None
        if not zones:
            raise _no_zone(root)
        descriptors: dict[Zone, int] = {}
        denied: dict[Zone, PermissionError] = {}
        try:
            for zone in zones:
                try:
                    descriptors[zone] = _open(zone)
                except PermissionError as error:
                    denied[zone] = error
            if not descriptors:
                raise next(iter(denied.values()))
        except OSError as error:
            for descriptor in descriptors.values():
                os.close(descriptor)
            raise _cannot_open(zones, error) from None
        zones = tuple(descriptors)
        source = cls(zones, tuple(descriptors.values()))
        source.uncounted = names - set(source.names)
        if lacking := [n for n in source.uncounted if kind_of(n) == "package"]:
            source.omitted = f"{', '.join(sorted(lacking))} shows no counter (energy_uj)."
        if denied:
            unread = ", ".join(zone.name for zone in denied)
            source.omitted = f"{unread}: {_cannot_open(denied, next(iter(denied.values())))}"
        reads = [partial(source.value_uj, index) for index in range(len(zones))]
        source.zones = watch_counters(zones, reads, mirror_wait_s, watch_s, enough)
        return source

    @classmethod
    def is_present(cls, root: Path = ROOT) -> bool:
        """Return whether this machine shows RAPL's zones, or links that lead to none."""
        return next(iter(root.glob("intel-rapl*")), None) is not None

    def read(self) -> dict[str, Reading | ReadFailure]:
        """Read every counter, by zone name; a zone that cannot be read gives the reason instead."""
        if self.away:
            self.reopen()
        return {zone.name: self._read(index) for index, zone in enumerate(self.zones)}

    def series(self) -> Series:
        """Return an empty series of readings of this source."""
        return Series(self)

    def value_uj(self, index: int) -> int | None:
        """Return one counter's count; None if it cannot be read."""
        try:
            return self.count_uj(index)
        except OSError:
            return None

    def count_uj(self, index: int) -> int:
        """Return one counter's count. Raises OSError; the next read tries to open it again."""
        try:
            data = os.pread(self._descriptors[index], COUNTER_BYTES, 0)
            if not data.strip().isdigit() or len(data) > _MOST_DIGITS:
                raise OSError(not_a_number(data))
        except OSError as error:
            self.away[index] = reason(error)
            raise
        return int(data)

    def _read(self, index: int) -> Reading | ReadFailure:
        reading = read_stamped(partial(self.count_uj, index), self.zones[index].update_ns or 0)
        epoch = len(self.reopened_ns[index])
        return replace(reading, epoch=epoch) if isinstance(reading, Reading) else reading

    def reopen(self) -> None:
        """Try to open vanished counters again. The next reading belongs to a new epoch."""
        for index in list(self.away):
            try:
                fresh = _open(self.zones[index])
            except OSError:
                continue
            # The epoch first: no thread may take the new file's count for one of the old epoch.
            self.reopened_ns[index].append(monotonic_ns())
            os.dup2(fresh, self._descriptors[index], inheritable=False)
            os.close(fresh)
            self.away.pop(index, None)


class Series:
    """Samples of all counters of a source; only `take` is called during a run.

    Arrays of two stamps and a count each, because a million small objects would cost memory and
    garbage collection during a run.
    """

    def __init__(self, source: PowercapSource) -> None:
        self._source = source
        self._names = tuple(source.names)
        self._columns = [array("q") for _ in self._names]
        self._errors: dict[tuple[int, int], str] = {}

    def take(self) -> None:
        """Read every counter once."""
        if self._source.away:
            self._source.reopen()
        # The stamp after one read is the stamp before the next, which saves a call.
        t_before_ns = monotonic_ns()
        for index, column in enumerate(self._columns):
            try:
                count_uj = self._source.count_uj(index)
            except OSError as error:
                self._errors[index, len(column)] = reason(error)
                count_uj = _FAILED
            t_after_ns = monotonic_ns()
            column.extend((t_before_ns, t_after_ns, count_uj))
            t_before_ns = t_after_ns

    def readings(self) -> dict[str, list[Reading | ReadFailure]]:
        """Return every sample by counter, in order of time."""
        return {name: list(self._parse(n)) for n, name in enumerate(self._names)}

    def _parse(self, index: int) -> Iterator[Reading | ReadFailure]:
        column, reopened_ns = self._columns[index], self._source.reopened_ns[index]
        for at in range(0, len(column), 3):
            before_ns, after_ns, count_uj = column[at : at + 3]
            if count_uj == _FAILED:
                yield ReadFailure(before_ns, self._errors[index, at])
            else:
                yield Reading(before_ns, after_ns, count_uj, bisect_right(reopened_ns, after_ns))


def _open(zone: Zone) -> int:
    return os.open(zone.path / "energy_uj", os.O_RDONLY | os.O_CLOEXEC)


X86 = ("x86_64", "amd64", "i386", "i486", "i586", "i686")


def on_x86() -> bool:
    """Return whether this machine's processor can have RAPL."""
    return platform.machine().lower() in X86


def _no_zone(root: Path) -> PowercapError:
    """Return the reason why there is no counter, with the remedy."""
    links = list(root.glob("intel-rapl*"))
    if any(not link.exists() for link in links):
        return PowercapError("links-lead-nowhere", root=root)
    if links:
        return PowercapError("zones-without-energy", root=root)
    if not on_x86():
        return PowercapError("not-x86", root=root, machine=platform.machine())
    return PowercapError("no-zone", root=root)


def _cannot_open(zones: Iterable[Zone], error: OSError) -> PowercapError:
    if not isinstance(error, PermissionError):
        return PowercapError("zone-unopened", file=error.filename, error=error.strerror)
    files = shlex.join(str(zone.path / "energy_uj") for zone in zones)
    return PowercapError("zones-root-only", file=error.filename, files=files)
