"""Derive keys again and again; check each function first by a known answer."""

from __future__ import annotations

import ctypes
import hashlib
import ssl
from collections.abc import Callable
from ctypes import c_char_p, c_int, c_size_t, c_uint32, c_ulong, create_string_buffer

from workloads.base import WorkloadError
from workloads.children.serving import MissingError, repeating, serve
from workloads.crypt.known_answers import KNOWN
from workloads.key_derivation import Argon2, KeyJob

# What VeraCrypt and LUKS2 have: a salt of 64 bytes, or of 32; the password does not matter.
PASSWORD, SALT = b"an example of a passphrase", bytes(range(64))
OPENSSL = ("sha256", "sha512")
Pbkdf2 = Callable[[bytes, bytes, int, int], bytes]

# RFC 9106 section 5.3 without its secret and associated data, as in cryptsetup's tests.
KNOWN_ARGON2ID = (
    *(Argon2(3, 32, 4), b"\x01" * 32, b"\x02" * 16),
    "03aab965c12001c9d7d0d2de33192c0494b684bb148196d73c1df1acaf6d0c2e",
)


def prepare(job: KeyJob) -> tuple[str, Callable[[], bytes]]:
    """Return the library, and the step, which derives a key."""
    function, length, cost = job.function, job.key_bytes, job.argon2
    if cost is not None:
        library = Libargon2()
        known_cost, password, salt, key = KNOWN_ARGON2ID
        check(function, library.argon2id(known_cost, password, salt, len(key) // 2), key)
        return library.name, lambda: library.argon2id(cost, PASSWORD, SALT, length)
    name, derive = pbkdf2(function)
    example = KNOWN["pbkdf2"][function]
    password, salt = (bytes.fromhex(example[name]) for name in ("password", "salt"))
    key = example["key"]
    check(function, derive(password, salt, example["iterations"], len(key) // 2), key)
    return name, lambda: derive(PASSWORD, SALT, job.iterations, length)


def pbkdf2(hash_name: str) -> tuple[str, Pbkdf2]:
    """Return the library and its function: OpenSSL for SHA-2, libgcrypt for the others."""
    if hash_name in OPENSSL:

        def derive(password: bytes, salt: bytes, iterations: int, length: int) -> bytes:
            return hashlib.pbkdf2_hmac(hash_name, password, salt, iterations, length)

        return ssl.OPENSSL_VERSION, derive
    library = Libgcrypt()
    return library.name, library.pbkdf2(hash_name)


def check(function: str, derived: bytes, expected: str) -> None:
    """Raise WorkloadError if a derived key differs from the known answer."""
    if derived.hex() != expected:
        raise WorkloadError(
            "wrong-known-answer",
            function=function,
            derived=derived.hex()[:16],
            expected=expected[:16],
        )


# gcrypt.h
_HASHES = {"ripemd160": 3, "sha256": 8, "sha512": 10, "whirlpool": 305, "streebog": 310}
_PBKDF2, _INITIALISED, _TEST_ALGORITHM = 34, 38, 8


def _load(name: str, package: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise MissingError("library-missing", library=name, package=package) from error


class Libgcrypt:
    """The library, loaded and ready; MissingError if it is not installed."""

    def __init__(self) -> None:
        self._library = _load("libgcrypt.so.20", "libgcrypt20")
        self._library.gcry_check_version.restype = c_char_p
        self.name = f"libgcrypt {self._library.gcry_check_version(None).decode()}"
        self._library.gcry_control(_INITIALISED, 0)
        self._library.gcry_strerror.restype = c_char_p
        self._library.gcry_kdf_derive.argtypes = [
            *(c_char_p, c_size_t, c_int, c_int, c_char_p, c_size_t, c_ulong, c_size_t, c_char_p)
        ]

    def pbkdf2(self, hash_name: str) -> Pbkdf2:
        """Return the function of (password, salt, iterations, bytes).

        MissingError without the hash.
        """
        algorithm = _HASHES[hash_name]
        if self._library.gcry_md_algo_info(algorithm, _TEST_ALGORITHM, None, None):
            raise MissingError("no-hash", library=self.name, hash_name=hash_name)

        def derive(password: bytes, salt: bytes, iterations: int, length: int) -> bytes:
            key = create_string_buffer(length)
            status = self._library.gcry_kdf_derive(
                *(password, len(password), _PBKDF2, algorithm, salt, len(salt)),
                *(iterations, length, key),
            )
            if status:
                reason = self._library.gcry_strerror(status).decode()
                raise WorkloadError(
                    "pbkdf2-failed", library=self.name, hash_name=hash_name, reason=reason
                )
            return key.raw

        return derive


class Libargon2:
    """The library, loaded; MissingError if it is not installed."""

    name = "libargon2.so.1"

    def __init__(self) -> None:
        self._library = _load(self.name, "libargon2-1")
        self._library.argon2_error_message.restype = c_char_p
        self._library.argon2id_hash_raw.argtypes = [
            *(c_uint32, c_uint32, c_uint32),
            *(c_char_p, c_size_t, c_char_p, c_size_t, c_char_p, c_size_t),
        ]

    def argon2id(self, cost: Argon2, password: bytes, salt: bytes, length: int) -> bytes:
        """Return the derived key, computed with as many threads as lanes."""
        key = create_string_buffer(length)
        status = self._library.argon2id_hash_raw(
            *(cost.passes, cost.memory_kib, cost.lanes),
            *(password, len(password), salt, len(salt), key, length),
        )
        if status:
            reason = self._library.argon2_error_message(status).decode()
            memory = f"{cost.memory_kib} KiB of memory"
            raise WorkloadError("argon2id-failed", library=self.name, memory=memory, reason=reason)
        return key.raw


if __name__ == "__main__":
    serve(repeat=repeating("library", KeyJob, prepare))
