"""The header of a VeraCrypt volume, written as VeraCrypt documents it; no program of Debian's does.

https://veracrypt.io/en/VeraCrypt%20Volume%20Format%20Specification.html: a salt of 64 bytes, then
448 bytes that every cipher of the chain encrypts with XTS as one data unit numbered 0. Numbers are
big-endian. cryptsetup reads it back, which is the check.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Sequence

from workloads.children.kernel_ciphers import Cipher

SALT_BYTES, BODY_BYTES, KEYS_BYTES, KEY_BYTES = 64, 448, 256, 32
DATA_OFFSET_BYTES = 128 * 1024
# The personal iterations multiplier: 15,000 + 1,000 rounds of PBKDF2 instead of 500,000, for the
# passphrase is random and key derivation is not what is measured.
PIM = 1
ROUNDS = 15_000 + 1_000 * PIM
_VERSION, _NEEDS_VERSION = 5, 0x010B
# Magic, version, program, CRC-32 of the keys, 16 unused, hidden volume's size, volume's size,
# start and length of what is encrypted, flags, sector size, 120 unused.
_FIELDS = struct.Struct(">4sHHI16xQQQQII120x")


def header(ciphers: Sequence[str], passphrase: bytes, keys: bytes, data_bytes: int) -> bytes:
    """512 bytes. `ciphers` by the kernel's names, in cryptsetup's order, the first applied first;
    `keys` are 256 random bytes, of which the chain takes its first. Raises OSError, or
    WorkloadError where the kernel lacks a cipher."""
    salt = os.urandom(SALT_BYTES)
    fields = _FIELDS.pack(
        *(b"VERA", _VERSION, _NEEDS_VERSION, zlib.crc32(keys), 0, data_bytes),
        *(DATA_OFFSET_BYTES, data_bytes, 0, 512),
    )
    body = fields + struct.pack(">I", zlib.crc32(fields)) + keys
    derived = hashlib.pbkdf2_hmac("sha512", passphrase, salt, ROUNDS, 2 * KEY_BYTES * len(ciphers))
    for number, cipher in enumerate(ciphers):
        # All first keys of the chain come before all second ones, the tweaks'.
        places = (KEY_BYTES * number, KEY_BYTES * (number + len(ciphers)))
        key = b"".join(derived[place : place + KEY_BYTES] for place in places)
        kernel = Cipher(f"xts({cipher})", key, BODY_BYTES)
        try:
            body = kernel.encrypted(bytes(16), body)
        finally:
            kernel.close()
    return salt + body
