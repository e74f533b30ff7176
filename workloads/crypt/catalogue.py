"""The papers' ciphers, modes and sizes, and the words by which parameters choose among them.

Standard library alone: the agent reads this, only the child loads the libraries.
"""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from workloads.base import WorkloadError

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


def chosen(what: str, words: str, known: Sequence[str]) -> list[str]:
    """The words of a parameter, without repetitions; WorkloadError for none or an unknown one."""
    given = list(dict.fromkeys(words.replace(",", " ").split()))
    if not given:
        raise WorkloadError(f"The {what} are empty; choose among {', '.join(known)}.")
    for word in given:
        if word not in known:
            near = difflib.get_close_matches(word, known, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}."
            raise WorkloadError(f"There are no {what} called {word!r}; {hint}")
    return given


def sizes_bytes(words: str, large_bytes: int = 0) -> list[int]:
    """Sizes given as whole bytes, `large` standing for `large_bytes` where that is not 0."""
    found = []
    for word in words.replace(",", " ").split():
        if word == "large" and large_bytes:
            found.append(large_bytes)
        elif word.isascii() and word.isdigit() and int(word) > 0:
            found.append(int(word))
        else:
            extra = " or the word large" if large_bytes else ""
            raise WorkloadError(f"The sizes are whole numbers of bytes{extra}, not {word!r}.")
    if not found:
        raise WorkloadError("The sizes are empty; name at least one, in bytes.")
    return list(dict.fromkeys(found))


def padded(size: int, block_bytes: int) -> int:
    """The size filled up to whole blocks."""
    return -(-size // block_bytes) * block_bytes


def unsafe(names: Iterable[str]) -> dict[str, str]:
    """Of these ciphers the unsafe ones, with the reason."""
    return {name: CIPHERS[name].unsafe for name in names if CIPHERS[name].unsafe}
