"""The papers' ciphers and modes by the words that choose among them.

Standard library alone: the agent reads this, only the child loads the libraries.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class Kind:
    """A block cipher at one key size; `unsafe` says why nobody should use it today, if so."""

    algorithm: str
    key_bytes: int
    block_bytes: int
    unsafe: str = ""


SMALL_BLOCK = "its 64-bit blocks repeat after some 32 GiB under one key (Sweet32, 2016)"
CIPHERS = {
    "des": Kind("DES", 8, 8, "its key has 56 bits, which were searched through in a day in 1999"),
    "3des": Kind("TripleDES", 24, 8, SMALL_BLOCK + "; NIST has disallowed it since 2024"),
    "aes-128": Kind("AES", 16, 16),
    "aes-192": Kind("AES", 24, 16),
    "aes-256": Kind("AES", 32, 16),
    "blowfish-128": Kind("Blowfish", 16, 8, SMALL_BLOCK),
    "blowfish-448": Kind("Blowfish", 56, 8, SMALL_BLOCK),
}
# ecb and ctr as in NIST SP 800-38A; cfb feeds back a whole block, cfb8 one byte at a time.
MODES = ("ecb", "cbc", "cfb", "ofb", "ctr", "cfb8")
WHOLE_BLOCKS = ("ecb", "cbc", "cfb")
PACKAGES = {"cryptography": "python3-cryptography", "Cryptodome": "python3-pycryptodome"}


def missing_libraries(name: str) -> list[str]:
    """Why the workload `name` cannot run for want of a library, with the way out."""
    return [
        f"{name} needs the Python library {module}: install the package {package}."
        for module, package in PACKAGES.items()
        if importlib.util.find_spec(module) is None
    ]


def padded(size: int, block_bytes: int) -> int:
    """The size filled up to whole blocks."""
    return -(-size // block_bytes) * block_bytes


def unsafe(names: Iterable[str]) -> dict[str, str]:
    """Of these ciphers the unsafe ones, with the reason."""
    return {name: CIPHERS[name].unsafe for name in names if CIPHERS[name].unsafe}
