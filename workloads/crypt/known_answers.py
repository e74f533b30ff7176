"""Published answers of every cipher, and every mode built again from single blocks.

A published vector proves that the cipher is the right one. Where none is published for a mode or a
key size, the mode is made here by its definition (NIST SP 800-38A, section 6) from single blocks of
the other library, where that has the cipher.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from workloads.base import WorkloadError
from workloads.crypt import libraries
from workloads.crypt.catalogue import CIPHERS, WHOLE_BLOCKS

Block = Callable[[bytes], bytes]

# NIST SP 800-38A, appendix F: the same plaintext and vectors throughout.
_AES_PLAIN = (
    "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
    "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
)
_AES_IV, _AES_COUNTER = "000102030405060708090a0b0c0d0e0f", "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"
_AES_KEYS = {
    "aes-128": "2b7e151628aed2a6abf7158809cf4f3c",
    "aes-192": "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
    "aes-256": "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
}
# Its sections F.1 to F.5, by mode and then by key size; as many bytes as are compared.
_AES = {
    "ecb": (
        "3ad77bb40d7a3660a89ecaf32466ef97f5d3d58503b9699de785895a96fdbaaf",
        "bd334f1d6e45f25ff712a214571fa5cc974104846d0ad3ad7734ecb3ecee4eef",
        "f3eed1bdb5d2a03c064b5a7e3db181f8591ccb10d410ed26dc5ba74a31362870",
    ),
    "cbc": (
        "7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b2",
        "4f021db243bc633d7178183a9fa071e8b4d9ada9ad7dedf4e5e738763f69145a",
        "f58c4c04d6e5f1ba779eabfb5f7bfbd69cfc4e967edb808d679f777bc6702c7d",
    ),
    "cfb": (
        "3b3fd92eb72dad20333449f8e83cfb4ac8a64537a0b3a93fcde3cdad9f1ce58b",
        "cdc80d6fddf18cab34c25909c99a417467ce7f7f81173621961a2b70171d3d7a",
        "dc7e84bfda79164b7ecd8486985d386039ffed143b28b1c832113c6331e5407b",
    ),
    "cfb8": (
        "3b79424c9c0dd436bace9e0ed4586a4f32b9",
        "cda2521ef0a905ca44cd057cbf0d47a0678a",
        "dc1f1a8520a64db55fcc8ac554844e889700",
    ),
    "ofb": (
        "3b3fd92eb72dad20333449f8e83cfb4a7789508d16918f03f53c52dac54ed825",
        "cdc80d6fddf18cab34c25909c99a4174fcc28b8d4c63837c09e81700c1100401",
        "dc7e84bfda79164b7ecd8486985d38604febdc6740d20b3ac88f6ad82a4fb08d",
    ),
    "ctr": (
        "874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff",
        "1abc932417521ca24f2b0459fe7e6e0b090339ec0aa6faefd5ccc2c6f4ce8e94",
        "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5",
    ),
}
# FIPS 81, appendices B to E: "Now is the time for all ".
_DES_KEY, _DES_IV = "0123456789abcdef", "1234567890abcdef"
_DES_PLAIN = "4e6f77206973207468652074696d6520666f7220616c6c20"
_DES = {
    "ecb": "3fa40e8a984d48156a271787ab8883f9893d51ec4b563b53",
    "cbc": "e5c7cdde872bf27c43e934008c389c0f683788499a7c05f6",
    "cfb": "f3096249c7f46e51a69e839b1a92f78403467133898ea622",
    "cfb8": "f31fda07011462ee187f",
    "ofb": "f3096249c7f46e5135f24a242eeb3d3f3d6d5be3255af8c3",
}
# NIST SP 800-67, appendix B.1; the plaintext is misspelt there too.
_3DES_KEY = "0123456789abcdef23456789abcdef01456789abcdef0123"
_3DES_PLAIN, _3DES_ECB = (
    "54686520717566636b2062726f776e20666f78206a756d70",
    "a826fd8ce53b855fcce21c8112256fe668d5c05dd9b6b900",
)
# Schneier's vectors for Blowfish: of ECB the one whose key has 128 bits, and the chaining modes'
# (by Eric Young), whole blocks of them.
_BLOWFISH_ECB = ("f0e1d2c3b4a5968778695a4b3c2d1e0f", "fedcba9876543210", "93142887ee3be15c")
_BLOWFISH_KEY, _BLOWFISH_IV = "0123456789abcdeff0e1d2c3b4a59687", "fedcba9876543210"
_BLOWFISH_PLAIN = "37363534333231204e6f77206973207468652074696d6520"
_BLOWFISH = {
    "cbc": "6b77b4d63006dee605b156e27403979358deb9e7154616d9",
    "cfb": "e73214a2822139caf26ecf6d2eb9e76e3da3de04d1517200",
    "ofb": "e73214a2822139ca62b343cc5b65587310dd908d0c241b22",
}


@dataclass(frozen=True)
class Vector:
    """A known answer, in bytes, and its source."""

    source: str
    key: bytes
    iv: bytes
    plain: bytes
    answer: bytes


def published(cipher: str, mode: str) -> Vector | None:
    """Return the published answer; None where none is known for this mode."""
    if cipher in _AES_KEYS:
        answer = _AES[mode][list(_AES_KEYS).index(cipher)]
        iv = _AES_COUNTER if mode == "ctr" else _AES_IV
        plain = _AES_PLAIN[: len(answer)]
        return _vector("NIST SP 800-38A", _AES_KEYS[cipher], iv, plain, answer)
    if cipher == "des" and mode in _DES:
        return _vector("FIPS 81", _DES_KEY, _DES_IV, _DES_PLAIN[: len(_DES[mode])], _DES[mode])
    if cipher == "3des" and mode == "ecb":
        return _vector("NIST SP 800-67", _3DES_KEY, _DES_IV, _3DES_PLAIN, _3DES_ECB)
    # The published keys have 128 bits; that a longer one is taken whole is the other check's.
    if CIPHERS[cipher].algorithm == "Blowfish" and mode == "ecb":
        key, plain, answer = _BLOWFISH_ECB
        return _vector("Schneier", key, _BLOWFISH_IV, plain, answer)
    if CIPHERS[cipher].algorithm == "Blowfish" and mode in _BLOWFISH:
        answer = _BLOWFISH[mode]
        return _vector("Young", _BLOWFISH_KEY, _BLOWFISH_IV, _BLOWFISH_PLAIN, answer)
    return None


def check(cipher: str, mode: str) -> list[str]:
    """Try the cipher in both directions; return what it was held against.

    WorkloadError where an answer is wrong, or where no library has the cipher in that mode.
    """
    vectors = [published(cipher, mode), _constructed(cipher, mode)]
    held = [vector for vector in vectors if vector is not None]
    for vector in held:
        _compare(cipher, mode, vector)
    return [vector.source for vector in held]


def _vector(source: str, *words: str) -> Vector:
    return Vector(source, *(bytes.fromhex(word) for word in words))


def _constructed(cipher: str, mode: str) -> Vector:
    generator = random.Random(f"{cipher} {mode}")
    kind = CIPHERS[cipher]
    key, iv = generator.randbytes(kind.key_bytes), generator.randbytes(kind.block_bytes)
    plain = generator.randbytes(5 * kind.block_bytes + (0 if mode in WHOLE_BLOCKS else 3))
    library, block = _other_block(cipher, mode, key, iv)
    source = f"the mode by its definition, on single blocks of {library}"
    return Vector(source, key, iv, plain, by_definition(mode, block, iv, plain))


def by_definition(mode: str, block: Block, iv: bytes, plain: bytes) -> bytes:
    """Encrypt with a mode made from a block cipher; slow, for comparison."""
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


def xor(left: bytes, right: bytes) -> bytes:
    """Bit by bit, as far as the shorter one goes."""
    return bytes(a ^ b for a, b in zip(left, right, strict=False))


def _other_block(cipher: str, mode: str, key: bytes, iv: bytes) -> tuple[str, Block]:
    """Single blocks of the library that does not do the mode, if it has the cipher."""
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


def _compare(cipher: str, mode: str, vector: Vector) -> None:
    ways = ((True, vector.plain, vector.answer), (False, vector.answer, vector.plain))
    for encrypt, text, wanted in ways:
        stream = libraries.begin(cipher, mode, encrypt=encrypt, key=vector.key, iv=vector.iv)
        if stream.crypt(text) != wanted:
            verb = "encrypts" if encrypt else "decrypts"
            raise WorkloadError(
                "wrong-cipher", cipher=cipher, mode=mode.upper(), verb=verb, source=vector.source
            )
