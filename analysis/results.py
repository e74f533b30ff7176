"""A suite and all that is derived from it, and the derived files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from analysis.align import TargetClock
from analysis.energy import energy_table
from analysis.origin import joint
from analysis.records import Suite
from analysis.suite_folder import read
from analysis.summary import summarise
from analysis.watermarks import WatermarkTrust, disagreements, watermarks


@dataclass(frozen=True)
class Results:
    """The energy table and the summary of a suite (columns: data/README.md)."""

    suite: Suite
    clock: TargetClock
    energy: pl.DataFrame
    summary: pl.DataFrame
    watermarks: tuple[WatermarkTrust, ...]

    @property
    def origin(self) -> str:
        """The worst that any figure is, or would be: what the report must say at its top."""
        return joint([*self.energy["origin"].unique(), str(self.suite.plan.get("origin", ""))])


def results(folder: Path, raw: bool = False) -> Results:
    """Read a suite and derive its tables; with `raw` from raw bytes. Raises SuiteError."""
    suite = read(folder, raw)
    clock = TargetClock.fit(suite.clock)
    marks = tuple(watermarks(suite, clock))
    suite = replace(suite, problems=(*suite.problems, *disagreements(marks)))
    energy = energy_table(suite, clock)
    return Results(suite, clock, energy, summarise(suite, energy), marks)


def write(found: Results) -> None:
    """energy.parquet, summary.parquet and summary.csv; each appears whole or not at all."""
    folder = found.suite.folder
    for name, frame in (("energy.parquet", found.energy), ("summary.parquet", found.summary)):
        temporary = folder / f".{name}.part"
        frame.write_parquet(temporary)
        temporary.replace(folder / name)
    temporary = folder / ".summary.csv.part"
    found.summary.write_csv(temporary)
    temporary.replace(folder / "summary.csv")
