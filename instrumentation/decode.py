"""Decode raw meter streams into tables.

`python -m instrumentation.decode DIR` writes DIR/samples.parquet, a row a record (columns:
data/README.md).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from contract import strict_json
from contract.extensions import ExtensionError
from contract.names import sentence
from contract.problem import ProblemError
from instrumentation.meters import registry
from instrumentation.meters.base import Meter, MeterError
from instrumentation.meters.rows import GAP, NO_TIME, Rows, concatenate_rows
from instrumentation.trace import Fault, Frame, Pieces, StreamError, read_pieces

_CHUNK_RECORDS = 100_000  # at least, in one table
_GROUP_RECORDS = 500_000  # in one row group of the file
_MOST_FAULTS = 100_000  # the stream of another device may have any number


class DecodeError(ProblemError):
    """A recording that cannot be decoded; the message names it and the reason."""


@dataclass
class Decoder:
    """Decoder of one stream by a fresh driver; iterating over `tables` fills `faults`."""

    meter: Meter
    faults: list[Fault] = field(default_factory=list)
    records: int = 0
    _epoch: int = 0  # of the last record

    @property
    def schema(self) -> dict[str, type[pl.DataType]]:
        """Columns of samples.parquet for this meter."""
        channels = list(self.meter.channels.values())
        energies = [f"energy_j_{name}" for name in channels] if self.meter.has_energy else []
        return {
            "seq": pl.Int64,
            "epoch": pl.Int32,
            "t_mono_ns": pl.Int64,
            "t_device_us": pl.Int64,
            "window_s": pl.Float64,
            "flags": pl.Categorical,  # few different ones: a tenth of the time to write
            **{f"power_w_{name}": pl.Float64 for name in channels},
            **dict.fromkeys(energies, pl.Float64),
        }

    def tables(self, stream: Iterable[Frame | Pieces]) -> Iterator[pl.DataFrame]:
        """Yield the records, some hundred thousand at a time."""
        for epoch, rows in _merge_chunks(self._feed(stream)):
            yield self._table(epoch, rows)

    def _feed(self, stream: Iterable[Frame | Pieces]) -> Iterator[tuple[int, Rows]]:
        """Yield the records of each part of a stream with the epoch of their port."""
        for part in stream:
            if isinstance(part, Pieces):
                result = self.meter.feed_all(part)
                self.faults += result.faults[: _MOST_FAULTS - len(self.faults)]
                rows, epoch = result.rows, self.meter.epoch
                if len(rows):
                    if 0 < self._epoch < epoch:  # records before the reopening are missing
                        flags = rows.flags.copy()
                        flags[0] |= GAP
                        rows = replace(rows, flags=flags)
                    self._epoch = epoch
                    yield epoch, rows
            elif not part.data:
                self.meter.opened()
            else:
                self.meter.on_request_sent(part.data, part.t_mono_ns)

    def _table(self, epoch: int, rows: Rows) -> pl.DataFrame:
        start, self.records = self.records, self.records + len(rows)
        has_time, device_us = rows.t_device_us != NO_TIME, pl.Series(rows.t_device_us)
        columns: dict[str, np.ndarray | pl.Series] = {
            "seq": np.arange(start, self.records),
            "epoch": np.full(len(rows), epoch, np.int32),
            "t_mono_ns": rows.t_mono_ns,
            "t_device_us": device_us.set(pl.Series(~has_time), None),
            "window_s": rows.window_s,
            "flags": _flag_texts(self.meter, rows),
        }
        for number, name in enumerate(self.meter.channels.values()):
            columns[f"power_w_{name}"] = np.ascontiguousarray(rows.power_w[:, number])
            if rows.energy_j is not None:
                joules = np.ascontiguousarray(rows.energy_j[:, number])
                columns[f"energy_j_{name}"] = pl.Series(joules).fill_nan(None)
        return pl.DataFrame(columns, schema_overrides=self.schema).select(list(self.schema))


def _merge_chunks(chunks: Iterable[tuple[int, Rows]]) -> Iterator[tuple[int, Rows]]:
    """Join many small stretches of records to few large ones, each of one epoch."""
    parts: list[Rows] = []
    count = current = 0
    for epoch, rows in chunks:
        if parts and (epoch != current or count >= _CHUNK_RECORDS):
            yield current, concatenate_rows(parts)
            parts, count = [], 0
        current = epoch
        parts.append(rows)
        count += len(rows)
    if parts:
        yield current, concatenate_rows(parts)


def _flag_texts(meter: Meter, rows: Rows) -> pl.Series:
    """Return the flags as text; each of the few different ones is built once."""
    codes = np.flatnonzero(np.bincount(rows.flags))
    places = np.zeros(1 << 16, np.uint8 if len(codes) < 256 else np.uint16)
    places[codes] = range(len(codes))
    texts = [
        " ".join(word for bit, word in enumerate(meter.flag_words) if code >> bit & 1)
        for code in codes.tolist()
    ]
    return pl.Series(texts, dtype=pl.Categorical).gather(pl.Series(places[rows.flags]))


@dataclass(frozen=True)
class Decoded:
    """A decoded stream: `samples` as in samples.parquet, in order, with `flags` as text."""

    samples: pl.DataFrame
    faults: tuple[Fault, ...]


def decode_all(decoder: Decoder, stream: Iterable[Frame | Pieces]) -> Decoded:
    """Decode a whole stream at once."""
    tables = pl.concat([pl.DataFrame(schema=decoder.schema), *decoder.tables(stream)])
    return Decoded(tables.with_columns(pl.col("flags").cast(pl.String)), tuple(decoder.faults))


def open_recording(meter_dir: Path) -> tuple[Decoder, Iterator[Frame | Pieces]]:
    """Return a fresh decoder and the stream of a meter's directory.

    Raises DecodeError.
    """
    try:
        with _as_decode_errors(meter_dir):
            text = (meter_dir / "meter.json").read_text(encoding="utf-8")
        described = strict_json.loads(text)
        driver = registry.load(described["kind"])
        meter = driver(described["channels"], described.get("settings", {}))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DecodeError(
            "invalid-description", path=meter_dir / "meter.json", error=error
        ) from None
    except (ExtensionError, MeterError) as error:
        raise DecodeError("meter-undecoded", meter_dir=meter_dir, error=error) from None
    return Decoder(meter), read_pieces(meter_dir / "stream.raw")


def tables(meter_dir: Path) -> Iterator[pl.DataFrame]:
    """Yield the records of a recording, some hundred thousand at a time.

    Raises DecodeError.
    """
    decoder, stream = open_recording(meter_dir)
    with _as_decode_errors(meter_dir):
        yield from decoder.tables(stream)


def decode(meter_dir: Path) -> Decoded:
    """Decode the recording in a meter's directory (meter.json, stream.raw) at once.

    Raises DecodeError.
    """
    decoder, stream = open_recording(meter_dir)
    with _as_decode_errors(meter_dir):
        return decode_all(decoder, stream)


def read_through(meter_dir: Path) -> Meter:
    """Return the driver that has read a whole recording. Raises DecodeError."""
    decoder, stream = open_recording(meter_dir)
    with _as_decode_errors(meter_dir):
        for _ in decoder.tables(stream):
            pass
    return decoder.meter


def write_samples(meter_dir: Path) -> Decoder:
    """Decode a recording and write samples.parquet next to it, whole or not at all.

    Reads the stream in pieces. Raises DecodeError.
    """
    decoder, stream = open_recording(meter_dir)
    fresh = meter_dir / "samples.parquet.new"

    def pieces(*_: object) -> Iterator[pl.DataFrame]:
        yield from decoder.tables(stream)

    try:
        # Opened here: Polars might open it after it has raised an error of the stream.
        with _as_decode_errors(meter_dir), fresh.open("wb") as file:
            source = register_io_source(pieces, schema=decoder.schema)
            source.sink_parquet(file, row_group_size=_GROUP_RECORDS, compression_level=1)
        fresh.replace(meter_dir / "samples.parquet")
    finally:
        fresh.unlink(missing_ok=True)
    return decoder


@contextmanager
def _as_decode_errors(meter_dir: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise DecodeError("no-recording", path=error.filename, meter_dir=meter_dir) from None
    except (StreamError, pl.exceptions.ComputeError) as error:
        raise DecodeError("meter-undecoded", meter_dir=meter_dir, error=error) from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    directories = sys.argv[1:] if arguments is None else arguments
    if not directories:
        print("usage: python -m instrumentation.decode DIR…", file=sys.stderr)
        return 2
    for directory in directories:
        try:
            decoded = write_samples(Path(directory))
        except DecodeError as error:
            print(f"fde: {sentence(str(error))}", file=sys.stderr)
            return 1
        print(f"{directory}: {decoded.records} samples, {len(decoded.faults)} faults")
    return 0


if __name__ == "__main__":
    sys.exit(main())
