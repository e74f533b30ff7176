"""The joules of one or more suites as one table, for questions that no report answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from analysis.stats.results import reckoned
from analysis.suite import currency
from analysis.suite.records import SuiteError
from analysis.suite.suite_folder import PLAN

_MAGIC = re.compile(r"[*?[]")


def load(*folders: str | Path) -> pl.DataFrame:
    """A row a run × phase × component of all suites (columns: data/README.md, energy.parquet).

    A text with `*`, `?` or `[` is a pattern; what matches it and is no suite is passed over. A
    suite's energy.parquet is taken where it was derived by this code from the folder's seal as it
    stands; else the joules are derived anew, and nothing is written. The sums of the sealed files
    are not compared: that is what `make verify` is for. Raises SuiteError for a folder that is no
    suite, a pattern that matches none, and a suite that is named twice.
    """
    found = [folder for name in folders for folder in _matched(name)]
    if not found:
        raise SuiteError('No suite is named: load("data/suites/*") takes all there are.')
    tables = [energy_of(folder) for folder in dict.fromkeys(found)]
    ids = [table["suite_id"][0] for table in tables if len(table)]
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice is not None:
        raise SuiteError(f"Suite {twice} stands in two of these folders: name one of them.")
    return pl.concat(tables)


def _matched(name: str | Path) -> Iterator[Path]:
    """The suite folders that a name or a pattern stands for, in order of their names."""
    path = Path(name)
    if path.is_dir() or not _MAGIC.search(str(name)):
        yield path.resolve()
        return
    matching = sorted(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor))))
    found = [folder.resolve() for folder in matching if (folder / PLAN).exists()]
    if not found:
        raise SuiteError(f"No suite matches {name}.")
    yield from found


def energy_of(folder: Path) -> pl.DataFrame:
    """A suite's energy table, as it stands in the folder or derived. Raises SuiteError."""
    table = folder / "energy.parquet"
    if currency.current(table):
        try:
            return pl.read_parquet(table)
        except (OSError, pl.exceptions.PolarsError):
            pass  # damaged behind its metadata
    return reckoned(folder)[2]
