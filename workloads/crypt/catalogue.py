"""The papers' ciphers and modes by their names in parameters.

Uses only the standard library: the agent imports this, only the child loads the libraries.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from contract import system_text
from workloads import programs

MIB = 1 << 20


@dataclass(frozen=True)
class Kind:
    """A block cipher at one key size; `unsafe` is the reason not to use it today, if any."""

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
    """Return a sentence with the remedy for each missing library of the workload `name`."""
    return [
        f"{name} needs the Python library {module}: install the package {package}."
        for module, package in PACKAGES.items()
        if importlib.util.find_spec(module) is None
    ]


def padded(size: int, block_bytes: int) -> int:
    """Return the size rounded up to whole blocks."""
    return -(-size // block_bytes) * block_bytes


def unsafe(names: Iterable[str]) -> dict[str, str]:
    """Return the reasons against the unsafe ones of these ciphers."""
    return {name: CIPHERS[name].unsafe for name in names if CIPHERS[name].unsafe}


CPUINFO = Path("/proc/cpuinfo")
VARIABLE = "OPENSSL_ia32cap"
# The bits of AES-NI (CPUID leaf 1, ECX 25) and VAES (leaf 7, ECX 9), as OpenSSL numbers them; see
# its manual page OPENSSL_ia32cap(3).
AES_NI = 1 << 57
MASK = f"~{AES_NI:#x}:~{1 << 41:#x}"
# If OpenSSL does not report it, the least slowdown of AES that shows that the mask works.
LEAST_RATIO = 1.5


def environment(aes_instructions: bool) -> dict[str, str]:
    """Return the child's environment, without the caller's OpenSSL mask."""
    inherited = {name: value for name, value in programs.environment().items() if name != VARIABLE}
    return inherited if aes_instructions else {**inherited, VARIABLE: MASK}


def present() -> bool:
    """Return whether the processor has AES instructions; x86 and ARM name them alike."""
    return "aes" in system_text.read(CPUINFO).split()


def reason_against(aes_instructions: bool) -> str:
    """Return why AES cannot be measured like this on this processor; empty if it can."""
    if aes_instructions and not present():
        return "The processor has no instructions for AES: measure it with aes_instructions off."
    if not aes_instructions and present() and os.uname().machine not in ("x86_64", "i686"):
        return "How to keep OpenSSL from the instructions for AES is known for x86 alone."
    return ""


@dataclass(frozen=True)
class Instructions:
    """A child's answer to `instructions`: OpenSSL's list of features, if any, and a rate."""

    settings: str | None
    aes_mib_per_s: float


def mask_problem(without: Instructions, with_them: Instructions) -> str:
    """Return why the mask may not have worked; empty if it did.

    `without` is the answer under the mask. OpenSSL's list decides; if OpenSSL is linked in and
    cannot be queried, the rates do.
    """
    settings = without.settings
    if settings is not None:
        first = settings.removeprefix(f"{VARIABLE}=").split(":", 1)[0]
        if int(first, 16) & AES_NI:
            return f"OpenSSL still uses AES-NI ({settings})."
        return ""
    ratio = with_them.aes_mib_per_s / without.aes_mib_per_s
    if ratio < LEAST_RATIO:
        return (
            f"OpenSSL does not report whether it uses AES-NI, and is only {ratio:.2f} times faster "
            f"with it, not {LEAST_RATIO}: install Debian's python3-cryptography, which reports it."
        )
    return ""
