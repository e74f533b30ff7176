"""How much work VeraCrypt's key derivation is, by hash and PIM (Personal Iterations Multiplier).

Source: VeraCrypt's documentation, "Header Key Derivation, Salt, and Iteration Count", "PIM" and
"Argon2id" (veracrypt.fr/en). RIPEMD-160, which its newer versions no longer have, as it was up to
version 1.25. `system` is the encryption of the disk that the machine boots from.
"""

from __future__ import annotations

from dataclasses import dataclass

from workloads.base import WorkloadError

# Iterations without a PIM: of a volume or container, and of system encryption.
DEFAULTS = {
    "sha512": (500_000, 500_000),
    "whirlpool": (500_000, 500_000),
    "sha256": (500_000, 200_000),
    "streebog": (500_000, 200_000),
    "ripemd160": (655_331, 327_661),
}
# Hashes that have the same formula for both.
_ALIKE = ("sha512", "whirlpool")
_DEFAULT_ARGON2_PIM = 12


@dataclass(frozen=True)
class Argon2:
    """Parameters of Argon2: passes, memory in KiB, lanes."""

    passes: int
    memory_kib: int
    lanes: int


def iterations(hash_name: str, pim: int = 0, *, system: bool = False) -> int:
    """Iterations of PBKDF2; a PIM of 0 is none. WorkloadError for a hash VeraCrypt never had."""
    if hash_name not in DEFAULTS:
        raise WorkloadError(
            f"VeraCrypt has no PBKDF2 with {hash_name}: choose from {', '.join(DEFAULTS)}."
        )
    if pim == 0:
        return DEFAULTS[hash_name][system]
    if system and hash_name not in _ALIKE:
        return 2048 * pim
    return 15_000 + 1000 * pim


def argon2id(pim: int = 0) -> Argon2:
    """Argon2id's parameters for a volume; a PIM of 0 is the default. System encryption lacks it."""
    pim = pim or _DEFAULT_ARGON2_PIM
    memory_mib = min(64 + 32 * (pim - 1), 1024)
    passes = 3 + (pim - 1) // 3 if pim <= 31 else 13 + pim - 31
    return Argon2(passes, memory_mib * 1024, 1)
