"""Unpack a suite's folder from a tar: its sums first, then its files (`agent.pack` writes it)."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO

from contract import archives, strict_json
from contract.files import sha256_of

SUMS = "sums.json"
"""The first member, in the folder: `{path: sha256}` (hex) of every member that follows."""
LEAST_FREE_BYTES = 64 << 20


def extract(
    file: IO[bytes], to: Path, is_wanted: Callable[[str], bool] = lambda _: True
) -> list[str]:
    """Unpack an archive of `agent.pack`, compressed or not, below `to`; return the omitted names.

    Omitted are members that `is_wanted` rejects, and everything that is not a file. No links or
    devices are made, and nothing outside of `to`. Raises ValueError if a sum differs, a member's
    path leaves `to` or there is no room; also what tarfile and the decompression raise.
    """
    skipped_names = []
    with archives.open_tar(file) as tar:
        sums: dict[str, str] | None = None
        for member in archives.members(tar, file):
            content = tar.extractfile(member)
            if content is None:
                skipped_names += [member.name] * (not member.isdir())
                continue
            if sums is None:
                if PurePosixPath(member.name).name != SUMS:
                    raise ValueError("it does not begin with its sums")
                sums = dict(strict_json.loads(content.read()))
                continue
            place = (to / member.name).resolve()
            if not place.is_relative_to(to.resolve()):
                raise ValueError(f"{member.name} would lie outside of the suite")
            if not is_wanted(member.name):
                skipped_names.append(member.name)
                digest = hashlib.file_digest(content, "sha256")  # type: ignore[arg-type]
                if digest.hexdigest() != sums.pop(member.name, ""):
                    raise ValueError(f"the sum of {member.name} differs")
                continue
            if member.size > shutil.disk_usage(to).free - LEAST_FREE_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(place))
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as out:
                shutil.copyfileobj(content, out)
            if sha256_of(place, sync=True) != sums.pop(member.name, None):
                raise ValueError(f"the sum of {member.name} differs")
        if sums is None or sums:
            raise ValueError(f"{next(iter(sums or {'all'}))} is missing")
    return skipped_names
