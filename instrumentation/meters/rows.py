"""Parts of drivers: unparsed bytes, records by column, and the requests that start a meter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrumentation.trace import Fault

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.uint16]

# Marks a record without the meter's time.
NO_TIME = int(np.iinfo(np.int64).min)

# Flags that every meter may set; a driver's `flag_words` continue from here.
GAP = 1  # records before this one are missing
RESTART = 2  # the meter's time restarted
OVER_RANGE = 4  # the reading is beyond the meter's range
DOUBTFUL = 8  # the power contradicts voltage and current
COMMON_WORDS = ("gap", "restart", "over-range", "doubtful")

_PACKED_RECORDS = 1 << 14
_MOST_FAULTS = 10_000


@dataclass(frozen=True, eq=False)
class Rows:
    """n records of the driver's c channels, in the order of the stream.

    `t_mono_ns` [n] is when the record's first byte arrived, on the controller's clock;
    `t_device_us` [n] the meter's time at the end of the window, unwrapped, or NO_TIME; `window_s`
    [n] the length of the window over which `power_w` [n, c] is averaged; `energy_j` [n, c] the
    meter's energy counter, NaN if a record has none, or None if the meter has none; `flags` [n] one
    bit for each of the driver's words.
    """

    t_mono_ns: Ints
    t_device_us: Ints
    window_s: Floats
    power_w: Floats
    energy_j: Floats | None
    flags: Flags

    def __len__(self) -> int:
        return len(self.t_mono_ns)


DIRECT_V = 80.0  # below it no mains: the current is direct, and power the product
PRODUCT_SHARE = 0.05  # by which three separately calibrated readings may differ
# The current of a machine's filter alone is less than this many VA, and a power supply has a
# greater power factor than this.
FILTER_VA, LEAST_FACTOR = 50.0, 0.1


class Product(NamedTuple):
    """Voltage and current next to a power, and the VA that the last digits leave open."""

    voltage_v: float
    current_a: float
    margin_va: float

    @classmethod
    def from_texts(cls, power: str, voltage: str, current: str, units: Sequence[float]) -> Product:
        """Parse three numbers as the meter writes them, in these units (W, V, A)."""
        digits = [u * _last_digit(t) for u, t in zip(units, (power, voltage, current), strict=True)]
        voltage_v, current_a = units[1] * float(voltage), units[2] * float(current)
        margin_va = digits[0] + abs(current_a) * digits[1] + abs(voltage_v) * digits[2]
        return cls(voltage_v, current_a, margin_va)

    def is_exceeded(self, power_w: float, share: float = PRODUCT_SHARE) -> bool:
        """Return whether a power is more than the product (Cauchy and Schwarz)."""
        product_va = abs(self.voltage_v * self.current_a)
        return abs(power_w) > (1 + share) * product_va + self.margin_va

    def contradicts(self, power_w: float) -> bool:
        """Return whether a power cannot be that of this voltage and current."""
        product_va = abs(self.voltage_v * self.current_a)
        least = LEAST_FACTOR if abs(self.voltage_v) >= DIRECT_V else 1 - PRODUCT_SHARE
        least_w = least * product_va - self.margin_va
        is_filter = abs(self.voltage_v) >= DIRECT_V and product_va < FILTER_VA
        return (abs(power_w) < least_w and not is_filter) or self.is_exceeded(power_w)


def _last_digit(text: str) -> float:
    """Return the value of one in the last digit of a number."""
    mantissa, _, exponent = text.strip().lower().partition("e")
    return float(10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])))


@dataclass(frozen=True, eq=False)
class ParseResult:
    """Records and faults that some bytes completed."""

    rows: Rows
    faults: tuple[Fault, ...] = ()


@dataclass
class RowBuilder:
    """Records and faults of one call of `feed`, added one by one."""

    channels: int
    has_energy: bool = False
    faults: list[Fault] = field(default_factory=list)
    _records: list[tuple[int, int, float, Sequence[float], Sequence[float], int]] = field(
        default_factory=list
    )
    _packed: list[Rows] = field(default_factory=list)

    def add(
        self,
        t_mono_ns: int,
        t_device_us: int | None,
        window_s: float,
        power_w: Sequence[float],
        *,
        energy_j: Sequence[float] | None = None,
        products: Sequence[Product | None] = (),
        flags: int = 0,
    ) -> None:
        """Add one record; `power_w` and `energy_j` have a value for each channel.

        So have `products`, if the record has voltages and currents: a power that contradicts them
        is flagged, and 0 W that does is no reading.
        """
        doubtful_w = [w for p, w in zip(products, power_w, strict=False) if p and p.contradicts(w)]
        if 0.0 in doubtful_w:
            self.fault(t_mono_ns, "no-data", "0 W next to a voltage and a current is no reading")
            return
        flags |= DOUBTFUL * bool(doubtful_w)
        if len(self._records) >= _PACKED_RECORDS:
            self._packed.append(self._pack())
        time_us = NO_TIME if t_device_us is None else t_device_us
        joules = energy_j or [float("nan")] * self.channels
        self._records.append((t_mono_ns, time_us, window_s, power_w, joules, flags))

    def fault(self, t_mono_ns: int, kind: str, detail: str) -> None:
        """Add a fault, unless there are `_MOST_FAULTS` already."""
        if len(self.faults) < _MOST_FAULTS:
            self.faults.append(Fault(t_mono_ns, kind, detail))

    def result(self) -> ParseResult:
        """Return all records and faults."""
        return ParseResult(concatenate_rows([*self._packed, self._pack()]), tuple(self.faults))

    def _pack(self) -> Rows:
        """Move the records into arrays, which take a tenth of the memory."""
        records, self._records = self._records, []
        shape = (len(records), self.channels)
        times_ns, times_us, windows_s, powers_w, energies_j, flags = (
            zip(*records, strict=True) if records else [()] * 6
        )
        return Rows(
            t_mono_ns=np.array(times_ns, np.int64),
            t_device_us=np.array(times_us, np.int64),
            window_s=np.array(windows_s, np.float64),
            power_w=np.array(powers_w, np.float64).reshape(shape),
            energy_j=np.array(energies_j, np.float64).reshape(shape) if self.has_energy else None,
            flags=np.array(flags, np.uint16),
        )


def concatenate_rows(parts: Sequence[Rows]) -> Rows:
    """Join several stretches of one meter's records; at least one."""
    if len(parts) == 1:
        return parts[0]
    energies = [part.energy_j for part in parts if part.energy_j is not None]
    return Rows(
        t_mono_ns=np.concatenate([part.t_mono_ns for part in parts]),
        t_device_us=np.concatenate([part.t_device_us for part in parts]),
        window_s=np.concatenate([part.window_s for part in parts]),
        power_w=np.concatenate([part.power_w for part in parts]),
        energy_j=np.concatenate(energies) if energies else None,
        flags=np.concatenate([part.flags for part in parts]),
    )


def join_results(parts: Sequence[ParseResult]) -> ParseResult:
    """Join the results of several calls of `feed`; at least one."""
    if len(parts) == 1:
        return parts[0]
    faults = tuple(fault for part in parts for fault in part.faults)
    return ParseResult(concatenate_rows([part.rows for part in parts]), faults)


class Inbox:
    """Received bytes that are not parsed yet, `data`, with the arrival time of each read.

    With `most_bytes` the oldest half is dropped once there are more: another device's stream must
    not fill the memory of a driver that only looks for answers.
    """

    def __init__(self, most_bytes: int | None = None) -> None:
        self.data = b""
        self._most_bytes = most_bytes
        self._arrivals: list[tuple[int, int]] = []  # (offset in data, time) of each read

    def __len__(self) -> int:
        return len(self.data)

    def add(self, data: bytes, t_ns: int) -> None:
        """Add the bytes of one read, the first of which came at `t_ns`."""
        if data:
            self._arrivals.append((len(self.data), t_ns))
            self.data += data
        if self._most_bytes is not None and len(self.data) > self._most_bytes:
            self.drop(len(self.data) - self._most_bytes // 2)

    def arrival_ns(self, offset: int) -> int:
        """Return the arrival time of the byte at `offset`."""
        return next(t_ns for at, t_ns in reversed(self._arrivals) if at <= offset)

    def drop(self, count: int) -> None:
        """Drop the first bytes."""
        self.data = self.data[count:]
        moved = [(at - count, t_ns) for at, t_ns in self._arrivals]
        started = [arrival for arrival in moved if arrival[0] <= 0][-1:]
        self._arrivals = [(0, t_ns) for _, t_ns in started if self.data]
        self._arrivals += [arrival for arrival in moved if arrival[0] > 0]

    def clear(self) -> None:
        self.drop(len(self.data))


class Opening:
    """Requests that start a meter, sent one after the other and again after a silence."""

    def __init__(self, requests: Sequence[bytes], pause_s: float, silence_s: float) -> None:
        self._requests = requests
        self._pause_ns = round(pause_s * 1e9)
        self._silence_ns = round(silence_s * 1e9)
        self._next = 0
        self.due_ns: int | None = 0 if requests else None

    def request(self, t_ns: int) -> bytes:
        """Return the request that is due at `t_ns`; empty if none is."""
        if self.due_ns is None or t_ns < self.due_ns:
            return b""
        return self._requests[self._next]

    def on_request_sent(self, t_ns: int) -> None:
        if self._requests:
            self._next = (self._next + 1) % len(self._requests)
            self.due_ns = t_ns + (self._pause_ns if self._next else self._silence_ns)

    def on_record(self, t_ns: int) -> None:
        """Note a record: no request is due until the next silence."""
        if self._requests:
            self._next = 0
            self.due_ns = t_ns + self._silence_ns

    def again(self) -> None:
        """Send all requests again to a meter that was restarted."""
        if self._requests:
            self._next = self.due_ns = 0
