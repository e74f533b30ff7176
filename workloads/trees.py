"""Source trees in archives: unpack them with GNU tar, and count what is in them."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from contract.parameters import Parameter
from workloads import programs
from workloads.base import Assets, Parameters, Workload, WorkloadError

COMPRESSORS = {"gz": "gzip", "bz2": "bzip2", "xz": "xz", "zst": "zstd"}

# Of ext4 and xfs, as a rule; a folder takes one at least.
BLOCK_BYTES = 4096

ONLY = Parameter(
    "only", "", "", "shell pattern of the archive's members to use; empty: all of them"
)


def compression(archive: Path) -> str:
    """Return the suffix that names an archive's compression, empty for a plain tar."""
    suffix = {".tgz": "gz", ".txz": "xz"}.get(archive.suffix, archive.suffix[1:])
    if suffix == "tar":
        return ""
    if suffix not in COMPRESSORS:
        known = ", ".join(f".tar.{s}" for s in COMPRESSORS)
        raise WorkloadError("unknown-archive", archive=archive.name, known=known)
    return suffix


class OnTree(Workload):
    """A workload on the tree in an archive, its only asset."""

    def requires(self, parameters: Parameters, assets: Assets) -> list[str]:
        reasons = super().requires(parameters, assets)
        (asset,) = self.assets
        if asset not in assets or not assets[asset].exists():
            return reasons
        try:
            suffix = compression(assets[asset])
        except WorkloadError as error:
            return [*reasons, f"{self.name} cannot use the asset {asset}: {error}"]
        if suffix and programs.find(COMPRESSORS[suffix]) is None:
            program = COMPRESSORS[suffix]
            reasons.append(f"{self.name} needs the program {program}: install its package.")
        return reasons


def unpack_command(archive: Path, into: Path, only: str) -> list[str]:
    """Return the tar command that unpacks an archive into an existing directory."""
    members = ["--wildcards", "--", only] if only else []
    return ["tar", "-xf", str(archive), "-C", str(into), *members]


@functools.cache
def room_bytes(archive: Path, only: str) -> int:
    """Return what an unpacked tree takes up, by the archive's own list.

    Every file and folder in whole blocks. Raises WorkloadError where the archive cannot be read.
    """
    members = ["--wildcards", "--", only] if only else []
    listed = programs.run(["tar", "-tvf", archive, *members])
    sizes = (int(line.split(maxsplit=3)[2]) for line in listed.splitlines() if line[0] in "-d")
    return sum((size // BLOCK_BYTES + 1) * BLOCK_BYTES for size in sizes)


def size(tree: Path) -> dict[str, float]:
    """Regular files of a tree and their bytes, as amounts of work."""
    totals = {"files": 0.0, "bytes": 0.0}
    with os.scandir(tree) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                for unit, amount in size(Path(entry)).items():
                    totals[unit] += amount
            elif not entry.is_symlink():
                totals["files"] += 1
                totals["bytes"] += entry.stat(follow_symlinks=False).st_size
    return totals
