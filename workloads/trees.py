"""Source trees in archives: unpack them with GNU tar, and count what is in them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from workloads import programs
from workloads.base import Parameter, WorkloadError

COMPRESSORS = {"gz": "gzip", "bz2": "bzip2", "xz": "xz", "zst": "zstd"}

ONLY = Parameter(
    "only", "", "", "shell pattern of the archive's members to use; empty: all of them"
)


def compression(archive: Path) -> str:
    """The suffix that names an archive's compression, empty for a plain tar."""
    suffix = {".tgz": "gz", ".txz": "xz"}.get(archive.suffix, archive.suffix[1:])
    if suffix == "tar":
        return ""
    if suffix not in COMPRESSORS:
        known = ", ".join(f".tar.{s}" for s in COMPRESSORS)
        raise WorkloadError(f"{archive.name} is not an archive this can unpack ({known} or .tar).")
    return suffix


def archive_reasons(workload: str, asset: str, assets: Mapping[str, Path]) -> list[str]:
    """Why an archive that is there cannot be unpacked here; empty if it can."""
    if asset not in assets or not assets[asset].exists():
        return []
    try:
        suffix = compression(assets[asset])
    except WorkloadError as error:
        return [f"{workload} cannot use the asset {asset}: {error}"]
    if suffix and programs.find(COMPRESSORS[suffix]) is None:
        return [f"{workload} needs the program {COMPRESSORS[suffix]}: install its package."]
    return []


def unpack_command(archive: Path, into: Path, only: str) -> list[str]:
    """The tar command that unpacks an archive into an existing directory."""
    members = ["--wildcards", only] if only else []
    return ["tar", "-xf", str(archive), "-C", str(into), *members]


def size(tree: Path) -> dict[str, float]:
    """Regular files of a tree and their bytes, as amounts of work."""
    files = total_bytes = 0
    for folder, _, entries in os.walk(tree):
        for entry in entries:
            path = Path(folder) / entry
            if not path.is_symlink():
                files += 1
                total_bytes += path.stat().st_size
    return {"files": files, "bytes": total_bytes}
