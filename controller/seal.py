"""Seal a suite: decode the meters, say where the time went, and put a sum on every file."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contract.errors import ControllerError
from contract.files import sync_folder, write_json
from controller import timing
from controller.recorder_process import end_leftovers

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
SEALED_FOLDERS = ("runs", "meters", "provenance", "precondition")


def seal(suite_dir: Path, *, decoded: bool = False) -> Path:
    """Decode and sum everything; the manifest is written last and whole. Returns its path.

    `decoded`: the meters are, and nothing was recorded since. Sealing again gives the same manifest
    for the same raw files. All that it names is on the medium before it, and it itself once this
    returns. Raises ControllerError.
    """
    try:
        return _sealed(suite_dir, decoded)
    except OSError as error:
        raise ControllerError(
            f"{error.filename or suite_dir} cannot be sealed ({error.strerror}): mend that, then "
            f"seal again with python -m controller seal {suite_dir}."
        ) from error


def _sealed(suite_dir: Path, decoded: bool) -> Path:
    unseal(suite_dir)
    end_leftovers(suite_dir)  # a recorder that goes on would change what is sealed
    if not decoded:
        decode(suite_dir)
    write_json(suite_dir / "timing.json", _timing(suite_dir))
    shutil.rmtree(suite_dir / "status" / "meters", ignore_errors=True)
    sums = {str(path.relative_to(suite_dir)): sha256(path) for path in files(suite_dir)}
    for folder in _folders(suite_dir):
        sync_folder(folder)
    write_json(suite_dir / MANIFEST, {"format": FORMAT, "files": sums})
    return suite_dir / MANIFEST


def unseal(suite_dir: Path) -> None:
    """Take the manifest away, for good before anything that it names changes."""
    (suite_dir / MANIFEST).unlink(missing_ok=True)
    sync_folder(suite_dir)


def _timing(suite_dir: Path) -> dict[str, Any]:
    try:
        return timing.of_suite(suite_dir)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ControllerError(
            f"What the runs of {suite_dir} took cannot be read ({error}): fetch them again with "
            f"make resume SUITE_DIR={suite_dir}."
        ) from None


def _folders(suite_dir: Path) -> Iterator[Path]:
    """All that have names of what is sealed, the inner ones first."""
    for name in SEALED_FOLDERS:
        inner = [path for path in (suite_dir / name).rglob("*") if path.is_dir()]
        yield from sorted(inner, reverse=True)
        if (suite_dir / name).is_dir():
            yield suite_dir / name
    yield from (suite_dir, suite_dir.resolve().parent)


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
    """SHA-256 (hex) of a file that is on the medium by then."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()
