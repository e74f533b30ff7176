"""A suite's meters: their recordings, and their records, some hundred thousand at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from analysis.suite.documents import optional
from analysis.suite.records import Meter
from instrumentation import decode

CHUNK_RECORDS = 500_000
EPOCHS = 1_000_000  # more than one recording has
COLUMNS = ("epoch", "t_mono_ns", "t_device_us", "window_s")


class SamplesError(Exception):
    """Samples that cannot be read; the message is a clause that says why."""


@dataclass(frozen=True, eq=False)
class Samples:
    """The rows of samples.parquet in the order of the stream, read anew by each `tables`."""

    columns: tuple[str, ...]
    records: int
    read: Callable[[Sequence[str]], Iterator[pl.DataFrame]]
    stretch: Callable[[int, int], pl.DataFrame] | None = None

    def during(self, start_ns: int, end_ns: int) -> Samples:
        """Only the records that arrived between two instants; of a file no more of it is read."""
        if self.stretch is not None:
            return of_table(self.stretch(start_ns, end_ns))
        here = pl.col("t_mono_ns").is_between(start_ns, end_ns)
        found = [table.filter(here) for table in self.tables(self.columns)]
        return of_table(pl.concat(found)) if found else NOTHING

    def tables(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Tables of these columns, none of them empty."""
        return (table for table in self.read(columns) if len(table))


NOTHING = Samples((), 0, lambda _: iter(()))


def of_table(table: pl.DataFrame) -> Samples:
    """Records that are in memory."""

    def read(columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        for start in range(0, len(table), CHUNK_RECORDS):
            yield table.slice(start, CHUNK_RECORDS).select(columns)

    return Samples(tuple(table.columns), len(table), read)


def of_file(path: Path, channels: Sequence[str]) -> Samples:
    """A samples.parquet with these channels. Raises SamplesError where it is none."""
    lazy = pl.scan_parquet(path)
    try:
        names = tuple(lazy.collect_schema())
        records = int(lazy.select(pl.len()).collect().item())
    except (OSError, pl.exceptions.PolarsError):
        raise SamplesError("it is no Parquet file or cut short") from None
    lacking = [c for c in (*COLUMNS, *(f"power_w_{name}" for name in channels)) if c not in names]
    if lacking:
        raise SamplesError(f"it lacks {', '.join(lacking)}")

    def whole(collect: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        try:
            return collect()
        except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
            where = f"{path.name} of meter {path.parent.name}"
            raise SamplesError(f"{where} is damaged in the middle") from None

    def read(columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        with ThreadPoolExecutor(1) as reader:  # reads ahead while the last piece is worked on
            pieces = (
                reader.submit(lazy.select(columns).slice(start, CHUNK_RECORDS).collect)
                for start in range(0, records, CHUNK_RECORDS)
            )
            ahead = next(pieces, None)
            while ahead is not None:
                piece, ahead = ahead, next(pieces, None)
                yield whole(piece.result)

    def stretch(start_ns: int, end_ns: int) -> pl.DataFrame:
        here = pl.col("t_mono_ns").is_between(start_ns, end_ns)
        return whole(lazy.filter(here).collect)

    return Samples(names, records, read, stretch)


def of_recording(folder: Path) -> Samples:
    """What the raw bytes of a meter's folder give; decoded anew by each reading.

    Raises DecodeError if there is no recording.
    """
    decoder, _ = decode.open_recording(folder)
    records = sum(map(len, decode.tables(folder)))

    def read(columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        return even(table.select(columns) for table in decode.tables(folder))

    return Samples(tuple(decoder.schema), records, read)


def chained(parts: Sequence[tuple[Samples, int]]) -> Samples:
    """Recordings of one meter, one after the other, the times of each moved by so many ns.

    Each has epochs of its own, so that nothing is taken to go on from one to the next.
    """
    there = [(part, shift_ns) for part, shift_ns in parts if part.records]
    if not there:
        return parts[0][0] if parts else NOTHING
    if len(there) == 1 and not there[0][1]:
        return there[0][0]
    shared = set.intersection(*(set(part.columns) for part, _ in there))
    columns = tuple(name for name in there[0][0].columns if name in shared)

    def moved(table: pl.DataFrame, number: int, shift_ns: int) -> pl.DataFrame:
        later = {"t_mono_ns": shift_ns, "epoch": number * EPOCHS}
        return table.with_columns(
            *(pl.col(name) + by for name, by in later.items() if name in table.columns),
            *([pl.col("flags").cast(pl.String)] if "flags" in table.columns else []),
        )

    def read(wanted: Sequence[str]) -> Iterator[pl.DataFrame]:
        for number, (part, shift_ns) in enumerate(there):
            for table in part.tables(wanted):
                yield moved(table, number, shift_ns)

    def stretch(start_ns: int, end_ns: int) -> pl.DataFrame:
        found = [
            moved(table, number, shift_ns).select(columns)
            for number, (part, shift_ns) in enumerate(there)
            for table in part.during(start_ns - shift_ns, end_ns - shift_ns).tables(columns)
        ]
        return pl.concat(found) if found else pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64))

    return Samples(columns, sum(part.records for part, _ in there), read, stretch)


def even(tables: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The same rows in pieces as `of_file` gives them.

    The fit of a meter's time thins out its points piece by piece, so that it would come out
    otherwise from pieces of another size.
    """
    held: list[pl.DataFrame] = []
    for table in tables:
        held.append(table)
        while sum(map(len, held)) >= CHUNK_RECORDS:
            whole = pl.concat(held)
            yield whole.head(CHUNK_RECORDS)
            held = [whole.slice(CHUNK_RECORDS)]
    rest = pl.concat(held) if held else None
    if rest is not None and len(rest):
        yield rest


# What must be the same in all folders of a meter; else its records cannot stand in one line.
ALIKE = ("kind", "channels", "origin", "timing", "arrival_delay_limit_s", "accuracy")


@dataclass(frozen=True)
class Recording:
    """One folder below `meters/`. `boot` is the controller's whose clock its times are of; empty
    where meter.json does not say."""

    name: str
    number: int
    boot: str
    started_wall: str
    described: Mapping[str, Any]
    samples: Samples

    @property
    def channels(self) -> tuple[str, ...]:
        return _channels(self.described)

    @cached_property
    def span_ns(self) -> tuple[int, int] | None:
        """Arrival of the first and of the last record; None without any."""
        first = last = None
        for table in self.samples.tables(["t_mono_ns"]):
            first = table["t_mono_ns"][0] if first is None else first
            last = table["t_mono_ns"][-1]
        return None if first is None or last is None else (int(first), int(last))


def read(folder: Path, raw: bool, changed: Collection[str], problems: list[str]) -> list[Recording]:
    """All folders that can be read, those of one meter in the order of recording.

    With `raw`, or where the decoded samples are among the `changed` files, from the raw bytes.
    """
    root = folder / "meters"
    found = []
    for path in sorted(p for p in root.iterdir() if p.is_dir()) if root.is_dir() else []:
        described = optional(path / "meter.json", problems)
        if not described:
            problems.append(f"Meter {path.name} has no readable meter.json: it is left out.")
            continue
        name, number = _place(path.name, described)
        doubtful = f"meters/{path.name}/samples.parquet" in changed
        what = "raw" if raw else "doubtful" if doubtful else ""
        found.append(
            Recording(
                name=name,
                number=number,
                boot=str(described.get("controller_boot_id") or ""),
                started_wall=str(described.get("started_wall") or ""),
                described=described,
                samples=_samples(path, _channels(described), what, problems),
            )
        )
    return sorted(found, key=lambda one: (one.name, one.number))


def meters(
    recordings: Sequence[Recording], shift_ns: Mapping[str, int], problems: list[str]
) -> Iterator[Meter]:
    """The recordings of one name as one meter, its times moved by the shifts of their boots."""
    by_name: dict[str, list[Recording]] = {}
    for recording in recordings:
        by_name.setdefault(recording.name, []).append(recording)
    for name, parts in by_name.items():
        first, alike = parts[0].described, []
        for part in parts:
            other = [key for key in ALIKE if part.described.get(key) != first.get(key)]
            if other:
                problems.append(
                    f"Meter {name} was set up otherwise after the controller had started again "
                    f"({', '.join(other)}): recording {part.number} is left out."
                )
            else:
                alike.append((part.samples, shift_ns.get(part.boot, 0)))
        accuracy = first.get("accuracy")
        limit_s = first.get("arrival_delay_limit_s")
        yield Meter(
            name=name,
            kind=str(first.get("kind", "")),
            origin=str(first.get("origin", "modelled")),
            own_names=tuple(_named(first)),
            channels=_channels(first),
            accuracy=accuracy if isinstance(accuracy, dict) else {},
            # Without a word on its timing nothing but the arrival of a record can be relied on.
            timing=str(first.get("timing", "poll")),
            arrival_delay_limit_s=float(limit_s) if isinstance(limit_s, int | float) else 0.0,
            samples=chained(alike),
        )


def _place(folder_name: str, described: Mapping[str, Any]) -> tuple[str, int]:
    """The meter's name and the recording's number, from 1: `name.2` is the second of `name`.

    meter.json has the last word on the name, so that a meter called `a.2` is not a part of `a`.
    """
    name = str(described.get("name") or folder_name)
    numbered = re.fullmatch(re.escape(name) + r"\.(\d+)", folder_name)
    if numbered:
        return name, int(numbered[1])
    # A folder that bears another name is what it was copied or renamed to.
    return (name, 1) if folder_name == name else (folder_name, 1)


def _named(described: Mapping[str, Any]) -> dict[str, str]:
    """Channels by the meter's own names; each once."""
    given = described.get("channels")
    found = {str(v): str(k) for k, v in reversed(given.items())} if isinstance(given, dict) else {}
    return {own: channel for channel, own in reversed(found.items())}


def _channels(described: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(_named(described).values())


def _samples(path: Path, channels: Sequence[str], what: str, problems: list[str]) -> Samples:
    """The records of a meter's folder: as they were decoded, or from the raw bytes where these are
    asked for, or where the decoded ones are not what was sealed or cannot be read.
    """
    decoded = path / "samples.parquet"
    there = decoded.exists() and what != "raw"
    if there and not what:
        try:
            return of_file(decoded, channels)
        except SamplesError as error:
            problems.append(f"{decoded.name} of meter {path.name} cannot be read ({error}).")
    try:
        found = of_recording(path)
    except decode.DecodeError as error:
        problems.append(f"Meter {path.name} cannot be decoded: {error}")
        return NOTHING
    if there:
        problems.append(f"The raw bytes of meter {path.name} were decoded anew instead.")
    return found
