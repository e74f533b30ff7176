"""A suite and all that is derived from it, and the derived files."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from analysis.energy.energy import energy_table
from analysis.energy.watermarks import WatermarkTrust, disagreements, watermarks
from analysis.stats.canary import Canary, canary
from analysis.stats.comparisons import Answer, comparisons
from analysis.stats.contrasts import Contrast, contrasts
from analysis.stats.disk_condition import Condition, conditions, findings
from analysis.stats.doubts import doubts
from analysis.stats.planning import next_suite
from analysis.stats.summary import summarise
from analysis.suite import currency
from analysis.suite.align import TargetClock
from analysis.suite.nights import Night, night
from analysis.suite.origin import joint
from analysis.suite.records import Suite
from analysis.suite.samples import SamplesError
from analysis.suite.suite_folder import read
from contract import files


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

    @cached_property
    def contrasts(self) -> tuple[Contrast, ...]:
        """Configurations over all working workloads at once, the declared ones first."""
        return tuple(contrasts(self.suite, self.energy))

    @cached_property
    def answers(self) -> tuple[Answer, ...]:
        """The declared comparisons within a configuration."""
        return tuple(comparisons(self.suite, self.energy))

    @cached_property
    def night(self) -> Night:
        """What broke into the suite."""
        return night(self.suite)

    @cached_property
    def canary(self) -> Canary | None:
        """First against last run of the canary."""
        return canary(self.suite, self.energy, self.clock)

    @cached_property
    def disks(self) -> list[Condition]:
        """What the disk under each configuration told of itself."""
        return conditions(self.suite)

    @property
    def doubts(self) -> list[str]:
        """What the suite went through that its figures bear, as sentences; empty where nothing."""
        of_disks = findings(self.suite, self.disks)
        return [*doubts(self.suite, self.energy, self.canary), *of_disks]

    @cached_property
    def next_suite(self) -> dict[str, Any]:
        """How many more blocks the precision takes that the plan asks for (`fde-next/1`)."""
        return next_suite(self.suite, self.contrasts)


def results(folder: Path, raw: bool = False) -> Results:
    """Read a suite and derive its tables; with `raw` from raw bytes. Raises SuiteError."""
    suite, clock, energy = reckoned(folder, raw)
    marks = tuple(watermarks(suite, clock))
    suite = replace(suite, problems=(*suite.problems, *disagreements(marks)))
    return Results(suite, clock, energy, summarise(suite, energy), marks)


def reckoned(folder: Path, raw: bool = False) -> tuple[Suite, TargetClock, pl.DataFrame]:
    """A suite, its target's clock and its joules. Raises SuiteError.

    Where decoded samples turn out to be damaged only while they are read, the raw bytes stand in.
    """
    suite = read(folder, raw)
    clock = TargetClock.fit(suite.clock)
    try:
        return suite, clock, energy_table(suite, clock)
    except SamplesError as error:
        suite = read(folder, raw=True)
        told = f"{error}: the joules were made from the raw bytes instead."
        suite = replace(suite, problems=(*suite.problems, told))
        return suite, clock, energy_table(suite, clock)


def write(found: Results) -> None:
    """energy.parquet, summary.parquet, summary.csv, next.json; each whole or not at all."""
    folder = found.suite.folder
    says = currency.metadata(folder)
    for name, frame in (("energy.parquet", found.energy), ("summary.parquet", found.summary)):
        held = io.BytesIO()
        frame.write_parquet(held, metadata=says)
        files.write(folder / name, [held.getvalue()])
    files.write(folder / "summary.csv", [found.summary.write_csv().encode()])
    document = json.dumps(found.next_suite, indent=1, ensure_ascii=False)
    files.write(folder / "next.json", [f"{document}\n".encode()])
