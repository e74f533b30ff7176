"""Unpack source trees from archives with GNU tar, and count their contents."""

from __future__ import annotations

import functools
import os
import stat
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from contract.parameters import Parameter
from workloads import programs
from workloads.base import Assets, Parameters, Workload, WorkloadError, unfit

COMPRESSORS = {"gz": "gzip", "bz2": "bzip2", "xz": "xz", "zst": "zstd"}

# The usual block of ext4 and xfs; a folder takes at least one.
BLOCK_BYTES = 4096

ONLY = Parameter("only", "", "", "shell pattern of the archive's members to use; empty: all")


def compression(archive: Path) -> str:
    """Return the suffix of an archive's compression, empty for a plain tar."""
    suffix = {".tgz": "gz", ".txz": "xz"}.get(archive.suffix, archive.suffix[1:])
    if suffix == "tar":
        return ""
    if suffix not in COMPRESSORS:
        suffixes = ", ".join(f".tar.{s}" for s in COMPRESSORS)
        raise WorkloadError("unknown-archive", archive=archive.name, known=suffixes)
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
        for choice in sorted({suffix, str(parameters.get("recompress"))} & COMPRESSORS.keys()):
            program = COMPRESSORS[choice]
            reasons += unfit(self.name, program, programs.find(program))
        return reasons


def unpack_command(archive: Path, into: Path, only: str) -> list[str]:
    """Return the tar command that unpacks an archive into an existing directory."""
    members = ["--wildcards", "--", only] if only else []
    return ["tar", "-xf", str(archive), "-C", str(into), *members]


@dataclass(frozen=True)
class Contents:
    """Contents of a tree: regular `files`, their `size_bytes`, and all `entries` below its root.

    `room_bytes` is the room for its files and folders in whole blocks, and `matches` the number of
    its lines with the searched word.
    """

    files: int = 0
    size_bytes: int = 0
    entries: int = 0
    room_bytes: int = 0
    matches: int = 0

    @property
    def amounts(self) -> dict[str, float]:
        """Files and bytes as amounts of work."""
        return {"files": float(self.files), "bytes": float(self.size_bytes)}


@functools.cache
def listed(archive: Path, only: str, word: str = "") -> Contents:
    """Return what `read` does of an asset, which does not change."""
    return read(archive, only, word)


def read(archive: Path, only: str = "", word: str = "") -> Contents:
    """Return an archive's contents, read by Python, independently of the measured tar.

    `only` is a pattern of GNU tar's `--wildcards`, which includes everything below a matching
    folder. Raises WorkloadError if the archive cannot be read.
    """
    suffix = compression(archive)
    unpack = [COMPRESSORS[suffix], "-dc", str(archive)] if suffix else ["cat", str(archive)]
    sizes: dict[str, int] = {}
    others: set[str] = set()
    matches = 0
    with programs.start(unpack, subprocess.DEVNULL, programs.environment()) as unpacker:
        try:
            with tarfile.open(fileobj=unpacker.output, mode="r|") as members:
                for member in members:
                    name = os.path.normpath(member.name)
                    parts = member.name.rstrip("/").split("/")
                    paths = ("/".join(parts[:end]) for end in range(1, len(parts) + 1))
                    if only and not any(fnmatchcase(path, only) for path in paths):
                        continue
                    if member.isreg():
                        sizes[name] = member.size
                        if word and (file := members.extractfile(member)):
                            matches += sum(word.encode() in line for line in file)
                    elif member.islnk():
                        sizes[name] = sizes.get(os.path.normpath(member.linkname), 0)
                    else:
                        others.add(name)
        except (tarfile.TarError, EOFError) as error:
            raise WorkloadError("archive-unread", archive=archive.name, reason=error) from error
        unpacker.output.read()
        if status := unpacker.process.wait():
            reason = f"{unpack[0]} ended with status {status}"
            raise WorkloadError("archive-unread", archive=archive.name, reason=reason)
    # tar also makes folders that an archive does not list.
    others |= {str(parent) for name in (*sizes, *others) for parent in PurePath(name).parents}
    others.discard(".")
    return _contents([*sizes.items()], sorted(others), matches)


def size(tree: Path) -> Contents:
    """Return the contents of a folder."""
    sizes: list[tuple[str, int]] = []
    others: list[str] = []
    for folder, folders, names in os.walk(tree):
        others += [os.path.join(folder, name) for name in folders]  # noqa: PTH118 - many of them
        for name in names:
            path = os.path.join(folder, name)  # noqa: PTH118
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode):
                sizes.append((path, status.st_size))
            else:
                others.append(path)
    return _contents(sizes, others)


def _contents(
    sizes: Sequence[tuple[str, int]], others: Sequence[str], matches: int = 0
) -> Contents:
    return Contents(
        files=len(sizes),
        size_bytes=sum(size for _, size in sizes),
        entries=len(sizes) + len(others),
        room_bytes=sum((size // BLOCK_BYTES + 1) * BLOCK_BYTES for _, size in sizes)
        + BLOCK_BYTES * len(others),
        matches=matches,
    )
