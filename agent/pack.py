"""A suite's folder as one tar that begins with the sums of all files."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from contract.errors import AgentError
from contract.files import sha256_of
from contract.packed import SUMS

# Of a run's folder, where a workload's programs leave what they wrote of themselves.
KEPT = "kept"


class PackError(AgentError):
    """The folder cannot be packed."""


def pack(suite_dir: Path, out: IO[bytes]) -> None:
    """Write the tar: `sums.json`, `{path: sha256}` (hex) of every other member, then these.

    Paths begin with the folder's name. Hidden files, such as half-written ones, are left out. A
    file that grows meanwhile is packed with the length that it had first. Raises PackError if one
    has vanished; the tar is then incomplete.
    """
    root = suite_dir.resolve()
    sums_by_path = {path: _sum(path) for path in fetched_files(root)}
    names = {path: str(path.relative_to(root.parent)) for path in sums_by_path}
    sums = json.dumps({names[path]: digest for path, (digest, _) in sums_by_path.items()}, indent=1)
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, f"{root.name}/{SUMS}", len(sums.encode()), io.BytesIO(sums.encode()))
        for path, (_, size_bytes) in sums_by_path.items():
            try:
                with path.open("rb") as file:
                    _add(tar, names[path], size_bytes, file)
            except OSError as error:
                raise PackError("packed-file-changed", path=path, error=error) from error


def fetched_files(root: Path) -> Iterator[Path]:
    """Yield the files below a folder that are packed, in order: neither hidden ones nor links."""
    for path in sorted(root.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
        if not hidden and not path.is_symlink() and path.is_file():
            yield path


def kept_sums(run_folder: Path) -> dict[str, str]:
    """Return the SHA-256 (hex) of each file below `kept`, by its path there; all are synced.

    Hidden files and links are excluded: they are not fetched either.
    """
    folder = run_folder / KEPT
    return {str(p.relative_to(folder)): sha256_of(p, sync=True) for p in fetched_files(folder)}


def _sum(path: Path) -> tuple[str, int]:
    """Return SHA-256 and length in bytes of a file's present content."""
    digest, size_bytes = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while piece := file.read(2**20):
                digest.update(piece)
                size_bytes += len(piece)
    except OSError as error:
        raise PackError("packed-file-unread", path=path, reason=error.strerror) from error
    return digest.hexdigest(), size_bytes


def _add(tar: tarfile.TarFile, name: str, size_bytes: int, content: IO[bytes]) -> None:
    member = tarfile.TarInfo(name)
    member.size = size_bytes
    member.mode = 0o644
    tar.addfile(member, content)
