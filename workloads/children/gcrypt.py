"""PBKDF2 of libgcrypt, with the hashes that few other libraries have."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_char_p, c_int, c_size_t, c_ulong, create_string_buffer

from workloads.base import WorkloadError
from workloads.children.serving import MissingError

# gcrypt.h
_HASHES = {"ripemd160": 3, "sha256": 8, "sha512": 10, "whirlpool": 305, "streebog": 310}
_PBKDF2, _INITIALISED, _TEST_ALGORITHM = 34, 38, 8


class Library:
    """The library, loaded and ready; MissingError where it is not installed."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libgcrypt.so.20")
        except OSError as error:
            raise MissingError(
                "The library libgcrypt.so.20 is missing: install its package (libgcrypt20)."
            ) from error
        self._library.gcry_check_version.restype = c_char_p
        self.name = f"libgcrypt {self._library.gcry_check_version(None).decode()}"
        self._library.gcry_control(_INITIALISED, 0)
        self._library.gcry_strerror.restype = c_char_p
        self._library.gcry_kdf_derive.argtypes = [
            *(c_char_p, c_size_t, c_int, c_int, c_char_p, c_size_t, c_ulong, c_size_t, c_char_p)
        ]

    def pbkdf2(self, hash_name: str) -> Callable[[bytes, bytes, int, int], bytes]:
        """The function of (password, salt, iterations, bytes); MissingError without the hash."""
        algorithm = _HASHES[hash_name]
        if self._library.gcry_md_algo_info(algorithm, _TEST_ALGORITHM, None, None):
            raise MissingError(
                f"{self.name} has no {hash_name} (a FIPS mode takes hashes away): leave it out, "
                "or install a version with it."
            )

        def derive(password: bytes, salt: bytes, iterations: int, length: int) -> bytes:
            key = create_string_buffer(length)
            status = self._library.gcry_kdf_derive(
                *(password, len(password), _PBKDF2, algorithm, salt, len(salt)),
                *(iterations, length, key),
            )
            if status:
                reason = self._library.gcry_strerror(status).decode()
                raise WorkloadError(f"{self.name} failed at PBKDF2 with {hash_name}: {reason}.")
            return key.raw

        return derive
