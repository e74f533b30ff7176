"""The seal of a suite: SHA-256 sums in manifest.json, and what differs from them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract import strict_json

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
        sums = strict_json.loads(path.read_text(encoding="utf-8"))["files"]
        wanted = {str(name): _sum(entry) for name, entry in sums.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Seal(False, 0, ("manifest.json cannot be read: nothing proves the files.",))
    root = folder.resolve()
    with ThreadPoolExecutor(HASHING) as pool:  # hashing lets other threads run
        found = pool.map(lambda item: _compare(root, *item), sorted(wanted.items()))
        changed = {name: said for name, said in zip(sorted(wanted), found, strict=True) if said}
    added = [f"{name} was added after sealing." for name in _strangers(folder, set(wanted))]
    return Seal(True, len(wanted), (*changed.values(), *added), frozenset(changed))


def _sum(entry: Any) -> str:
    return str(entry["sha256"]) if isinstance(entry, Mapping) else str(entry)


def _compare(root: Path, name: str, digest: str) -> str | None:
    path = root / name
    if not path.resolve().is_relative_to(root):
        return f"The manifest names {name}, which lies outside the suite."
    if not path.is_file():
        return f"{name} is missing: it was there when the suite was sealed."
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return None if found == digest else f"{name} was changed after sealing."


def _strangers(folder: Path, known: set[str]) -> list[str]:
    """Measured files that no sum covers; derived files and hidden ones are free to come and go."""
    found = []
    for top in MEASURED:
        path = folder / top
        files = path.rglob("*") if path.is_dir() else [path] if path.exists() else []
        found += [str(f.relative_to(folder)) for f in files if f.is_file()]
    return sorted(name for name in found if name not in known)
