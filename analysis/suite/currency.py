"""Whether the tables beside a suite are what would be derived from it now.

Their Parquet metadata name the seal they were made from (SHA-256 of manifest.json) and the code
that made them (SHA-256 over the sources that turn bytes into joules). Whether the files still have
the sums of that seal is `verify`'s question.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import polars as pl

from analysis.suite.manifest import MANIFEST

ANALYSIS = Path(__file__).parents[1]
SEAL, CODE = "fde.seal", "fde.code"


def metadata(folder: Path) -> dict[str, str]:
    """What a table says of itself that is derived from the suite in `folder` now."""
    return {SEAL: seal(folder), CODE: code()}


def current(table: Path) -> bool:
    """Whether a derived Parquet file in a suite's folder is up to date; False where it is none."""
    wanted = metadata(table.parent)
    if not wanted[SEAL]:
        return False
    try:
        found = pl.read_parquet_metadata(table)
    except (OSError, pl.exceptions.PolarsError):
        return False
    return all(found.get(key) == value for key, value in wanted.items())


def seal(folder: Path) -> str:
    """Sum of the seal; empty where there is none, so that nothing is up to date."""
    try:
        return hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
    except OSError:
        return ""


@cache
def code() -> str:
    """Sum over the modules of `analysis.suite`, `analysis.energy` and `instrumentation`."""
    rooms = (ANALYSIS / "suite", ANALYSIS / "energy", ANALYSIS.parent / "instrumentation")
    sources = [path for room in rooms for path in room.rglob("*.py")]
    whole = hashlib.sha256()
    for path in sorted(path for path in sources if "tests" not in path.parts):
        whole.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return whole.hexdigest()
