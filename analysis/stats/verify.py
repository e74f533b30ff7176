"""Whether a suite is what was sealed, and whether its figures follow from its raw bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from analysis.energy.energy import ENERGY_SCHEMA
from analysis.stats.results import results
from analysis.suite import manifest
from analysis.suite.trail import trail

RELATIVE = 1e-12  # the same code on the same bytes; only the order of summing may differ
ABSOLUTE = 1e-12


@dataclass(frozen=True)
class Outcome:
    """What was found to be well, and what was not; both as sentences."""

    said: tuple[str, ...]
    problems: tuple[str, ...]


def verify(folder: Path) -> Outcome:
    """Check the sums of the seal and of the journal; compare energy.parquet with what raw bytes
    give. Raises SuiteError."""
    again = results(folder, raw=True)
    seal = manifest.check(folder)
    said = [f"{seal.files} files have the sums of their seal."] if not seal.problems else []
    problems = list(seal.problems)
    closed = trail(folder, {run.run_id for run in again.suite.runs})
    said += closed.said
    problems += closed.problems
    path = folder / "energy.parquet"
    if not path.exists():
        problems.append("There is no energy.parquet to compare: make the report first.")
        return Outcome(tuple(said), tuple(problems))
    try:
        kept = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError):
        problems.append("energy.parquet cannot be read: make the report again.")
        return Outcome(tuple(said), tuple(problems))
    difference = differences(kept, again.energy)
    if difference:
        problems.append(f"energy.parquet does not follow from the raw bytes: {difference}.")
    else:
        said.append(f"{len(kept)} rows of energy.parquet were made again from the raw bytes.")
    return Outcome(tuple(said), tuple(problems))


def differences(kept: pl.DataFrame, made: pl.DataFrame) -> str:
    """Where two energy tables differ, as a clause; empty if they do not."""
    if kept.columns != made.columns or kept.schema != made.schema:
        return "its columns are others"
    keys = ["run_id", "phase", "source", "component"]
    kept, made = kept.sort(keys), made.sort(keys)
    if len(kept) != len(made) or not kept.select(keys).equals(made.select(keys)):
        return f"it has {len(kept)} rows, the raw bytes give {len(made)}, or they name other runs"
    for column, kind in ENERGY_SCHEMA.items():
        if kind == pl.Float64():
            a, b = kept[column], made[column]
            unlike = (a - b).abs() > ABSOLUTE + RELATIVE * b.abs()
            if (a.is_null() != b.is_null()).any() or unlike.fill_null(False).any():
                return f"{column} differs"
        elif not kept[column].equals(made[column]):
            return f"{column} differs"
    return ""
