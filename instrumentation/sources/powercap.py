"""RAPL counters from the kernel's powercap files, read at the price of one system call each."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from instrumentation.clock import monotonic_ns
from instrumentation.sources.counter import ReadFailure, Reading
from instrumentation.sources.registry import SourceError
from instrumentation.sources.series import COUNTER_BYTES, Series, not_a_number, parse, reason
from instrumentation.sources.zones import Zone, discover, mirrors

ROOT = Path("/sys/class/powercap")


class PowercapError(SourceError):
    """No counter can be read; the message gives the command that fixes it."""


class PowercapSource:
    """The counters of this machine, their files held open.

    A zone can go away in mid-run (a driver is reloaded, a processor taken offline): its reads then
    give the reason, and every further read first tries to open it again. May be used from several
    threads: a descriptor keeps its number, and what is behind it is exchanged in one step.
    """

    name: ClassVar[str] = "powercap"

    def __init__(self, zones: tuple[Zone, ...], descriptors: tuple[int, ...]) -> None:
        self.zones = zones
        self.descriptors: Sequence[int] = descriptors
        self.reopened_ns: list[list[int]] = [[] for _ in zones]
        self.away: dict[int, str] = {}

    @classmethod
    def open(
        cls,
        root: Path = ROOT,
        max_power_w: Mapping[str, float] | None = None,
        mirror_wait_s: float = 0.25,
    ) -> PowercapSource:
        """Find the counters and open them; `max_power_w`: see zones.discover. Dies of one package
        are watched for at most `mirror_wait_s`, to see whether they show one counter.

        Raises PowercapError.
        """
        try:
            zones = discover(root, max_power_w)
        except OSError as error:
            where = error.filename or f"A zone's name under {root}"
            raise PowercapError(f"{where} cannot be read: {reason(error)}.") from None
        if not zones:
            raise PowercapError(
                f"There is no RAPL zone under {root}: load the driver with "
                "`sudo modprobe intel_rapl_msr`, or name another energy source."
            )
        descriptors: list[int] = []
        try:
            for zone in zones:
                descriptors.append(_open(zone))
        except OSError as error:
            for descriptor in descriptors:
                os.close(descriptor)
            raise PowercapError(_cannot_open(zones, error)) from None
        source = cls(zones, tuple(descriptors))
        mirrored = mirrors(zones, source.value_uj, time.monotonic() + mirror_wait_s)
        source.zones = tuple(replace(z, mirror_of=mirrored.get(z.name)) for z in zones)
        return source

    @property
    def names(self) -> Sequence[str]:
        """The zones' names, in the order of the descriptors."""
        return [zone.name for zone in self.zones]

    def read(self) -> dict[str, Reading | ReadFailure]:
        """Every counter by zone name; a zone that cannot be read gives the reason instead."""
        if self.away:
            self.reopen()
        return {zone.name: self._read(index) for index, zone in enumerate(self.zones)}

    def series(self) -> Series:
        """A place for many readings."""
        return Series(self)

    def value_uj(self, index: int) -> int | None:
        """One counter's number alone; None where it cannot be read."""
        found = self._read(index)
        return found.energy_uj if isinstance(found, Reading) else None

    def _read(self, index: int) -> Reading | ReadFailure:
        t_before_ns = monotonic_ns()
        try:
            data = os.pread(self.descriptors[index], COUNTER_BYTES, 0)
            if not data:
                raise OSError(not_a_number(data))
        except OSError as error:
            self.away[index] = reason(error)
            return ReadFailure(t_before_ns, reason(error))
        t_after_ns = monotonic_ns()
        return parse(t_before_ns, t_after_ns, data, len(self.reopened_ns[index]))

    def reopen(self) -> None:
        """Try to open what is away. The reading after it belongs to a new epoch."""
        for index in list(self.away):
            try:
                fresh = _open(self.zones[index])
            except OSError:
                continue
            # The epoch first: no thread may take the new file's number for one of the old epoch.
            self.reopened_ns[index].append(monotonic_ns())
            os.dup2(fresh, self.descriptors[index], inheritable=False)
            os.close(fresh)
            self.away.pop(index, None)

    def close(self) -> None:
        """Close the files. The source is not used after this."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = ()

    def __enter__(self) -> PowercapSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open(zone: Zone) -> int:
    return os.open(zone.path / "energy_uj", os.O_RDONLY | os.O_CLOEXEC)


def _cannot_open(zones: tuple[Zone, ...], error: OSError) -> str:
    if not isinstance(error, PermissionError):
        return f"{error.filename} cannot be opened: {error.strerror}."
    files = " ".join(shlex.quote(str(zone.path / "energy_uj")) for zone in zones)
    return f"{error.filename} may be read by root only: run as root, or `sudo chmod a+r {files}`."
