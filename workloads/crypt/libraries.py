"""OpenSSL through `cryptography`, and PyCryptodome for what that lacks; loaded by the child alone.

OpenSSL is the first choice. Single DES is not in `cryptography` at all, 3DES and Blowfish have no
CTR there, Blowfish no CFB-8; those are PyCryptodome's. Where OpenSSL's legacy provider is missing,
so is its Blowfish, and PyCryptodome does that too.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from workloads.crypt.catalogue import CIPHERS

Buffer = bytes | bytearray | memoryview
Operation = Callable[[], object]
OPENSSL, PYCRYPTODOME = "OpenSSL", "PyCryptodome"
# Both moved from one version of `cryptography` to the next.
_ALGORITHMS = (
    "cryptography.hazmat.decrepit.ciphers.algorithms",
    "cryptography.hazmat.primitives.ciphers.algorithms",
)
_MODES = (
    "cryptography.hazmat.decrepit.ciphers.modes",
    "cryptography.hazmat.primitives.ciphers.modes",
)
_CRYPTODOME_MODULES = {"DES": "DES", "TripleDES": "DES3", "AES": "AES", "Blowfish": "Blowfish"}


@dataclass(frozen=True)
class Stream:
    """A cipher with its key and state in one direction."""

    library: str
    bind: Callable[[Buffer, bytearray], Operation]

    def crypt(self, source: Buffer) -> bytes:
        """The next bytes of the stream, for what is not measured."""
        target = bytearray(len(source) + 16)
        self.bind(source, target)()
        return bytes(target[: len(source)])


def begin(
    cipher: str, mode: str, *, encrypt: bool, key: bytes, iv: bytes, only: str = ""
) -> Stream | None:
    """A fresh stream of the first library that has the cipher in that mode; None if none has.

    `iv` is a block long; of `ctr` it is the first counter. `only` restricts it to one library.
    `bind(source, target)` makes an operation that turns all of `source` into `target`, which is a
    block longer than `source`; in `ecb`, `cbc` and `cfb` the source is of whole blocks.
    """
    for library, start in ((OPENSSL, _openssl), (PYCRYPTODOME, _pycryptodome)):
        if only in ("", library):
            stream = start(CIPHERS[cipher].algorithm, mode, encrypt, key, iv)
            if stream is not None:
                return stream
    return None


def versions() -> dict[str, str]:
    """What does the work, by library."""
    own: Any = importlib.import_module("cryptography")
    backend: Any = importlib.import_module("cryptography.hazmat.backends.openssl").backend
    other: Any = importlib.import_module("Cryptodome")
    return {
        OPENSSL: f"{backend.openssl_version_text()} through cryptography {own.__version__}",
        PYCRYPTODOME: f"PyCryptodome {other.__version__}",
    }


def _found(modules: tuple[str, ...], name: str) -> Any:
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    return None


def _openssl(algorithm: str, mode: str, encrypt: bool, key: bytes, iv: bytes) -> Stream | None:
    ciphers: Any = importlib.import_module("cryptography.hazmat.primitives.ciphers")
    lacks: Any = importlib.import_module("cryptography.exceptions").UnsupportedAlgorithm
    with warnings.catch_warnings():  # that a cipher is old is why it is measured
        warnings.simplefilter("ignore")
        make, make_mode = _found(_ALGORITHMS, algorithm), _found(_MODES, mode.upper())
        if make is None or make_mode is None:
            return None
        whole = ciphers.Cipher(make(key), make_mode() if mode == "ecb" else make_mode(iv))
        try:
            context = whole.encryptor() if encrypt else whole.decryptor()
        except lacks:
            return None
    return Stream(OPENSSL, lambda source, target: partial(context.update_into, source, target))


def _pycryptodome(algorithm: str, mode: str, encrypt: bool, key: bytes, iv: bytes) -> Stream | None:
    module: Any = importlib.import_module(f"Cryptodome.Cipher.{_CRYPTODOME_MODULES[algorithm]}")
    options: dict[str, Any] = {
        "ecb": {},
        "ctr": {"nonce": b"", "initial_value": int.from_bytes(iv, "big")},
        "cfb": {"iv": iv, "segment_size": 8 * len(iv)},
        "cfb8": {"iv": iv, "segment_size": 8},
    }.get(mode, {"iv": iv})
    number = getattr(module, f"MODE_{mode.upper().removesuffix('8')}")
    made = module.new(key, number, **options)
    step = made.encrypt if encrypt else made.decrypt
    return Stream(
        PYCRYPTODOME,
        lambda source, target: partial(step, source, output=memoryview(target)[: len(source)]),
    )
