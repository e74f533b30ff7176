"""Repeat a block cipher in a mode on an input; first check it by known answers."""

from __future__ import annotations

import ctypes
import importlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from workloads.base import WorkloadError
from workloads.children import serving
from workloads.children.serving import MissingError, Outcome, Task, serve
from workloads.crypt import known_answers, libraries
from workloads.crypt.catalogue import CIPHERS, MIB, WHOLE_BLOCKS, padded
from workloads.crypt.known_answers import xor

BLOCK_BYTES = 16
# (key, block, encrypted block) by cipher and bits of key.
BLOCKS = {
    (cipher, int(bits)): (vector["key"], vector["plain"], vector["answer"])
    for cipher, sizes in known_answers.KNOWN["blocks"].items()
    for bits, vector in sizes.items()
}

Encrypt = Callable[[bytes], bytes]


def xts(encrypt: Encrypt, tweak: Encrypt, iv: bytes, plain: bytes, block: int) -> bytes:
    """Encrypt block `block` in XTS (IEEE 1619-2007); `tweak` encrypts with the second key."""
    start = block * BLOCK_BYTES
    number = int.from_bytes(tweak(iv), "little")
    # Multiply `block` times by x modulo x^128 + x^7 + x^2 + x + 1, least significant byte first.
    for _ in range(block):
        number <<= 1
        if number >> 128:
            number ^= (1 << 128) | 0x87
    mask = number.to_bytes(BLOCK_BYTES, "little")
    return xor(encrypt(xor(plain[start : start + BLOCK_BYTES], mask)), mask)


# Longer inputs are neither tried before a phase nor decrypted completely for the comparison.
TRIED_BYTES = 4 * MIB
_INFO_CPU_SETTINGS = 1008  # openssl/crypto.h


@dataclass(frozen=True)
class Check:
    """A request to check a cipher in a mode."""

    cipher: str
    mode: str


@dataclass(frozen=True)
class Stream(Check):
    """A request to repeat a cipher in a mode on an input of `bytes`, for `seconds`."""

    bytes: int
    encrypt: bool
    seconds: float
    seed: int


@dataclass(frozen=True)
class Ask:
    """A request without parameters."""


def _answers(request: Check) -> tuple[Outcome, None]:
    """Check a cipher in a mode by known answers; MissingError if no library has it."""
    cipher, mode = request.cipher, request.mode
    maker = libraries.find(cipher, mode, encrypt=True)
    if maker is None:
        raise MissingError("no-cipher", cipher=cipher, mode=mode.upper())
    kind = CIPHERS[cipher]
    library = maker(bytes(range(kind.key_bytes)), bytes(kind.block_bytes)).library
    version = libraries.versions()[library]
    return {"library": version, "held_against": known_answers.check(cipher, mode)}, None


def stream(request: Stream) -> tuple[Outcome, Task]:
    """Prepare one cipher, mode, direction and size; the task repeats it on one stream.

    The stream keeps its key and state from one input to the next: the key schedule is not measured.
    """
    cipher, mode, size = request.cipher, request.mode, request.bytes
    kind = CIPHERS[cipher]
    size = padded(size, kind.block_bytes) if mode in WHOLE_BLOCKS else size
    generator = random.Random(request.seed)
    key, iv = generator.randbytes(kind.key_bytes), generator.randbytes(kind.block_bytes)
    begin = partial(libraries.begin, cipher, mode, key=key, iv=iv)
    # One block longer than their content, as the libraries require of a target.
    plain, encrypted = bytearray(size + 16), bytearray(size + 16)
    source, target = memoryview(plain)[:size], memoryview(encrypted)
    unit = generator.randbytes(min(size, MIB))
    for start in range(0, size, len(unit)):
        part = source[start : start + len(unit)]
        part[:] = unit[: len(part)]
    target[:size] = source  # allocates its pages
    if not request.encrypt:
        begin(encrypt=True).bind(source, target)()
        tried = begin(encrypt=False).crypt(target[: min(size, TRIED_BYTES)])
        if tried != source[:TRIED_BYTES]:
            raise WorkloadError("not-decrypted")
        source, target = target[:size], memoryview(plain)
    operation = begin(encrypt=request.encrypt).bind(source, target)
    batch = serving.calibrate(operation)[0] if size <= TRIED_BYTES else 1
    again = partial(serving.for_seconds, operation, request.seconds, batch)
    # CPU seconds of a call with a single block, nearly all of them Python's.
    block = kind.block_bytes
    single = begin(encrypt=True).bind(bytes(block), bytearray(3 * block))
    return {"call_s": min(serving.calibrate(single)[1] for _ in range(3))}, again


def _instructions(_request: Ask) -> tuple[Outcome, None]:
    """Return OpenSSL's list of processor features, if available, and AES-128-ECB's rate."""
    maker = libraries.find("aes-128", "ecb", encrypt=True, only=libraries.OPENSSL)
    if maker is None:
        raise WorkloadError("no-aes")
    operation = maker(bytes(16), bytes(16)).bind(bytes(MIB), bytearray(MIB + 16))
    operation()
    times_s = []
    for _ in range(20):
        started_s = time.process_time()
        operation()
        times_s.append(time.process_time() - started_s)
    return {"settings": _settings(), "aes_mib_per_s": 1 / min(times_s)}, None


def _settings() -> str | None:
    """Return the processor features detected by cryptography's OpenSSL, None if linked in."""
    for name in ("cryptography.hazmat.bindings._openssl", "cryptography.hazmat.bindings._rust"):
        try:
            library = ctypes.CDLL(str(importlib.import_module(name).__file__))
            info = library.OPENSSL_info
        except (ImportError, OSError, AttributeError):
            continue
        info.restype = ctypes.c_char_p
        settings = info(_INFO_CPU_SETTINGS)
        return settings.decode() if settings else None
    return None


if __name__ == "__main__":
    libraries.restart_without_legacy()
    serve(answers=_answers, stream=stream, instructions=_instructions)
