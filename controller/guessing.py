"""How long a passphrase or PIN stands against guessing, at best: were it drawn at random."""

from __future__ import annotations

import math
import string
from dataclasses import dataclass


@dataclass(frozen=True)
class Guesser:
    """How fast a secret is tried, and how many bits it must have for that."""

    tries_per_s: float
    least_bits: float


# A drive that does not count tries, as some do not, answers some 100 a second: 50 bits stand 2e5
# years, and longer where it counts (5 tries, say, until it is switched off and on).
AT_THE_DRIVE = Guesser(100, 50)
# Of a disk that was taken, without limit: a thousand graphics processors at some 1e10 hashes a
# second, 1000 rounds a try (PBKDF2 as agent/storage/dmcrypt.py sets it): 80 bits stand 2e6 years.
OFFLINE = Guesser(1e10, 80)
LEAST_DIFFERENT = 8
YEAR_S = 365.25 * 86400
KINDS = (string.ascii_lowercase, string.ascii_uppercase, string.digits)


def bits(secret: str) -> float:
    """Binary logarithm of how many texts there are of that length and of the kinds in it."""
    alphabet = sum(len(kind) for kind in KINDS if set(kind) & set(secret))
    if set(secret) - set("".join(KINDS)):
        alphabet += len(string.punctuation) + 1  # and the space
    return len(secret) * math.log2(alphabet) if alphabet else 0.0


def weakness(name: str, secret: str, guesser: Guesser) -> str:
    """Why a secret will not do, as a clause without it; empty where it will."""
    different = len(set(secret))
    if bits(secret) >= guesser.least_bits and different >= LEAST_DIFFERENT:
        return ""
    half_s = 2 ** (bits(secret) - 1) / guesser.tries_per_s
    span = f"{half_s / YEAR_S:.2g} years" if half_s >= YEAR_S else f"{half_s / 86400:.2g} days"
    return (
        f"{name} is guessed too soon: {len(secret)} characters, {different} of them different, are "
        f"at most {bits(secret):.0f} bits, found in {span} on average at {guesser.tries_per_s:g} "
        f"tries a second, and sooner where it is a word. Give {guesser.least_bits:g} bits and "
        f"{LEAST_DIFFERENT} different characters at least, as `openssl rand -hex 16` does"
    )
