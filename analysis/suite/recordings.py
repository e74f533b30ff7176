"""A suite's meters: each boot of the controller has recorded them into separate folders."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from analysis.suite import samples
from analysis.suite.documents import read_document
from analysis.suite.records import Meter
from contract import derived
from contract.documents import MeterDocument
from instrumentation import decode
from instrumentation.accuracy import read_terms

# Settings that must be equal in all folders of a meter, so that its records form one series.
ALIKE = ("kind", "channels", "origin", "timing", "arrival_delay_limit_s", "accuracy")


@dataclass(frozen=True)
class Recording:
    """One folder below `meters/`.

    Its times are on the controller's clock in that `boot`; empty if meter.json lacks it.
    """

    name: str
    number: int
    boot: str
    started_wall: str
    described: MeterDocument
    samples: samples.Samples

    @cached_property
    def span_ns(self) -> tuple[int, int] | None:
        """Arrival of the first and of the last record; None without any."""
        first = last = None
        for table in self.samples.tables(["t_mono_ns"]):
            first = table["t_mono_ns"][0] if first is None else first
            last = table["t_mono_ns"][-1]
        return None if first is None or last is None else (int(first), int(last))


def read(folder: Path, raw: bool, problems: list[str]) -> list[Recording]:
    """Read all readable recordings, those of one meter in order of time.

    Samples come from the raw bytes with `raw`, or if they were not decoded here.
    """
    root = folder / "meters"
    source = derived.plan_sum(folder)
    recorded = []
    for path in sorted(p for p in root.iterdir() if p.is_dir()) if root.is_dir() else []:
        described = read_document(MeterDocument, path / "meter.json", problems)
        if described is None:
            problems.append(f"Meter {path.name} has no readable meter.json: it is left out.")
            continue
        # `a.2` is the second recording of `a`. The name in meter.json decides, so that a meter
        # called `a.2` is not a part of `a`; a folder of another name was copied or renamed.
        numbered = re.fullmatch(re.escape(described.name) + r"\.(\d+)", path.name)
        name, number = (described.name, int(numbered[1])) if numbered else (path.name, 1)
        decoded = f"meters/{path.name}/samples.parquet"
        is_ours = not raw and derived.is_ours(folder, decoded, source)
        recorded.append(
            Recording(
                name=name,
                number=number,
                boot=described.controller_boot_id or "",
                started_wall=described.started_wall or "",
                described=described,
                samples=_samples(path, tuple(_named(described).values()), is_ours, problems),
            )
        )
    return sorted(recorded, key=lambda recording: (recording.name, recording.number))


def meters(
    recordings: Sequence[Recording], shift_ns: Mapping[str, int], problems: list[str]
) -> Iterator[Meter]:
    """Join the recordings of each meter, moved by the shifts of their boots."""
    by_name: dict[str, list[Recording]] = {}
    for recording in recordings:
        by_name.setdefault(recording.name, []).append(recording)
    for name, parts in by_name.items():
        first, alike = parts[0].described, []
        for part in parts:
            changed = [k for k in ALIKE if getattr(part.described, k) != getattr(first, k)]
            if changed:
                problems.append(
                    f"Meter {name} was set up otherwise after the controller had started again "
                    f"({', '.join(changed)}): recording {part.number} is left out."
                )
            else:
                alike.append((part.samples, shift_ns.get(part.boot, 0)))
        yield Meter(
            name=name,
            kind=first.kind,
            origin=first.origin,
            own_names=tuple(_named(first)),
            channels=tuple(_named(first).values()),
            terms=read_terms(first.accuracy),
            timing=first.timing,
            arrival_delay_limit_s=first.arrival_delay_limit_s,
            samples=samples.chain(alike),
        )


def _named(described: MeterDocument) -> dict[str, str]:
    """Return the channels by the meter's own names, each channel once."""
    own_names = {
        channel: own_name for own_name, channel in reversed(list(described.channels.items()))
    }
    return {own_name: channel for channel, own_name in reversed(own_names.items())}


def _samples(
    path: Path, channels: Sequence[str], is_ours: bool, problems: list[str]
) -> samples.Samples:
    """Return the records of a meter's folder: as decoded here, else from the raw bytes."""
    if is_ours:
        with suppress(samples.SamplesError):  # meter.json names other channels by now
            return samples.of_file(path / "samples.parquet", channels)
    try:
        return samples.of_recording(path)
    except decode.DecodeError as error:
        problems.append(f"Meter {path.name} cannot be decoded: {error}")
        return samples.NOTHING
