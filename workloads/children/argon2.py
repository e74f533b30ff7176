"""Argon2id of libargon2, the library of its authors."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_size_t, c_uint32, create_string_buffer

from workloads.base import WorkloadError
from workloads.children.serving import MissingError
from workloads.key_derivation import Argon2

NAME = "libargon2.so.1"


class Library:
    """The library, loaded; MissingError where it is not installed."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(NAME)
        except OSError as error:
            raise MissingError(
                f"The library {NAME} is missing: install its package (libargon2-1)."
            ) from error
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
            raise WorkloadError(f"{NAME} failed with {cost.memory_kib} KiB of memory: {reason}.")
        return key.raw
