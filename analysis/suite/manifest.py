"""Check that a suite is as it was sealed: sums, the journal's closing lines, derived tables."""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from contract import derived, documents, names, schema, strict_json
from contract import journal as journals
from contract.attempts import Attempt, History
from contract.files import for_polars, sha256_of
from contract.journal import CLOSED, PRECONDITIONED, TERMINAL, Entry
from contract.suite_files import SEALED, SEALED_FOLDERS

MANIFEST = "manifest.json"
HASHING = 2  # files at once


@dataclass(frozen=True)
class Seal:
    """The result of checking a seal: the number of sums checked, and problems as sentences."""

    sealed: bool
    files: int
    problems: tuple[str, ...]


def check(folder: Path) -> Seal:
    """Compare every sealed file with its sum, and find files that were added."""
    path = folder / MANIFEST
    if not path.exists():
        return Seal(False, 0, ("The suite was never sealed: it has no manifest.json.",))
    try:
        document = strict_json.loads(path.read_text(encoding="utf-8"))
        sums = schema.read(documents.ManifestDocument, document).files
    except (OSError, ValueError):
        return Seal(False, 0, ("manifest.json cannot be read: nothing proves the files.",))
    root = folder.resolve()
    with ThreadPoolExecutor(HASHING) as pool:  # hashing lets other threads run
        compared = pool.map(lambda item: _compare(root, *item), sorted(sums.items()))
        changed = [problem for problem in compared if problem]
    measured: list[Path] = []  # derived and hidden files may come and go
    for path in (folder / name for name in (*SEALED, *SEALED_FOLDERS)):
        measured += path.rglob("*") if path.is_dir() else [path]
    names_found = {str(path.relative_to(folder)) for path in measured if path.is_file()}
    added = [f"{name} was added after sealing." for name in sorted(names_found - sums.keys())]
    return Seal(True, len(sums), (*changed, *added))


def _compare(root: Path, name: str, digest: str) -> str | None:
    path = root / name
    try:
        inside, exists = path.resolve().is_relative_to(root), path.is_file()
    except (OSError, ValueError):  # too long, or with a zero byte
        return "The manifest names a file by a name that no file can have."
    if not inside:
        return f"The manifest names {name}, which lies outside the suite."
    if not exists:
        return f"{name} is missing: it was there when the suite was sealed."
    return None if sha256_of(path) == digest else f"{name} was changed after sealing."


@dataclass(frozen=True)
class Findings:
    """Statements that were confirmed, and problems, both as sentences."""

    confirmed: tuple[str, ...]
    problems: tuple[str, ...]


def check_journal(folder: Path, counted: Collection[str]) -> Findings:
    """Check that the journal is consistent, and that the folder has the files that it closed.

    The runs that are `counted` must be among them.
    """
    entries, unreadable = journals.readable(folder / "journal.jsonl")
    history = History(entries)
    problems = [*_order(entries, unreadable), *_missing(folder, history)]
    steady = [entry.facts for entry in entries if entry.state == PRECONDITIONED]
    for role, sha256 in {facts.get("disk"): facts.get("sha256") for facts in steady}.items():
        path = folder / "precondition" / f"{role}.json"
        if sha256 != (_sum_of(path) if names.safe(role) else ""):
            problems.append(f"precondition/{role}.json is not the one that the journal closed.")
    last = {attempt.run_id: attempt for attempt in history.latest}
    finished = {run_id for run_id, run in last.items() if run.state == "finished"}
    for run_id in sorted({*counted, *finished}):
        run = last.get(run_id)
        if run is None or run.state != "finished":
            state = run.state if run else "no state at all"
            problems.append(f"Run {run_id} is counted, but the journal leaves it at {state}.")
        elif names.safe(run_id):
            problems += _run(folder / "runs" / run_id, run)
        else:
            problems.append(f"The journal closed a run by a name that none has: {run_id!r}.")
    if problems or not finished:
        return Findings((), tuple(problems))
    sentence = (
        f"{len(finished)} finished runs have the sums that the journal closed them with, each in "
        "one boot of the target."
    )
    return Findings((sentence,), ())


def _order(entries: Sequence[Entry], unreadable: int) -> Iterator[str]:
    """Yield signs of a cut or reordered journal: its numbers, its times and its last line."""
    if unreadable:
        yield f"{unreadable} lines of journal.jsonl cannot be read."
    if [entry.seq for entry in entries] != list(range(len(entries))):
        yield "The lines of journal.jsonl are not numbered one by one: it was cut or reordered."
    boots = [boot_id for boot_id, _ in groupby(entry.boot_id for entry in entries)]
    backwards = any(
        a.boot_id == b.boot_id and a.t_mono_ns > b.t_mono_ns for a, b in pairwise(entries)
    )
    if backwards or len(set(boots)) < len(boots):
        yield "The times in journal.jsonl run backwards: it was reordered."
    if not entries or entries[-1].state not in TERMINAL:
        yield (
            "journal.jsonl has no closing line: it was cut, or the suite never came to its end. "
            "Nothing in the folder shows which."
        )


_VOID = re.compile(r"\.void-\d+")


def _missing(folder: Path, history: History) -> Iterator[str]:
    """Yield attempts in the folder that the journal lacks."""
    tries = [path.name for path in (folder / "runs").glob("*") if path.is_dir()]
    for run_id, tries_of_run in groupby(sorted(tries), lambda name: _VOID.sub("", name)):
        aside = [name for name in tries_of_run if name != run_id]
        attempts = history.account(run_id).attempts
        voids = sum(attempt.void is not None for attempt in attempts)
        if not attempts:
            yield f"The journal does not name runs/{run_id}: it was cut."
        elif len(aside) > voids:
            yield f"{run_id} has {len(aside)} void tries, the journal has {voids}."
        elif (state := attempts[-1].state) not in CLOSED:
            document = strict_json.load(_Closed, folder / "runs" / run_id / "run.json")
            if document is not None and document.status == "finished":
                yield f"Run {run_id} finished, but the journal leaves it at {state}: it was cut."


@dataclass(frozen=True)
class _Closed:
    """The part of run.json on its own run and files; a run in any state may have it."""

    status: str = ""
    boot_id: str = ""
    t_start_ns: int | None = None
    t_end_ns: int | None = None
    rapl_sha256: str | None = None
    kept: Mapping[str, str] | None = None


def _run(folder: Path, run: Attempt) -> Iterator[str]:
    """Compare run.json with the sum that the journal has, and what it names with its sums."""
    name = folder.name
    try:
        data = (folder / "run.json").read_bytes()
        document = strict_json.parse(_Closed, data)
    except (OSError, ValueError):
        yield f"Run {name} finished, but its run.json cannot be read."
        return
    lines = run.since_running
    if lines[-1].facts.get("sha256") != hashlib.sha256(data).hexdigest():
        yield f"run.json of {name} is not the one that the journal closed."
    if (document.rapl_sha256 or "") != _sum_of(folder / "rapl.jsonl"):
        yield f"rapl.jsonl of {name} is not the one that its run.json names."
    files = [path for path in (folder / "kept").rglob("*") if path.is_file()]
    sums = {path.relative_to(folder / "kept").as_posix(): _sum_of(path) for path in files}
    if document.kept not in (None, sums):
        yield f"The files in kept of {name} are not those that its run.json names."
    if len({*(line.boot_id for line in lines), document.boot_id}) > 1:
        yield f"Run {name} did not begin and finish in one boot of the target."
    times_ns = [t for t in (document.t_start_ns, document.t_end_ns) if t is not None]
    if any(not lines[0].t_mono_ns <= t <= lines[-1].t_mono_ns for t in times_ns):
        yield f"Run {name} was not measured between its lines in the journal."


def _sum_of(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError:
        return ""


ANALYSIS = Path(__file__).parents[1]
NAMED = 60  # characters shown of a maker
SEAL, CODE = "fde.seal", "fde.code"
# Metadata of a table on all else that its figures depend on, and what to call a difference.
MAKERS = {
    "fde.analysis": "other code",
    "fde.packages": "other packages",
    "fde.processor": "another kind of processor",
}
PACKAGES = ("numpy", "polars", "scipy")


def metadata(folder: Path) -> dict[str, str]:
    """Return the metadata of a table that is derived from the suite in `folder` now."""
    return {SEAL: seal(folder), CODE: code(), **maker()}


@cache
def maker() -> dict[str, str]:
    """Return the values of `MAKERS` here: sum of the code, packages, processor's instructions."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    vectors: Any = np.show_config(mode="dicts")
    kind = [platform.machine(), *vectors["SIMD Extensions"].get("found", ())[-1:]]
    return dict(zip(MAKERS, (_sum_of_code(ANALYSIS)[:12], versions, " ".join(kind)), strict=True))


def maker_differences(table: Path) -> str:
    """Return a clause on how the maker of a derived table differs from this one, or nothing.

    Raises OSError or PolarsError.
    """
    makers, this_maker = pl.read_parquet_metadata(for_polars(table)), maker()
    if not makers.keys() & MAKERS.keys():
        return "code, packages and processor that it does not name"
    return " and ".join(
        f"{words} ({makers.get(key, '')[:NAMED]}, here {this_maker[key]})"
        for key, words in MAKERS.items()
        if makers.get(key) != this_maker[key]
    )


def source(folder: Path) -> str:
    """Return the sums of the seal and the code that tables are made from; empty without a seal."""
    return f"{seal(folder)} {code()}" if seal(folder) else ""


def is_current(path: Path) -> bool:
    """Return whether a derived file was made here from the suite's seal, by this code."""
    return derived.is_ours(path.parent, path.name, source(path.parent))


def seal(folder: Path) -> str:
    """Return the sum of the manifest; empty without one, so that no table is up to date."""
    try:
        return hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
    except OSError:
        return ""


@cache
def code() -> str:
    """Return the sum over the modules of `analysis.suite`, `analysis.energy`, `instrumentation`."""
    instrumentation = ANALYSIS.parent / "instrumentation"
    return _sum_of_code(ANALYSIS / "suite", ANALYSIS / "energy", instrumentation)


def _sum_of_code(*rooms: Path) -> str:
    sources = [path for room in rooms for path in room.rglob("*.py")]
    digest = hashlib.sha256()
    for path in sorted(path for path in sources if "tests" not in path.parts):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
