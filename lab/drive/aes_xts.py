"""AES-XTS over sectors with libcrypto, called directly.

One call per sector is what XTS needs; through ctypes it costs about a microsecond, several times
less than a cipher object per sector. The interpreter lock is kept during a call (PyDLL): a sector
takes about as long as handing the lock over.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import threading
from typing import Any

KEY_BYTES = {128: 32, 256: 64}


class CryptoError(Exception):
    """libcrypto is missing or refused; the message says which."""


def _load() -> Any:
    name = ctypes.util.find_library("crypto")
    if name is None:
        raise CryptoError("libcrypto (package libssl3) is missing; install it")
    library = ctypes.PyDLL(name)
    pointer, number = ctypes.c_void_p, ctypes.c_int
    library.EVP_CIPHER_CTX_new.restype = pointer
    library.EVP_CIPHER_CTX_free.argtypes = [pointer]
    library.EVP_CIPHER_CTX_free.restype = None
    for cipher in (library.EVP_aes_128_xts, library.EVP_aes_256_xts):
        cipher.restype = pointer
    library.EVP_CipherInit_ex.argtypes = [
        pointer, pointer, pointer, ctypes.c_char_p, ctypes.c_char_p, number,
    ]  # fmt: skip
    library.EVP_CipherUpdate.argtypes = [pointer, pointer, pointer, pointer, number]
    return library


_LIBRARY = _load()


class _Context:
    """One direction's key schedule; libcrypto wipes it when it is freed."""

    def __init__(self, key: bytes, encrypt: bool) -> None:
        cipher = _LIBRARY.EVP_aes_256_xts if len(key) == 64 else _LIBRARY.EVP_aes_128_xts
        self.address = _LIBRARY.EVP_CIPHER_CTX_new()
        self._free = _LIBRARY.EVP_CIPHER_CTX_free
        if _LIBRARY.EVP_CipherInit_ex(self.address, cipher(), None, key, None, encrypt) != 1:
            raise CryptoError("libcrypto refused the AES-XTS key")

    def __del__(self) -> None:
        self._free(self.address)


class AesXts(threading.local):
    """AES-XTS with `key` (32 or 64 bytes, halves unequal); every thread has its own contexts.

    The tweak of a sector is its logical block address, little-endian, as in dm-crypt's plain64.
    """

    def __init__(self, key: bytes, sector_bytes: int) -> None:
        self._sector_bytes = sector_bytes
        self._encryptor = _Context(key, True)
        self._decryptor = _Context(key, False)

    def encrypt(self, lba: int, data: memoryview) -> None:
        """Encrypts whole sectors in place; `lba` is the first one's address."""
        self._run(self._encryptor.address, lba, data)

    def decrypt(self, lba: int, data: memoryview) -> None:
        """Decrypts whole sectors in place; `lba` is the first one's address."""
        self._run(self._decryptor.address, lba, data)

    def _run(self, context: int, lba: int, data: memoryview) -> None:
        size, init, update = (
            self._sector_bytes,
            _LIBRARY.EVP_CipherInit_ex,
            _LIBRARY.EVP_CipherUpdate,
        )
        if len(data) % size:
            raise ValueError("only whole sectors can be encrypted")
        first = ctypes.addressof(ctypes.c_char.from_buffer(data)) if len(data) else 0
        written = ctypes.c_int()
        written_at = ctypes.addressof(written)
        for address in range(first, first + len(data), size):
            tweak = lba.to_bytes(16, "little")
            if (
                init(context, None, None, None, tweak, -1) != 1
                or update(context, address, written_at, address, size) != 1
            ):
                raise CryptoError("libcrypto failed to process a sector")
            lba += 1
