"""Raw meter streams into tables: `python -m instrumentation.decode DIR` writes
DIR/samples.parquet.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import polars as pl

from instrumentation.choose import UnknownNameError
from instrumentation.meters import registry
from instrumentation.meters.base import Meter, MeterError
from instrumentation.trace import Fault, Frame, Record, StreamError, read_frames

SCHEMA: dict[str, type[pl.DataType]] = {
    "seq": pl.Int64,
    "epoch": pl.Int32,
    "t_mono_ns": pl.Int64,
    "t_device_ms": pl.Int64,
    "channel": pl.String,
    "window_s": pl.Float64,
    "power_w": pl.Float64,
    "energy_j": pl.Float64,
    "flags": pl.String,
}
_CHUNK_RECORDS = 100_000


class DecodeError(Exception):
    """A recording that cannot be decoded; the message says which and why."""


@dataclass(frozen=True)
class Decoded:
    """`samples` with the columns of samples.parquet in the order of the stream; `faults` beside
    it.
    """

    samples: pl.DataFrame
    faults: tuple[Fault, ...]


def decode_frames(meter: Meter, frames: Iterable[Frame]) -> Decoded:
    """What a driver makes of frames. `meter` must be fresh."""
    tables = [pl.DataFrame(schema=SCHEMA)]
    records: list[Record] = []
    faults: list[Fault] = []
    for frame in frames:
        if not frame.data:
            meter.opened()
            continue
        for item in meter.feed(frame.data, frame.t_mono_ns):
            if isinstance(item, Record):
                records.append(item)
            else:
                faults.append(item)
        if len(records) >= _CHUNK_RECORDS:
            tables.append(_table(records))
            records = []
    tables.append(_table(records))
    return Decoded(pl.concat(tables), tuple(faults))


def _table(records: Sequence[Record]) -> pl.DataFrame:
    columns = {name: list(map(attrgetter(name), records)) for name in SCHEMA}
    return pl.DataFrame(columns, schema=SCHEMA)


def decode(meter_dir: Path) -> Decoded:
    """The recording in a meter's directory (meter.json, stream.raw). Raises DecodeError."""
    try:
        described = json.loads((meter_dir / "meter.json").read_text(encoding="utf-8"))
        meter = registry.load(described["kind"])(described["channels"])
        return decode_frames(meter, read_frames(meter_dir / "stream.raw"))
    except FileNotFoundError as error:
        raise DecodeError(f"{error.filename} is not there: {meter_dir} is no recording.") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DecodeError(
            f"{meter_dir / 'meter.json'} is not a meter's description ({error})."
        ) from None
    except (UnknownNameError, MeterError, StreamError) as error:
        raise DecodeError(f"{meter_dir}: {error}") from None


def write_samples(meter_dir: Path) -> Decoded:
    """Decode a recording and write samples.parquet beside it, whole or not at all."""
    decoded = decode(meter_dir)
    fresh = meter_dir / "samples.parquet.new"
    decoded.samples.write_parquet(fresh)
    fresh.replace(meter_dir / "samples.parquet")
    return decoded


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: one or more meter directories."""
    directories = sys.argv[1:] if arguments is None else arguments
    if not directories:
        print("usage: python -m instrumentation.decode DIR…", file=sys.stderr)
        return 2
    for directory in directories:
        try:
            decoded = write_samples(Path(directory))
        except DecodeError as error:
            print(f"fde: {error}", file=sys.stderr)
            return 1
        print(f"{directory}: {decoded.samples.height} samples, {len(decoded.faults)} faults")
    return 0


if __name__ == "__main__":
    sys.exit(main())
