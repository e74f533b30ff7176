"""Check ciphers by published answers, and modes by a construction from single blocks.

A published vector proves that the cipher is the right one. If none is published for a mode or a key
size, the mode is built here by its definition (NIST SP 800-38A, section 6) from single blocks of
the other library, if that has the cipher.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.base import WorkloadError
from workloads.crypt import libraries
from workloads.crypt.catalogue import CIPHERS, WHOLE_BLOCKS

Block = Callable[[bytes], bytes]

KNOWN: dict[str, Any] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class Vector:
    """A known answer, in bytes, and its source."""

    source: str
    key: bytes
    iv: bytes
    plain: bytes
    answer: bytes


def published(cipher: str, mode: str) -> Vector | None:
    """Return the published answer; None if none is known for this mode."""
    answers = KNOWN["modes"].get(cipher) or KNOWN["modes"].get(CIPHERS[cipher].algorithm, {})
    if mode not in answers:
        return None
    texts = {**answers, **answers[mode]}  # entries of the mode replace the cipher's
    key, iv, plain, answer = (bytes.fromhex(texts[k]) for k in ("key", "iv", "plain", "answer"))
    return Vector(texts["source"], key, iv, plain[: len(answer)], answer)


def check(cipher: str, mode: str) -> list[str]:
    """Check the cipher in both directions; return the sources of the known answers.

    WorkloadError where an answer is wrong, or where no library has the cipher in that mode.
    """
    vectors = [published(cipher, mode), _constructed(cipher, mode)]
    held = [vector for vector in vectors if vector is not None]
    for vector in held:
        texts = ((True, vector.plain, vector.answer), (False, vector.answer, vector.plain))
        for encrypt, text, expected in texts:
            stream = libraries.begin(cipher, mode, encrypt=encrypt, key=vector.key, iv=vector.iv)
            if stream.crypt(text) != expected:
                verb, source = "encrypts" if encrypt else "decrypts", vector.source
                facts = {"cipher": cipher, "mode": mode.upper(), "verb": verb, "source": source}
                raise WorkloadError("wrong-cipher", **facts)
    return [vector.source for vector in held]


def _constructed(cipher: str, mode: str) -> Vector:
    generator = random.Random(f"{cipher} {mode}")
    kind = CIPHERS[cipher]
    key, iv = generator.randbytes(kind.key_bytes), generator.randbytes(kind.block_bytes)
    plain = generator.randbytes(5 * kind.block_bytes + (0 if mode in WHOLE_BLOCKS else 3))
    library, block = _other_block(cipher, mode, key, iv)
    source = f"the mode by its definition, on single blocks of {library}"
    return Vector(source, key, iv, plain, by_definition(mode, block, iv, plain))


def by_definition(mode: str, block: Block, iv: bytes, plain: bytes) -> bytes:
    """Encrypt with a mode built from a block cipher; slow, for comparison."""
    size = 1 if mode == "cfb8" else len(iv)
    register, out = iv, b""
    for start in range(0, len(plain), size):
        part = plain[start : start + size]
        if mode == "ecb":
            out += block(part)
        elif mode == "cbc":
            register = block(xor(part, register))
            out += register
        else:
            stream = block(register)
            result = xor(part, stream)
            out += result
            if mode == "ofb":
                register = stream
            elif mode == "ctr":
                number = int.from_bytes(register, "big") + 1
                register = (number % (1 << 8 * len(iv))).to_bytes(len(iv), "big")
            else:
                register = (register + result)[-len(iv) :]
    return out


def xor(first: bytes, second: bytes) -> bytes:
    """Return the XOR of two texts, as long as the shorter one."""
    return bytes(a ^ b for a, b in zip(first, second, strict=False))


def _other_block(cipher: str, mode: str, key: bytes, iv: bytes) -> tuple[str, Block]:
    """Return a single-block cipher, if possible of the library that does not do the mode."""
    doer = libraries.begin(cipher, mode, encrypt=True, key=key, iv=iv).library
    order = [libraries.OPENSSL, libraries.PYCRYPTODOME]
    order.sort(key=lambda library: library == doer)
    for library in order:
        asked, whole_key = cipher, key
        if cipher == "des" and library == libraries.OPENSSL:
            asked, whole_key = "3des", 3 * key  # with three equal keys 3DES is DES
        if maker := libraries.find(asked, "ecb", encrypt=True, only=library):
            return library, maker(whole_key, iv).crypt
    raise WorkloadError("no-ecb", cipher=cipher)
