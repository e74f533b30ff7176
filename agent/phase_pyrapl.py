"""pyRAPL over each phase: a separate measurement, compared with the counters that enclose it.

Our own reading of the same counters reveals the faults of pyRAPL 0.2.3.1: it never reads
`max_energy_range_uj`, so that a counter that wrapped gives a negative figure, none, or one that is
too small by whole ranges; and its figures are µJ where its documentation states joules and seconds
(device_api.py, result.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from contract.documents import Counter
from instrumentation.clock import monotonic_ns
from instrumentation.sources.counter import (
    DOUBLE_WRAP,
    READ_FAILED,
    EnergyDifference,
    ReadFailure,
    Reading,
    Readings,
    edge_at,
)
from instrumentation.sources.pyrapl import DIFFERS, UNCHECKED, WRAPPED, PyraplSource
from instrumentation.sources.zones import Zone

# Counters change about every millisecond: at each edge the two may have seen another update.
_UPDATES_NS = 2_000_000


@dataclass(frozen=True)
class Measured:
    """One measurement: its begin, between two stamps, and the readings at its end."""

    from_ns: int
    begun_ns: int
    readings: Readings

    def counter(
        self,
        zone: Zone,
        ours: EnergyDifference,
        start: Reading | ReadFailure,
        end: Reading | ReadFailure,
    ) -> Counter:
        """Return the counter of a zone over the phase, from 0 to the energy used, in µJ.

        `ours` is what our reader found from `start` to `end`, which enclose the measurement.
        """
        read = self.readings.get(zone.name)
        flags = {DOUBLE_WRAP} & set(ours.flags)
        if not isinstance(read, Reading):
            read = None
            flags.add(READ_FAILED)
        if ours.kind == "corrected":
            read = None
            flags.add(WRAPPED)
        elif (
            ours.energy_uj is None or isinstance(start, ReadFailure) or isinstance(end, ReadFailure)
        ):
            flags.add(UNCHECKED)
        elif read is not None:
            apart_ns = self.begun_ns - start.t_before_ns + end.t_after_ns - read.t_before_ns
            slack_uj = zone.max_power_w * (apart_ns + _UPDATES_NS) * 1e-3
            if not ours.energy_uj - slack_uj <= read.energy_uj <= ours.energy_uj:
                flags.add(DIFFERS)
        begun = Reading(self.from_ns, self.begun_ns, 0)
        return Counter(
            PyraplSource.name,
            zone.name,
            start=edge_at(begun if read else None),
            end=edge_at(read),
            flags=tuple(sorted(flags)),
        )


class PhasePyrapl:
    """pyRAPL for one phase after the other; an error in one is forgotten at the next."""

    def __init__(self) -> None:
        self._source = PyraplSource.open()
        self._begun = (0, 0)

    def begin(self) -> None:
        """Start a measurement; never raises."""
        if self._source.error is not None:
            self._source = PyraplSource.open()
        from_ns = monotonic_ns()
        self._source.begin()
        self._begun = from_ns, monotonic_ns()

    def end(self) -> Measured:
        """Return the energy since `begin`; never raises."""
        return Measured(*self._begun, self._source.read())
