"""A meter's records as numbers alone, in place of raw bytes that name a person or a machine.

`fde publish --anonymous` writes such a stream.raw where a meter's own bytes hold more than numbers.
Received frames hold whole records, little-endian: arrival in ns (i64), the meter's own time in µs
(i64, the least number where it has none), window in s (f64), flags (u16, one bit for each of
`flag_words`), the power of each channel in W (f64), and its own counter in J (f64) if `has_energy`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl

from instrumentation.accuracy import NOT_STATED, Accuracy
from instrumentation.meters.base import Meter
from instrumentation.meters.rows import NO_TIME, ParseResult, Rows
from instrumentation.trace import MAX_FRAME_BYTES, StreamWriter


@dataclass(frozen=True)
class Settings:
    """`of` is the kind of meter that the records came from."""

    of: str = ""
    has_energy: bool = False
    flag_words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.flag_words) > 16:
            raise ValueError("flag_words must be at most 16")


def record_type(channels: int, has_energy: bool) -> np.dtype[Any]:
    """Return the layout of a record."""
    columns = [("t_mono_ns", "<i8"), ("t_device_us", "<i8"), ("window_s", "<f8"), ("flags", "<u2")]
    values = [("power_w", "<f8", (channels,))]
    return np.dtype([*columns, *values, *([("energy_j", "<f8", (channels,))] * has_energy)])


class Readings(Meter):
    """Driver of such a stream; it is recorded from no meter, so no inventory can name it."""

    kind: ClassVar[str] = "readings"
    name: ClassVar[str] = "records without their raw bytes"
    default_baud: ClassVar[int] = 0
    usb_ids: ClassVar[tuple[str, ...]] = ()
    own_channels: ClassVar[tuple[str, ...]] = tuple(map(str, range(64)))
    timing: str = "poll"
    arrival_delay_limit_s: float = 0.0
    Settings: ClassVar[type[Any]] = Settings

    @property
    def accuracy(self) -> Accuracy:
        return Accuracy(0.0, 0.0, NOT_STATED)

    @property
    def period_s(self) -> float:
        return 1.0

    def _forget(self) -> None:
        self.has_energy = self.settings.has_energy
        self.flag_words = self.settings.flag_words  # type: ignore[misc]
        self._type = record_type(len(self.channels), self.has_energy)
        self._rest = b""

    def feed(self, data: bytes, t_ns: int) -> ParseResult:  # noqa: ARG002 - records have their own
        """See `Meter.feed`."""
        data = self._rest + data
        count = len(data) // self._type.itemsize
        self._rest = data[count * self._type.itemsize :]
        records = np.frombuffer(data, self._type, count)
        flags = records["flags"] & ((1 << len(self.flag_words)) - 1)
        return ParseResult(
            Rows(
                t_mono_ns=records["t_mono_ns"].astype(np.int64),
                t_device_us=records["t_device_us"].astype(np.int64),
                window_s=records["window_s"].astype(np.float64),
                power_w=records["power_w"].astype(np.float64),
                energy_j=records["energy_j"].astype(np.float64) if self.has_energy else None,
                flags=flags.astype(np.uint16),
            )
        )


def write(path: Path, tables: Sequence[pl.DataFrame], settings: Settings) -> None:
    """Write the rows of samples.parquet as a stream.raw; a change of epoch as an opening."""
    stream = StreamWriter(path)
    epoch = 0
    bits = {word: 1 << bit for bit, word in enumerate(settings.flag_words)}
    try:
        for table in tables:
            for part in table.partition_by("epoch", maintain_order=True):
                first_ns, part_epoch = int(part["t_mono_ns"][0]), int(part["epoch"][0])
                for _ in range(part_epoch - epoch):
                    stream.append(first_ns, b"")
                epoch = part_epoch
                _append(stream, part, settings, bits)
    finally:
        stream.close()


def _append(
    stream: StreamWriter, part: pl.DataFrame, settings: Settings, bits: Mapping[str, int]
) -> None:
    powers = [name for name in part.columns if name.startswith("power_w_")]
    layout = record_type(len(powers), settings.has_energy)
    rows = np.zeros(len(part), layout)
    rows["t_mono_ns"] = part["t_mono_ns"].to_numpy()
    rows["t_device_us"] = part["t_device_us"].fill_null(NO_TIME).to_numpy()
    rows["window_s"] = part["window_s"].to_numpy()
    flags = part["flags"].cast(pl.String)
    codes = {text: sum(bits[word] for word in text.split()) for text in flags.unique()}
    rows["flags"] = flags.replace_strict(codes, return_dtype=pl.UInt16).to_numpy()
    rows["power_w"] = part.select(powers).to_numpy()
    if settings.has_energy:
        energies = [name.replace("power_w_", "energy_j_", 1) for name in powers]
        rows["energy_j"] = part.select(pl.col(energies).fill_null(float("nan"))).to_numpy()
    step = max(1, (MAX_FRAME_BYTES >> 4) // layout.itemsize)
    for start in range(0, len(rows), step):
        stream.append(int(rows["t_mono_ns"][start]), rows[start : start + step].tobytes())
