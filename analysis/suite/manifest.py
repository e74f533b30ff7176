"""Whether a suite is what was sealed: sums, the journal's closing lines, derived tables."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from contract import documents, schema, strict_json
from contract import journal as journals
from contract.files import sha256_of
from contract.journal import Fact

MANIFEST = "manifest.json"
HASHING = 2  # files at once
MEASURED = (
    "plan.json",
    "journal.jsonl",
    "watermark.jsonl",
    "clock.jsonl",
    "runs",
    "meters",
    "provenance",
)


@dataclass(frozen=True)
class Seal:
    """`files` counts the sums that were checked; `problems` are sentences, empty if all is well.

    `changed` names the files that are not what was sealed.
    """

    sealed: bool
    files: int
    problems: tuple[str, ...]
    changed: frozenset[str] = frozenset()


def canonical_sha256(document: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of all keys but `sha256` (sorted, no spaces, UTF-8)."""
    rest = {key: value for key, value in document.items() if key != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def check(folder: Path) -> Seal:
    """Compare every file with its sum."""
    path = folder / MANIFEST
    if not path.exists():
        return Seal(False, 0, ("The suite was never sealed: it has no manifest.json.",))
    try:
        document = strict_json.loads(path.read_text(encoding="utf-8"))
        wanted = schema.read(documents.ManifestDocument, document).files
    except (OSError, ValueError):
        return Seal(False, 0, ("manifest.json cannot be read: nothing proves the files.",))
    root = folder.resolve()
    with ThreadPoolExecutor(HASHING) as pool:  # hashing lets other threads run
        found = pool.map(lambda item: _compare(root, *item), sorted(wanted.items()))
        changed = {name: said for name, said in zip(sorted(wanted), found, strict=True) if said}
    added = [f"{name} was added after sealing." for name in _strangers(folder, set(wanted))]
    return Seal(True, len(wanted), (*changed.values(), *added), frozenset(changed))


def _compare(root: Path, name: str, digest: str) -> str | None:
    path = root / name
    try:
        inside, there = path.resolve().is_relative_to(root), path.is_file()
    except (OSError, ValueError):  # too long, or with a zero byte
        return "The manifest names a file by a name that no file can have."
    if not inside:
        return f"The manifest names {name}, which lies outside the suite."
    if not there:
        return f"{name} is missing: it was there when the suite was sealed."
    return None if sha256_of(path) == digest else f"{name} was changed after sealing."


def _strangers(folder: Path, known: set[str]) -> list[str]:
    """Measured files that no sum covers; derived files and hidden ones are free to come and go."""
    found = []
    for top in MEASURED:
        path = folder / top
        files = path.rglob("*") if path.is_dir() else [path] if path.exists() else []
        found += [str(f.relative_to(folder)) for f in files if f.is_file()]
    return sorted(name for name in found if name not in known)


@dataclass
class _Last:
    """A run as the journal left it: its last state, and of its last try the boots of its lines."""

    state: str = ""
    sha256: Fact | None = None
    boots: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True)
class Findings:
    """What was found to be well, and what was not; both as sentences."""

    said: tuple[str, ...]
    problems: tuple[str, ...]


def trail(folder: Path, counted: Collection[str]) -> Findings:
    """Hold the runs that are `counted` as finished against journal, run.json and rapl.jsonl."""
    last = _last(folder)
    problems: list[str] = []
    for run_id in sorted(counted):
        run = last.get(run_id, _Last())
        if run.state != "finished":
            state = run.state or "no state at all"
            problems.append(f"Run {run_id} is counted, but the journal leaves it at {state}.")
            continue
        document = _run(folder / "runs" / run_id, run, problems)
        if len({*run.boots, str(document.get("boot_id"))}) > 1:
            problems.append(f"Run {run_id} did not begin and finish in one boot of the target.")
    if problems or not counted:
        return Findings((), tuple(problems))
    sentence = (
        f"{len(counted)} finished runs have the sums that the journal closed them with, each in "
        "one boot of the target."
    )
    return Findings((sentence,), ())


def _last(folder: Path) -> dict[str, _Last]:
    """By run, from its last `running` line on."""
    found: dict[str, _Last] = {}
    for entry in journals.readable(folder / "journal.jsonl")[0]:
        run = found.setdefault(entry.run_id, _Last())
        run.state, run.sha256 = entry.state, entry.facts.get("sha256")
        if run.state == "running":
            run.boots.clear()
        if run.state in ("running", "proving", "finished"):
            run.boots[entry.boot_id] = None
    return found


def _run(folder: Path, run: _Last, problems: list[str]) -> Mapping[str, Any]:
    """run.json; what has another sum than was told is a problem."""
    path = folder / "run.json"
    try:
        data = path.read_bytes()
        document: Mapping[str, Any] = strict_json.loads(data.decode())
    except (OSError, ValueError):
        problems.append(f"Run {folder.name} is counted, but its run.json cannot be read.")
        return {}
    if run.sha256 != hashlib.sha256(data).hexdigest():
        problems.append(f"run.json of {folder.name} is not the one that the journal closed.")
    samples = document.get("rapl_sha256")
    if samples != _sum_of(folder / "rapl.jsonl"):
        problems.append(f"rapl.jsonl of {folder.name} is not the one that its run.json names.")
    return document


def _sum_of(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError:
        return ""


ANALYSIS = Path(__file__).parents[1]
NAMED = 60  # characters of what is named
SEAL, CODE = "fde.seal", "fde.code"
# What else the figures of a table hang on, and how each is called.
MAKERS = {
    "fde.analysis": "other code",
    "fde.packages": "other packages",
    "fde.processor": "another kind of processor",
}
PACKAGES = ("numpy", "polars", "scipy")


def metadata(folder: Path) -> dict[str, str]:
    """What a table says of itself that is derived from the suite in `folder` now."""
    return {SEAL: seal(folder), CODE: code(), **maker()}


@cache
def maker() -> dict[str, str]:
    """By key of MAKERS, what makes figures here: sum of the code, packages, instructions."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    vectors: Any = np.show_config(mode="dicts")
    kind = [platform.machine(), *vectors["SIMD Extensions"].get("found", ())[-1:]]
    return dict(zip(MAKERS, (_sum_of_code(ANALYSIS)[:12], versions, " ".join(kind)), strict=True))


def unlike_here(table: Path) -> str:
    """What differs between here and where a derived table was made, as a clause; empty if nothing
    does. Raises OSError or PolarsError."""
    found, here = pl.read_parquet_metadata(table), maker()
    if not found.keys() & MAKERS.keys():
        return "code, packages and processor that it does not name"
    return " and ".join(
        f"{words} ({found.get(key, '')[:NAMED]}, here {here[key]})"
        for key, words in MAKERS.items()
        if found.get(key) != here[key]
    )


def current(table: Path) -> bool:
    """Whether a derived Parquet file in a suite's folder is up to date; False where it is none."""
    wanted = metadata(table.parent)
    if not wanted[SEAL]:
        return False
    try:
        found = pl.read_parquet_metadata(table)
    except (OSError, pl.exceptions.PolarsError):
        return False
    return all(found.get(key) == wanted[key] for key in (SEAL, CODE))


def seal(folder: Path) -> str:
    """Sum of the seal; empty where there is none, so that nothing is up to date."""
    try:
        return hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
    except OSError:
        return ""


@cache
def code() -> str:
    """Sum over the modules of `analysis.suite`, `analysis.energy` and `instrumentation`."""
    instrumentation = ANALYSIS.parent / "instrumentation"
    return _sum_of_code(ANALYSIS / "suite", ANALYSIS / "energy", instrumentation)


def _sum_of_code(*rooms: Path) -> str:
    sources = [path for room in rooms for path in room.rglob("*.py")]
    whole = hashlib.sha256()
    for path in sorted(path for path in sources if "tests" not in path.parts):
        whole.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return whole.hexdigest()
