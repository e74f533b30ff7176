"""Encrypt or decrypt a buffer in memory over and over; known answers are asked for first."""

from __future__ import annotations

import ctypes
import importlib
import random
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from workloads.base import WorkloadError
from workloads.children import repeat
from workloads.children.serving import MissingError, Outcome, Task, serve
from workloads.crypt import known_answers, libraries
from workloads.crypt.catalogue import CIPHERS, MIB, WHOLE_BLOCKS, padded

# Longer inputs are neither tried out before a phase nor decrypted whole to be compared.
TRIED_BYTES = 4 * MIB
_INFO_CPU_SETTINGS = 1008  # openssl/crypto.h


def _answers(request: Mapping[str, Any]) -> tuple[Outcome, None]:
    """Hold a cipher in a mode against its known answers; MissingError where no library has it."""
    cipher, mode = request["cipher"], request["mode"]
    maker = libraries.find(cipher, mode, encrypt=True)
    if maker is None:
        raise MissingError(f"No library here has {cipher} in {mode.upper()}.")
    kind = CIPHERS[cipher]
    library = maker(bytes(range(kind.key_bytes)), bytes(kind.block_bytes)).library
    version = libraries.versions()[library]
    return {"library": version, "held_against": known_answers.check(cipher, mode)}, None


def stream(request: Mapping[str, Any]) -> tuple[Outcome, Task]:
    """Lay out one cipher, mode, direction and size; `go` repeats it on one stream.

    The stream keeps its key and state from one input to the next: the key schedule is not measured.
    """
    cipher, mode, size = request["cipher"], request["mode"], request["bytes"]
    kind = CIPHERS[cipher]
    size = padded(size, kind.block_bytes) if mode in WHOLE_BLOCKS else size
    generator = random.Random(request["seed"])
    key, iv = generator.randbytes(kind.key_bytes), generator.randbytes(kind.block_bytes)
    begin = partial(libraries.begin, cipher, mode, key=key, iv=iv)
    # A block longer than what they hold, as the libraries want of a target.
    plain, encrypted = bytearray(size + 16), bytearray(size + 16)
    source, target = memoryview(plain)[:size], memoryview(encrypted)
    _fill(source, generator)
    target[:size] = source  # so that its pages are there
    if not request["encrypt"]:
        begin(encrypt=True).bind(source, target)()
        _compare(begin(encrypt=False), target[:size], source)
        source, target = target[:size], memoryview(plain)
    operation = begin(encrypt=request["encrypt"]).bind(source, target)
    batch = repeat.calibrate(operation)[0] if size <= TRIED_BYTES else 1
    again = partial(repeat.for_seconds, operation, request["seconds"], batch)
    return {"call_s": _call_s(begin, kind.block_bytes)}, again


def _fill(target: memoryview, generator: random.Random) -> None:
    unit = generator.randbytes(min(len(target), MIB))
    for start in range(0, len(target), len(unit)):
        part = target[start : start + len(unit)]
        part[:] = unit[: len(part)]


def _compare(other: libraries.Stream, source: memoryview, plain: memoryview) -> None:
    """Decrypt the beginning, which must be what was encrypted."""
    if other.crypt(source[:TRIED_BYTES]) != plain[:TRIED_BYTES]:
        raise WorkloadError("What was decrypted is not what was encrypted: the library is broken.")


def _call_s(begin: Any, block_bytes: int) -> float:
    """CPU seconds of a call with a single block, of which nearly all are Python's."""
    operation = begin(encrypt=True).bind(bytes(block_bytes), bytearray(3 * block_bytes))
    return min(repeat.calibrate(operation)[1] for _ in range(3))


def _instructions(_request: Mapping[str, Any]) -> tuple[Outcome, None]:
    """OpenSSL's own word on the processor's features, if to be had, and the rate of AES-128-ECB."""
    maker = libraries.find("aes-128", "ecb", encrypt=True, only=libraries.OPENSSL)
    if maker is None:
        raise WorkloadError("OpenSSL has no AES here.")
    operation = maker(bytes(16), bytes(16)).bind(bytes(MIB), bytearray(MIB + 16))
    operation()
    best_s = min(_taken_s(operation) for _ in range(20))
    return {"settings": _settings(), "aes_mib_per_s": 1 / best_s}, None


def _taken_s(operation: libraries.Operation) -> float:
    started_s = time.process_time()
    operation()
    return time.process_time() - started_s


def _settings() -> str | None:
    """The features that the OpenSSL below `cryptography` believes in; None if it is linked in."""
    for name in ("cryptography.hazmat.bindings._openssl", "cryptography.hazmat.bindings._rust"):
        try:
            library = ctypes.CDLL(str(importlib.import_module(name).__file__))
            info = library.OPENSSL_info
        except (ImportError, OSError, AttributeError):
            continue
        info.restype = ctypes.c_char_p
        said = info(_INFO_CPU_SETTINGS)
        return said.decode() if said else None
    return None


if __name__ == "__main__":
    libraries.restart_without_legacy()
    serve({"answers": _answers, "stream": stream, "instructions": _instructions})
