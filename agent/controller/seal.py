"""Seal a suite: decode the meters, say where the time went, and put a sum on every file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent.controller import timing
from agent.controller.errors import ControllerError
from agent.controller.recorder_process import end_leftovers

FORMAT = "fde-manifest/1"
MANIFEST = "manifest.json"
SEALED = (
    "plan.json",
    "journal.jsonl",
    "watermark.jsonl",
    "clock.jsonl",
    "identity.json",
    "requests.jsonl",
    "sessions.jsonl",
    "timing.json",
)
SEALED_FOLDERS = ("runs", "meters", "provenance")


def seal(suite_dir: Path, *, decoded: bool = False) -> Path:
    """Decode and sum everything; the manifest is written last and whole. Returns its path.

    `decoded`: the meters are, and nothing was recorded since. Sealing again gives the same manifest
    for the same raw files. Raises ControllerError.
    """
    (suite_dir / MANIFEST).unlink(missing_ok=True)
    end_leftovers(suite_dir)  # a recorder that goes on would change what is sealed
    if not decoded:
        decode(suite_dir)
    write_json(suite_dir / "timing.json", timing.of_suite(suite_dir))
    shutil.rmtree(suite_dir / "status" / "meters", ignore_errors=True)
    sums = {str(path.relative_to(suite_dir)): sha256(path) for path in files(suite_dir)}
    write_json(suite_dir / MANIFEST, {"format": FORMAT, "files": sums})
    return suite_dir / MANIFEST


def decode(suite_dir: Path) -> None:
    """Write samples.parquet beside every stream. Raises ControllerError."""
    from instrumentation.decode import DecodeError, write_samples  # takes a second: only when used

    for folder in sorted((suite_dir / "meters").glob("*/")):
        if not any(path.stat().st_size for path in folder.iterdir()):
            shutil.rmtree(folder)  # its recorder was killed before it began
            continue
        try:
            write_samples(folder)
        except DecodeError as error:
            raise ControllerError(str(error)) from error


def files(suite_dir: Path) -> Iterator[Path]:
    """What a seal covers: all but what `make report` derives."""
    for name in SEALED:
        if (suite_dir / name).is_file():
            yield suite_dir / name
    for name in SEALED_FOLDERS:
        yield from sorted(path for path in (suite_dir / name).rglob("*") if path.is_file())


def sha256(path: Path) -> str:
    """SHA-256 of a file, hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a whole file or none, and have it on the medium before it has its name."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
