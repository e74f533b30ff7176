"""Keyed sums that show which derived files this user's testbed made.

Anybody can write a table, its page and the sums of both into a folder. So a derived file is
reused only if an HMAC-SHA-256 (RFC 2104) under a key that never leaves this user's account
shows that it was made here, from this source, and is unchanged; all others are made again.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from contract.files import sha256_of, write_json
from contract.places import state_folder
from contract.private import read_secret
from contract.strict_json import read_object

MARKS = ".derived.json"
"""In a suite's folder: the keyed sums by file path. Hidden, so that it is never packed."""


def mark(folder: Path, names: Iterable[str], source: str) -> None:
    """Record that these files in `folder` were derived here, from a source with this sum.

    If the key cannot be stored, nothing is recorded and the files will be made again. Raises
    AgentError if others can read the key.
    """
    key = _key()
    if key and source:
        sums = {name: _keyed_sum(key, folder, name, source) for name in names}
        with suppress(OSError):
            write_json(folder / MARKS, read_object(folder / MARKS) | sums, sync=False)


def is_ours(folder: Path, name: str, source: str) -> bool:
    """Return whether a file in `folder` was derived here from `source`. Raises AgentError."""
    noted = read_object(folder / MARKS).get(name)
    if not source or not isinstance(noted, str):
        return False
    try:
        key = _key()
        return bool(key) and hmac.compare_digest(
            noted.encode(), _keyed_sum(key, folder, name, source).encode()
        )
    except OSError:
        return False


def plan_sum(folder: Path) -> str:
    """Return the SHA-256 of a suite's plan, the `source` of its decoded samples, or ""."""
    try:
        return sha256_of(folder / "plan.json")
    except OSError:
        return ""


def _keyed_sum(key: bytes, folder: Path, name: str, source: str) -> str:
    text = "\0".join((name, source, sha256_of(folder / name)))
    return hmac.digest(key, text.encode(), hashlib.sha256).hex()


def _key() -> bytes:
    """Return the user's key, creating it if necessary; empty if it cannot be stored."""
    path = state_folder() / "derived.key"
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent) as file:  # of mode 0600
                file.write(secrets.token_hex(32).encode())
                file.flush()
                with suppress(FileExistsError):  # another process was faster
                    os.link(file.name, path)
    except OSError:  # as of a home that is another user's
        return b""
    return read_secret(path).encode()
