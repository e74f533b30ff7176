"""A meter's records in chunks, because a long recording does not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from contract.files import for_polars
from contract.problem import ProblemError
from instrumentation import decode

CHUNK_RECORDS = 500_000
EPOCHS = 1_000_000  # more than one recording has
COLUMNS = ("epoch", "t_mono_ns", "t_device_us", "window_s")


class SamplesError(ProblemError):
    """An error in reading samples; the message is a clause with the reason."""


@dataclass(frozen=True, eq=False)
class Samples:
    """The rows of samples.parquet in the order of the stream, read again by each `tables`."""

    columns: tuple[str, ...]
    records: int
    read: Callable[[Sequence[str]], Iterator[pl.DataFrame]]
    stretch: Callable[[int, int], pl.DataFrame] | None = None

    def during(self, start_ns: int, end_ns: int) -> Samples:
        """Return the records that arrived between two instants; of a file only these are read."""
        if self.stretch is not None:
            return of_table(self.stretch(start_ns, end_ns))
        within = pl.col("t_mono_ns").is_between(start_ns, end_ns)
        tables = [table.filter(within) for table in self.tables(self.columns)]
        return of_table(pl.concat(tables)) if tables else NOTHING

    def tables(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield tables of these columns, but no empty ones."""
        return (table for table in self.read(columns) if len(table))


NOTHING = Samples((), 0, lambda _: iter(()))


def of_table(table: pl.DataFrame) -> Samples:
    """Return records that are in memory."""

    def read(columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        for start in range(0, len(table), CHUNK_RECORDS):
            yield table.slice(start, CHUNK_RECORDS).select(columns)

    return Samples(tuple(table.columns), len(table), read)


def of_file(path: Path, channels: Sequence[str]) -> Samples:
    """Return the records of a samples.parquet with these channels. Raises SamplesError."""
    lazy = pl.scan_parquet(for_polars(path))
    try:
        schema = lazy.collect_schema()
        records = int(lazy.select(pl.len()).collect().item())
    except (OSError, pl.exceptions.PolarsError):
        raise SamplesError("not-parquet") from None
    names, needed = tuple(schema), (*COLUMNS, *(f"power_w_{name}" for name in channels))
    if lacking := [name for name in needed if name not in schema]:
        raise SamplesError("columns-missing", lacking=", ".join(lacking))
    if strange := [name for name in names if not _is_sound(name, schema[name])]:
        raise SamplesError("columns-of-other-type", strange=", ".join(strange)[:80])

    def collected(collect: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        try:
            return collect()
        except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
            where = f"{path.name} of meter {path.parent.name}"
            raise SamplesError("samples-damaged", where=where) from None

    def read(columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        with ThreadPoolExecutor(1) as reader:  # reads ahead while the last piece is worked on
            pieces = (
                reader.submit(lazy.select(columns).slice(start, CHUNK_RECORDS).collect)
                for start in range(0, records, CHUNK_RECORDS)
            )
            ahead = next(pieces, None)
            while ahead is not None:
                piece, ahead = ahead, next(pieces, None)
                yield collected(piece.result)

    def stretch(start_ns: int, end_ns: int) -> pl.DataFrame:
        within = pl.col("t_mono_ns").is_between(start_ns, end_ns)
        return collected(lazy.filter(within).collect)

    return Samples(names, records, read, stretch)


def _is_sound(name: str, kind: pl.DataType) -> bool:
    """Return whether a column has the type that `instrumentation.decode` gives it."""
    if name in ("seq", "epoch", "t_mono_ns", "t_device_us"):
        return kind.is_integer()
    return kind in (pl.String, pl.Categorical) if name == "flags" else kind.is_float()


def of_recording(folder: Path) -> Samples:
    """Return the records in a meter's raw bytes, which each reading decodes again.

    Raises DecodeError if the folder has no recording.
    """
    decoder, _ = decode.open_recording(folder)
    records = sum(map(len, decode.tables(folder)))

    def read(columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        return rechunk(table.select(columns) for table in decode.tables(folder))

    return Samples(tuple(decoder.schema), records, read)


def chain(parts: Sequence[tuple[Samples, int]]) -> Samples:
    """Join the recordings of one meter, each moved by its shift in ns.

    Each gets separate epochs, so that no stretch continues from one to the next.
    """
    recorded = [(part, shift_ns) for part, shift_ns in parts if part.records]
    if not recorded:
        return parts[0][0] if parts else NOTHING
    if len(recorded) == 1 and not recorded[0][1]:
        return recorded[0][0]
    shared = set.intersection(*(set(part.columns) for part, _ in recorded))
    columns = tuple(name for name in recorded[0][0].columns if name in shared)

    def move(table: pl.DataFrame, number: int, shift_ns: int) -> pl.DataFrame:
        later = {"t_mono_ns": shift_ns, "epoch": number * EPOCHS}
        return table.with_columns(
            *(pl.col(name) + by for name, by in later.items() if name in table.columns),
            *([pl.col("flags").cast(pl.String)] if "flags" in table.columns else []),
        )

    def read(names: Sequence[str]) -> Iterator[pl.DataFrame]:
        for number, (part, shift_ns) in enumerate(recorded):
            for table in part.tables(names):
                yield move(table, number, shift_ns)

    def stretch(start_ns: int, end_ns: int) -> pl.DataFrame:
        tables = [
            move(table, number, shift_ns).select(columns)
            for number, (part, shift_ns) in enumerate(recorded)
            for table in part.during(start_ns - shift_ns, end_ns - shift_ns).tables(columns)
        ]
        return (
            pl.concat(tables) if tables else pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64))
        )

    return Samples(columns, sum(part.records for part, _ in recorded), read, stretch)


def between(part: Samples, start_ns: int, end_ns: int) -> Samples:
    """Return the records that arrived in [start, end], without holding them in memory."""
    within = pl.col("t_mono_ns").is_between(start_ns, end_ns)

    def read(names: Sequence[str]) -> Iterator[pl.DataFrame]:
        columns = dict.fromkeys([*names, "t_mono_ns"])
        return (table.filter(within).select(names) for table in part.tables(list(columns)))

    def stretch(first_ns: int, last_ns: int) -> pl.DataFrame:
        stretched = part.during(max(first_ns, start_ns), min(last_ns, end_ns))
        return pl.concat([pl.DataFrame(schema=schema), *stretched.tables(part.columns)])

    schema = next(iter(part.tables(part.columns))).schema if part.records else {}
    return Samples(part.columns, sum(map(len, read(["t_mono_ns"]))), read, stretch)


def rechunk(tables: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield the same rows in chunks of `CHUNK_RECORDS`, as `of_file` does.

    The fit of a meter's time thins out its points chunk by chunk: other chunks would change it.
    """
    pending: list[pl.DataFrame] = []
    for table in tables:
        pending.append(table)
        while sum(map(len, pending)) >= CHUNK_RECORDS:
            joined = pl.concat(pending)
            yield joined.head(CHUNK_RECORDS)
            pending = [joined.slice(CHUNK_RECORDS)]
    if any(map(len, pending)):
        yield pl.concat(pending)
