"""Keys as somebody gets them who has a drive's state file, and what they open."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap

from drive.opal import credentials
from drive.state import DriveState


def kek_of(state: DriveState, pins: Iterable[bytes]) -> bytes | None:
    """Return the Locking SP's key, if one of its authorities has one of the PINs."""
    wrapped = [a.credential for a in state.authorities.values() if a.credential]
    for credential in wrapped:
        for pin in pins:
            if wrapping_key := credentials.check(credential, pin):
                return credentials.unwrap_kek(credential, wrapping_key)
    return None


def range_keys(state: DriveState, kek: bytes | None) -> dict[int, bytes]:
    """Return the media keys by range: those in clear, and those that the Locking SP's key opens."""
    keys = {}
    for index, row in enumerate(state.ranges):
        if row.open_key:
            keys[index] = row.open_key
        elif kek and row.wrapped_key:
            with contextlib.suppress(InvalidUnwrap):
                keys[index] = aes_key_unwrap(kek, row.wrapped_key)
    return keys


def xts(key: bytes, lba: int, data: bytes, *, decrypt: bool = False) -> bytes:
    """One block under an independent AES-XTS."""
    cipher = Cipher(algorithms.AES(key), modes.XTS(lba.to_bytes(16, "little")))
    context = cipher.decryptor() if decrypt else cipher.encryptor()
    return context.update(data) + context.finalize()


def opened(medium: Path, keys: Iterable[bytes], marks: bytes, block_bytes: int) -> list[int]:
    """List the allocated blocks of the medium that begin with `marks` under a key."""
    return [
        lba
        for lba, block in _allocated(medium, block_bytes)
        if any(xts(key, lba, block, decrypt=True).startswith(marks) for key in set(keys))
    ]


def _allocated(medium: Path, block_bytes: int) -> Iterator[tuple[int, bytes]]:
    with medium.open("rb") as file, contextlib.suppress(OSError):  # there are no more data
        position = 0
        while True:
            position = os.lseek(file.fileno(), position, os.SEEK_DATA)
            block = os.pread(file.fileno(), block_bytes, position)
            yield position // block_bytes, block
            position += block_bytes
