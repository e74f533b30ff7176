"""Decode a suite's meters and seal its folder with the sums of all its files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from contract import derived
from contract.documents import ManifestDocument
from contract.errors import ControllerError
from contract.files import sha256_of, sync_path, write_json
from contract.places import command_line
from contract.suite_files import SEALED, SEALED_FOLDERS
from controller.session import timing
from controller.session.recorders import end_leftovers

FORMAT: Final = "fde-manifest/1"
MANIFEST = "manifest.json"


def seal(suite_dir: Path, *, decoded: bool = False) -> Path:
    """Decode the meters and write the manifest with the sums of all files; return its path.

    With `decoded` the meters are decoded already, and nothing was recorded since. Sealing again
    gives the same manifest for the same raw files. All files that it names are on the medium before
    it, and it is when this returns. Raises ControllerError.
    """
    try:
        unseal(suite_dir)
        end_leftovers(suite_dir)  # a recorder that continues would change what is sealed
        if not decoded:
            decode(suite_dir)
        try:
            times = timing.read_suite(suite_dir)
        except (ValueError, OverflowError) as error:
            command = command_line("resume", suite_dir)
            raise ControllerError(
                "run-times-unread", suite_dir=suite_dir, error=error, command=command
            ) from None
        write_json(suite_dir / "timing.json", times.document())
        shutil.rmtree(suite_dir / "status" / "meters", ignore_errors=True)
        sums = {
            str(path.relative_to(suite_dir)): sha256_of(path, sync=True)
            for path in files(suite_dir)
        }
        for name in SEALED_FOLDERS:
            folders = [path for path in (suite_dir / name).rglob("*") if path.is_dir()]
            for folder in sorted(folders, reverse=True):  # the inner ones first
                sync_path(folder)
            if (suite_dir / name).is_dir():
                sync_path(suite_dir / name)
        sync_path(suite_dir)
        sync_path(suite_dir.resolve().parent)
        write_json(suite_dir / MANIFEST, asdict(ManifestDocument(FORMAT, sums)))
    except OSError as error:
        path = error.filename or suite_dir
        raise ControllerError(
            "not-sealed", path=path, reason=error.strerror, suite_dir=suite_dir
        ) from error
    return suite_dir / MANIFEST


def unseal(suite_dir: Path) -> None:
    """Remove the manifest, on the medium too, before any file that it names changes."""
    (suite_dir / MANIFEST).unlink(missing_ok=True)
    sync_path(suite_dir)


def decode(suite_dir: Path) -> None:
    """Write samples.parquet next to every stream and mark it as decoded here.

    Raises ControllerError.
    """
    from instrumentation.decode import DecodeError, write_samples  # takes a second: only when used

    for folder in sorted((suite_dir / "meters").glob("*/")):
        if not any(path.stat().st_size for path in folder.iterdir()):
            shutil.rmtree(folder)  # its recorder was killed before it began
            continue
        try:
            write_samples(folder)
        except DecodeError as error:
            raise ControllerError(error) from error
    mark_samples(suite_dir)


def mark_samples(suite_dir: Path) -> None:
    """Mark the samples in a suite's folder as decoded here."""
    decoded = (suite_dir / "meters").glob("*/samples.parquet")
    names = [path.relative_to(suite_dir).as_posix() for path in decoded]
    derived.mark(suite_dir, names, derived.plan_sum(suite_dir))


def files(suite_dir: Path) -> Iterator[Path]:
    """Yield the files that a seal covers: all except those that `fde report` derives."""
    for name in SEALED:
        if (suite_dir / name).is_file():
            yield suite_dir / name
    for name in SEALED_FOLDERS:
        yield from sorted(path for path in (suite_dir / name).rglob("*") if path.is_file())
