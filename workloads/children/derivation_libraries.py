"""Key derivations of C libraries: PBKDF2 with libgcrypt's hashes, Argon2id of its authors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_char_p, c_int, c_size_t, c_uint32, c_ulong, create_string_buffer

from workloads.base import WorkloadError
from workloads.children.serving import MissingError
from workloads.key_derivation import Argon2

# gcrypt.h
_HASHES = {"ripemd160": 3, "sha256": 8, "sha512": 10, "whirlpool": 305, "streebog": 310}
_PBKDF2, _INITIALISED, _TEST_ALGORITHM = 34, 38, 8


def _load(name: str, package: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise MissingError(
            f"The library {name} is missing: install its package ({package})."
        ) from error


class Libgcrypt:
    """The library, loaded and ready; MissingError where it is not installed."""

    def __init__(self) -> None:
        self._library = _load("libgcrypt.so.20", "libgcrypt20")
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


class Libargon2:
    """The library, loaded; MissingError where it is not installed."""

    name = "libargon2.so.1"

    def __init__(self) -> None:
        self._library = _load(self.name, "libargon2-1")
        self._library.argon2_error_message.restype = c_char_p
        self._library.argon2id_hash_raw.argtypes = [
            *(c_uint32, c_uint32, c_uint32),
            *(c_char_p, c_size_t, c_char_p, c_size_t, c_char_p, c_size_t),
        ]

    def argon2id(self, cost: Argon2, password: bytes, salt: bytes, length: int) -> bytes:
        """The derived key; as many threads as lanes."""
        key = create_string_buffer(length)
        status = self._library.argon2id_hash_raw(
            *(cost.passes, cost.memory_kib, cost.lanes),
            *(password, len(password), salt, len(salt), key, length),
        )
        if status:
            reason = self._library.argon2_error_message(status).decode()
            memory = f"{cost.memory_kib} KiB of memory"
            raise WorkloadError(f"{self.name} failed with {memory}: {reason}.")
        return key.raw
