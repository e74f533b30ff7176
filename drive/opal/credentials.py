"""PINs, stored as salted scrypt verifiers and as keys that unwrap the Locking SP's key.

The PIN is hashed before the derivation because HMAC pads its key with zeroes: without that, the
empty PIN and one of zero bytes would be the same.
"""

from __future__ import annotations

import hashlib
import hmac
import os

from cryptography.hazmat.primitives.keywrap import aes_key_unwrap, aes_key_wrap

from ..state import Credential

COST = 1 << 13
KEK_BYTES = 32


def _derive(pin: bytes, salt: bytes, cost: int) -> tuple[bytes, bytes]:
    """Derive verifier and wrapping key, 32 bytes each."""
    digest = hashlib.sha256(pin).digest()
    derived = hashlib.scrypt(digest, salt=salt, n=cost, r=8, p=1, dklen=64, maxmem=1 << 26)
    return derived[:32], derived[32:]


def create(pin: bytes) -> Credential:
    """Create a credential for `pin` that unwraps no key."""
    return create_with_key(pin, None)[0]


def create_with_key(pin: bytes, kek: bytes | None) -> tuple[Credential, bytes]:
    """Create a credential for `pin`, which unwraps `kek` if given, and its wrapping key."""
    salt = os.urandom(16)
    verifier, wrapping_key = _derive(pin, salt, COST)
    wrapped = aes_key_wrap(wrapping_key, kek) if kek else b""
    return Credential(salt, COST, verifier, wrapped), wrapping_key


def check(credential: Credential, pin: bytes) -> bytes | None:
    """Return the wrapping key if `pin` is right, else None."""
    verifier, wrapping_key = _derive(pin, credential.salt, credential.cost)
    return wrapping_key if hmac.compare_digest(verifier, credential.verifier) else None


def adopt(credential: Credential, wrapping_key: bytes, kek: bytes) -> Credential:
    """Return a credential with the PIN of `credential` that also unwraps `kek`."""
    return Credential(
        credential.salt, credential.cost, credential.verifier, aes_key_wrap(wrapping_key, kek)
    )


def unwrap_kek(credential: Credential, wrapping_key: bytes) -> bytes:
    """Return the SP's key; raises cryptography's InvalidUnwrap if the state was tampered with."""
    return aes_key_unwrap(wrapping_key, credential.wrapped_kek)
