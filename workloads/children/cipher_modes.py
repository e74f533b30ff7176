"""Known answers of block ciphers with blocks of 128 bits, and what follows from them for modes."""

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
from workloads.children.serving import Answer, MissingError, Outcome, Task, serve
from workloads.crypt import known_answers, libraries
from workloads.crypt.catalogue import CIPHERS, MIB, WHOLE_BLOCKS, padded
from workloads.crypt.known_answers import xor

BLOCK_BYTES = 16
_PLAIN = "00112233445566778899aabbccddeeff"
_COUNT_128 = "000102030405060708090a0b0c0d0e0f"
_COUNT_256 = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
_HEX_128 = "0123456789abcdeffedcba9876543210"
_HEX_256 = "0123456789abcdeffedcba987654321000112233445566778899aabbccddeeff"
_CAST_256 = "2342bb9efa38542cbed0ac83940ac2988d7c47ce264908461cc1b5137ae6b604"
_ZERO = "00" * BLOCK_BYTES

# (key, block, encrypted block) by cipher and bits of key. Sources: AES, FIPS 197 appendix C;
# Camellia, RFC 3713 appendix A; Twofish, the tables of its designers (ecb_ival.txt); Serpent, the
# vectors of Linux (crypto/testmgr.h); CAST-256, RFC 2612 appendix A; ARIA, RFC 5794 appendix A;
# SM4, GB/T 32907-2016 appendix A; Kuznyechik, RFC 7801 section 5.
BLOCKS = {
    ("aes", 128): (_COUNT_128, _PLAIN, "69c4e0d86a7b0430d8cdb78070b4c55a"),
    ("aes", 256): (_COUNT_256, _PLAIN, "8ea2b7ca516745bfeafc49904b496089"),
    ("camellia", 128): (_HEX_128, _HEX_128, "67673138549669730857065648eabe43"),
    ("camellia", 256): (_HEX_256, _HEX_128, "9acc237dff16d76c20ef7c919e3a7509"),
    ("twofish", 128): (_ZERO, _ZERO, "9f589f5cf6122c32b6bfec2f2ae8c35a"),
    ("twofish", 256): (_HEX_256, _ZERO, "37527be0052334b89f0cfccae87cfa20"),
    ("serpent", 128): (_COUNT_128, _COUNT_128, "4c7d8a328072a22c823e4a1f3acda16d"),
    ("serpent", 256): (_COUNT_256, _COUNT_128, "de269ff833e432b85b2e88d2701ce75c"),
    ("cast6", 128): (
        *("2342bb9efa38542c0af75647f29f615d", _ZERO),
        "c842a08972b43d20836c91d1b7530f6b",
    ),
    ("cast6", 256): (_CAST_256, _ZERO, "4f6a2038286897b9c9870136553317fa"),
    ("aria", 128): (_COUNT_128, _PLAIN, "d718fbd6ab644c739da95f3be6451778"),
    ("aria", 256): (_COUNT_256, _PLAIN, "f92bd7c79fb72e2f2b8f80c1972d24fc"),
    ("sm4", 128): (_HEX_128, _HEX_128, "681edf34d206965e86b3e94f536e4246"),
    ("kuznyechik", 256): (
        "8899aabbccddeeff0011223344556677fedcba98765432100123456789abcdef",
        "1122334455667700ffeeddccbbaa9988",
        "7f679d90bebc24305a468d42b9d4edcd",
    ),
}

Encrypt = Callable[[bytes], bytes]


def cbc(encrypt: Encrypt, iv: bytes, plain: bytes, answer: bytes, block: int) -> bytes:
    """Block number `block` of the answer as CBC (NIST SP 800-38A) has it from the one before."""
    start = block * BLOCK_BYTES
    before = answer[start - BLOCK_BYTES : start] if block else iv
    return encrypt(xor(plain[start : start + BLOCK_BYTES], before))


def xts(encrypt: Encrypt, tweak: Encrypt, iv: bytes, plain: bytes, block: int) -> bytes:
    """Block number `block` as XTS (IEEE 1619-2007) has it; `tweak` encrypts with the second key."""
    start = block * BLOCK_BYTES
    mask = _times_alpha(tweak(iv), block)
    return xor(encrypt(xor(plain[start : start + BLOCK_BYTES], mask)), mask)


def _times_alpha(value: bytes, times: int) -> bytes:
    """Multiplied so often by x modulo x^128 + x^7 + x^2 + x + 1, least significant byte first."""
    number = int.from_bytes(value, "little")
    for _ in range(times):
        number <<= 1
        if number >> 128:
            number ^= (1 << 128) | 0x87
    return number.to_bytes(BLOCK_BYTES, "little")


# Longer inputs are neither tried out before a phase nor decrypted whole to be compared.
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
    """A request without anything more."""


def _answers(request: Check) -> tuple[Outcome, None]:
    """Hold a cipher in a mode against its known answers; MissingError where no library has it."""
    cipher, mode = request.cipher, request.mode
    maker = libraries.find(cipher, mode, encrypt=True)
    if maker is None:
        raise MissingError("no-cipher", cipher=cipher, mode=mode.upper())
    kind = CIPHERS[cipher]
    library = maker(bytes(range(kind.key_bytes)), bytes(kind.block_bytes)).library
    version = libraries.versions()[library]
    return {"library": version, "held_against": known_answers.check(cipher, mode)}, None


def stream(request: Stream) -> tuple[Outcome, Task]:
    """Lay out one cipher, mode, direction and size; `go` repeats it on one stream.

    The stream keeps its key and state from one input to the next: the key schedule is not measured.
    """
    cipher, mode, size = request.cipher, request.mode, request.bytes
    kind = CIPHERS[cipher]
    size = padded(size, kind.block_bytes) if mode in WHOLE_BLOCKS else size
    generator = random.Random(request.seed)
    key, iv = generator.randbytes(kind.key_bytes), generator.randbytes(kind.block_bytes)
    begin = partial(libraries.begin, cipher, mode, key=key, iv=iv)
    # A block longer than what they hold, as the libraries want of a target.
    plain, encrypted = bytearray(size + 16), bytearray(size + 16)
    source, target = memoryview(plain)[:size], memoryview(encrypted)
    unit = generator.randbytes(min(size, MIB))
    for start in range(0, size, len(unit)):
        part = source[start : start + len(unit)]
        part[:] = unit[: len(part)]
    target[:size] = source  # so that its pages are there
    if not request.encrypt:
        begin(encrypt=True).bind(source, target)()
        tried = begin(encrypt=False).crypt(target[: min(size, TRIED_BYTES)])
        if tried != source[:TRIED_BYTES]:
            raise WorkloadError("not-decrypted")
        source, target = target[:size], memoryview(plain)
    operation = begin(encrypt=request.encrypt).bind(source, target)
    batch = serving.calibrate(operation)[0] if size <= TRIED_BYTES else 1
    again = partial(serving.for_seconds, operation, request.seconds, batch)
    # CPU seconds of a call with a single block, of which nearly all are Python's.
    block = kind.block_bytes
    single = begin(encrypt=True).bind(bytes(block), bytearray(3 * block))
    return {"call_s": min(serving.calibrate(single)[1] for _ in range(3))}, again


def _instructions(_request: Ask) -> tuple[Outcome, None]:
    """Return the processor's features as OpenSSL lists them, if it does, and AES-128-ECB's rate."""
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
    """Return the features that the OpenSSL below `cryptography` believes in.

    None if it is linked in.
    """
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
    serve(
        {
            "answers": Answer(Check, _answers),
            "stream": Answer(Stream, stream),
            "instructions": Answer(Ask, _instructions),
        }
    )
