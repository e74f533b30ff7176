"""Bundles as anybody can make them."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path


def contents(bundle: Path) -> dict[str, bytes]:
    """Return the members of a bundle by their paths in it, without its sums."""
    with tarfile.open(bundle) as tar:
        files = {member.name: tar.extractfile(member) for member in tar}
        members = {name: file.read() for name, file in files.items() if file is not None}
    del members[next(iter(members))]
    return members


def packed(
    path: Path,
    members: Mapping[str, bytes],
    links: Mapping[str, str] | None = None,
    first: str = "sums.json",
) -> Path:
    """Pack members, and links, with sums that hold unless they have their own."""
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in members.items()}
    with tarfile.open(path, "w:gz") as tar:
        for name, content in {first: json.dumps(sums).encode(), **members}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return path
