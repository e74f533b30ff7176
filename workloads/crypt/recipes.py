"""Recipes for encrypting and decrypting a whole file's content; only for the child."""

from __future__ import annotations

import importlib
import os
import random
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from workloads.base import WorkloadError
from workloads.crypt import known_answers, libraries
from workloads.crypt.catalogue import CIPHERS, padded

RSA_BYTES = 256
# OAEP with SHA-256 takes 2 + 2 * 32 bytes of each block (RFC 8017, section 7.1.1).
OAEP_BYTES = 66
CHUNK_BYTES = RSA_BYTES - OAEP_BYTES
WRAPPED_CIPHER = "aes-128"


class Recipe(Protocol):
    """Encrypt or decrypt the first `size` bytes of `source`; return the bytes written.

    `source` has room for one more block for padding; `target` is large enough.
    """

    def encrypt(self, source: bytearray, size: int, target: bytearray) -> int: ...
    def decrypt(self, source: bytearray, size: int, target: bytearray) -> int: ...
    def check(self) -> Checked:
        """Check known answers."""


@dataclass(frozen=True)
class Checked:
    """The library of a recipe, and the sources of its known answers."""

    library: str
    held_against: list[str]


class Cbc:
    """CBC with PKCS#7 padding; a fresh key schedule each time, and a fresh vector in front."""

    def __init__(self, cipher: str, seed: int) -> None:
        self._cipher, self._block = cipher, CIPHERS[cipher].block_bytes
        self.key = random.Random(f"{cipher} {seed}").randbytes(CIPHERS[cipher].key_bytes)
        self._in = libraries.find(cipher, "cbc", encrypt=True)
        self._out = libraries.find(cipher, "cbc", encrypt=False)

    def encrypt(self, source: bytearray, size: int, target: bytearray) -> int:
        return self.encrypt_with(self.key, source, size, memoryview(target))

    def decrypt(self, source: bytearray, size: int, target: bytearray) -> int:
        return self.decrypt_with(self.key, memoryview(source)[:size], target)

    def check(self) -> Checked:
        stream = libraries.begin(
            self._cipher, "cbc", encrypt=True, key=self.key, iv=bytes(self._block)
        )
        held = known_answers.check(self._cipher, "cbc")
        return Checked(libraries.versions()[stream.library], held)

    def encrypt_with(self, key: bytes, source: bytearray, size: int, target: memoryview) -> int:
        assert self._in is not None
        block, padded_bytes = self._block, padded(size + 1, self._block)
        source[size:padded_bytes] = bytes([padded_bytes - size]) * (padded_bytes - size)
        iv = os.urandom(block)
        target[:block] = iv
        self._in(key, iv).bind(memoryview(source)[:padded_bytes], target[block:])()
        return block + padded_bytes

    def decrypt_with(self, key: bytes, source: memoryview, target: bytearray) -> int:
        assert self._out is not None
        block = self._block
        self._out(key, bytes(source[:block])).bind(source[block:], target)()
        body_bytes = len(source) - block
        padding = target[body_bytes - 1]
        if not 1 <= padding <= block:
            raise WorkloadError("no-padding", cipher=self._cipher)
        return body_bytes - padding


@cache
def _private_key(size_bytes: int) -> Any:
    """Return a private key of this size, generated once per process."""
    rsa: Any = importlib.import_module("cryptography.hazmat.primitives.asymmetric.rsa")
    return rsa.generate_private_key(65537, 8 * size_bytes)


class _Rsa:
    def __init__(self, size_bytes: int = RSA_BYTES) -> None:
        self.size_bytes = size_bytes
        padding: Any = importlib.import_module("cryptography.hazmat.primitives.asymmetric.padding")
        hashes: Any = importlib.import_module("cryptography.hazmat.primitives.hashes")
        self._private = _private_key(size_bytes)
        self._public = self._private.public_key()
        mask = padding.MGF1(hashes.SHA256())
        self._oaep = padding.OAEP(mgf=mask, algorithm=hashes.SHA256(), label=None)

    def wrap(self, plain: bytes) -> bytes:
        wrapped: bytes = self._public.encrypt(plain, self._oaep)
        return wrapped

    def unwrap(self, wrapped: bytes) -> bytes:
        plain: bytes = self._private.decrypt(wrapped, self._oaep)
        return plain

    def check(self) -> Checked:
        """Check that each library decrypts what the other encrypted, because OAEP is random."""
        serial: Any = importlib.import_module("cryptography.hazmat.primitives.serialization")
        der = self._private.private_bytes(
            *(serial.Encoding.DER, serial.PrivateFormat.PKCS8, serial.NoEncryption())
        )
        key: Any = importlib.import_module("Cryptodome.PublicKey.RSA").import_key(der)
        digest: Any = importlib.import_module("Cryptodome.Hash.SHA256")
        other: Any = importlib.import_module("Cryptodome.Cipher.PKCS1_OAEP").new(key, digest)
        plain = random.Random(0).randbytes(self.size_bytes - OAEP_BYTES)
        if other.decrypt(self.wrap(plain)) != plain or self.unwrap(other.encrypt(plain)) != plain:
            raise WorkloadError("rsa-differs")
        versions = libraries.versions()
        return Checked(versions[libraries.OPENSSL], [f"OAEP of {versions[libraries.PYCRYPTODOME]}"])


class RsaWrap(_Rsa):
    """A fresh AES key for each file, wrapped with OAEP in front of it; the data in AES-CBC."""

    def __init__(self, seed: int, bits: int) -> None:
        super().__init__(bits // 8)
        self._data = Cbc(WRAPPED_CIPHER, seed)

    def encrypt(self, source: bytearray, size: int, target: bytearray) -> int:
        key = os.urandom(CIPHERS[WRAPPED_CIPHER].key_bytes)
        target[: self.size_bytes] = self.wrap(key)
        body = memoryview(target)[self.size_bytes :]
        return self.size_bytes + self._data.encrypt_with(key, source, size, body)

    def decrypt(self, source: bytearray, size: int, target: bytearray) -> int:
        key = self.unwrap(bytes(source[: self.size_bytes]))
        return self._data.decrypt_with(key, memoryview(source)[self.size_bytes : size], target)

    def check(self) -> Checked:
        key, data = super().check(), self._data.check()
        return Checked(key.library, key.held_against + data.held_against)


class RsaOaep(_Rsa):
    """All of the data in OAEP, 190 bytes at a time, as the paper's encryption times suggest."""

    def encrypt(self, source: bytearray, size: int, target: bytearray) -> int:
        written = 0
        for start in range(0, size, CHUNK_BYTES):
            chunk = bytes(source[start : min(size, start + CHUNK_BYTES)])
            target[written : written + RSA_BYTES] = self.wrap(chunk)
            written += RSA_BYTES
        return written

    def decrypt(self, source: bytearray, size: int, target: bytearray) -> int:
        written = 0
        for start in range(0, size, RSA_BYTES):
            plain = self.unwrap(bytes(source[start : start + RSA_BYTES]))
            target[written : written + len(plain)] = plain
            written += len(plain)
        return written


def make(name: str, seed: int) -> Recipe:
    """Return a recipe by its name in `workloads.file_ciphers`.

    An RSA key is made once, at random.
    """
    if name.endswith("-wrap"):
        return RsaWrap(seed, int(name.split("-")[1]))
    if name == "rsa-2048-oaep":
        return RsaOaep()
    return Cbc(name.removesuffix("-cbc"), seed)
