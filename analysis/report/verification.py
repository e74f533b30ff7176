"""Verify that a suite is as it was sealed, and that its tables follow from the raw data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl
import polars.selectors as cs

from analysis.money import budgets
from analysis.published.tables import csv_tables
from analysis.spreadsheet import csv_bytes
from analysis.stats.alike import (
    ROUNDING,
    column_distances,
    csv_distance,
    read_table,
    table_distance,
)
from analysis.stats.results import Results, csv_files, results
from analysis.suite import manifest, samples
from analysis.suite.bundle import ABOUT
from analysis.suite.manifest import MANIFEST, Findings, check_journal
from analysis.suite.samples import SamplesError
from contract.packed import SUMS
from contract.suite_files import DERIVED, is_known, is_sealed
from instrumentation.decode import DecodeError


def verify(folder: Path, skipped: Sequence[str] = ()) -> Findings:
    """Check the sums of the seal and of the journal; compare samples and tables with raw bytes.

    `skipped` are the members of a bundle that were not unpacked into `folder`. Figures that differ
    by no more than `ROUNDING` are equal; differences between this machine and theirs are listed,
    and each unproven file is named. Raises SuiteError.
    """
    again, seal = results(folder, raw=True), manifest.check(folder)
    closed = check_journal(folder, {run.run_id for run in again.suite.runs})
    tables, files = _tables(folder, again), _files(folder, skipped)
    sums = f"{seal.files} files have the sums of their seal."
    confirmed = [sums] * (not seal.problems) + [*closed.confirmed]
    problems = [*seal.problems]
    if not again.suite.frozen:
        problems.append("plan.json is not what was frozen: its own sum does not match.")
    problems += [*closed.problems, *_other_samples(folder), *tables.problems, *files.problems]
    return Findings((*confirmed, *tables.confirmed, *files.confirmed), tuple(problems))


def _tables(folder: Path, again: Results) -> Findings:
    """Compare every derived table with the one from the raw data."""
    budget = budgets.table(again)
    derived: dict[str, pl.DataFrame | bytes] = {
        "energy.parquet": again.all_energy,
        "summary.parquet": again.summary,
        **csv_files(again),
        "budget.csv": csv_bytes(budget),
        **csv_tables(again),
    }
    kind = "bundle" if (folder / ABOUT).is_file() else "suite"
    stored = [name for name in DERIVED if (folder / name).exists()]
    if "energy.parquet" not in stored:
        return Findings((), ("There is no energy.parquet to compare: make the report first.",))
    distances = {name: _distance(folder / name, derived[name]) for name in stored}
    try:
        unlike = manifest.maker_differences(folder / "energy.parquet")
    except (OSError, pl.exceptions.PolarsError):  # which is a problem already
        unlike = ""
    if changed := [name for name, distance in distances.items() if distance > ROUNDING]:
        ours = "by the same code and packages, on the same kind of processor: they were changed"
        cause = f"with {unlike}" if unlike else ours
        sentence = (
            f"{', '.join(changed)} {'is' if len(changed) == 1 else 'are'} not what the raw data "
            f"give here. The {kind}'s tables were made {cause}."
        )
        return Findings((), (sentence,))
    figures = sum(
        frame.select(pl.col(pl.Float64).count()).sum_horizontal().sum()
        for frame in (again.all_energy, again.summary, budget)
    )
    how = "bit for bit"
    if rounded := [name for name, distance in distances.items() if distance]:
        how += (
            f" but for rounding in {' and '.join(rounded)}, by {max(distances.values()):.0e} of a "
        )
        how += "figure at most" + f": with {unlike}" * bool(unlike)
    return Findings((f"{figures} figures in {len(stored)} tables were made again, {how}.",), ())


def _distance(path: Path, derived: pl.DataFrame | bytes) -> float:
    """Return how far a stored table is from the one derived here (`alike.table_distance`)."""
    try:
        if isinstance(derived, bytes):
            return csv_distance(path.read_bytes(), derived)
        return table_distance(read_table(path, derived), derived)
    except (OSError, ValueError, pl.exceptions.PolarsError):
        return math.inf


def _files(folder: Path, skipped: Sequence[str]) -> Findings:
    """Name the files whose contents are unproven, and those that no suite has."""
    names = [f.relative_to(folder).as_posix() for f in folder.rglob("*") if f.is_file()]
    members = [name.partition("/")[2] or name for name in skipped]
    sums = {SUMS} if (folder / ABOUT).is_file() else set()  # if tar unpacked it
    strange = [name for name in names if not is_known(name) and name not in sums]
    strange += [name for name in members if is_sealed(name) or not is_known(name)]
    problems = [f"{name} is no file of a suite: its contents are unknown." for name in strange]
    # The seal, the raw data or this program proves the others.
    proven = (*DERIVED, ABOUT, MANIFEST)
    unproven = {
        name
        for name in (*names, *members)
        if is_known(name) and not is_sealed(name) and name not in proven
    }
    if not unproven:
        return Findings((), tuple(problems))
    folders = sorted({f"{name.partition('/')[0]}/" for name in unproven if "/" in name})
    listed = ", ".join([*sorted(name for name in unproven if "/" not in name), *folders])
    return Findings((f"Not proven, and no figure rests on it: {listed}.",), tuple(problems))


def _other_samples(folder: Path) -> Iterator[str]:
    """Yield decoded samples that do not follow from their raw bytes."""
    for path in sorted((folder / "meters").glob("*/samples.parquet")):
        name = path.relative_to(folder)
        try:
            decoded = samples.of_recording(path.parent)
            if difference := _sample_difference(samples.of_file(path, ()), decoded):
                yield f"{name} does not follow from the raw bytes: {difference}."
        except (SamplesError, DecodeError) as error:
            yield f"{name} cannot be compared with its raw bytes: {error}."


def _sample_difference(stored: samples.Samples, decoded: samples.Samples) -> str:
    if (stored.columns, stored.records) != (decoded.columns, decoded.records):
        return "it has other columns or another number of records"
    tables = zip(stored.tables(stored.columns), decoded.tables(decoded.columns), strict=True)
    texts = cs.categorical().cast(pl.String)
    for pair in tables:
        distances = column_distances(*(table.with_columns(texts) for table in pair))
        if name := next((name for name, distance in distances if distance > ROUNDING), ""):
            return f"{name} differs"
    return ""
