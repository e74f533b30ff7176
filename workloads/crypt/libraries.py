"""Ciphers of OpenSSL through `cryptography`, and of PyCryptodome; loaded only by the child.

OpenSSL is the first choice. `cryptography` lacks single DES, CTR for 3DES and Blowfish, and CFB-8
for Blowfish; PyCryptodome has those. Without OpenSSL's legacy provider its Blowfish is missing,
too, and PyCryptodome replaces it.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from workloads.base import WorkloadError
from workloads.crypt.catalogue import CIPHERS, Kind

Buffer = bytes | bytearray | memoryview
Operation = Callable[[], object]
OPENSSL, PYCRYPTODOME = "OpenSSL", "PyCryptodome"
WITHOUT_LEGACY = "CRYPTOGRAPHY_OPENSSL_NO_LEGACY"
# Where different versions of `cryptography` have them.
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
    bind: Callable[[Buffer, bytearray | memoryview], Operation]

    def crypt(self, source: Buffer) -> bytes:
        """Return the next bytes of the stream, for work that is not measured."""
        target = bytearray(len(source) + 16)
        self.bind(source, target)()
        return bytes(target[: len(source)])


Maker = Callable[[bytes, bytes], Stream]


def find(cipher: str, mode: str, *, encrypt: bool, only: str = "") -> Maker | None:
    """Return a maker of streams from the first library with the cipher in that mode, or None.

    A maker takes the key, and an `iv` one block long; for `ctr` that is the first counter. `only`
    restricts it to one library. A stream's `bind(source, target)` makes an operation that turns all
    of `source` into `target`, which is a block longer; in `ecb`, `cbc` and `cfb` the source has
    whole blocks.
    """
    kind = CIPHERS[cipher]
    for library, find_maker in ((OPENSSL, _openssl), (PYCRYPTODOME, _pycryptodome)):
        if only in ("", library) and (maker := find_maker(kind, mode, encrypt)) is not None:
            return maker
    return None


def begin(cipher: str, mode: str, *, encrypt: bool, key: bytes, iv: bytes) -> Stream:
    """Start one stream; WorkloadError if no library here has the cipher in that mode."""
    maker = find(cipher, mode, encrypt=encrypt)
    if maker is None:
        raise WorkloadError("no-cipher", cipher=cipher, mode=mode.upper())
    return maker(key, iv)


def versions() -> dict[str, str]:
    """Return the versions of the libraries."""
    library: Any = importlib.import_module("cryptography")
    backend: Any = importlib.import_module("cryptography.hazmat.backends.openssl").backend
    cryptodome: Any = importlib.import_module("Cryptodome")
    return {
        OPENSSL: f"{backend.openssl_version_text()} through cryptography {library.__version__}",
        PYCRYPTODOME: f"PyCryptodome {cryptodome.__version__}",
    }


def restart_without_legacy() -> None:
    """Restart this program if OpenSSL's legacy provider is not installed.

    `cryptography` refuses to load then, unless a variable is set before its first import.
    """
    try:
        importlib.import_module("cryptography.hazmat.backends.openssl").backend  # noqa: B018
    except ImportError:
        raise
    except Exception:  # its own InternalError or, in newer ones, RuntimeError
        if WITHOUT_LEGACY in os.environ:
            raise
        os.execve(sys.executable, sys.orig_argv, {**os.environ, WITHOUT_LEGACY: "1"})


def _attribute(modules: tuple[str, ...], name: str) -> Any:
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    return None


def _openssl(kind: Kind, mode: str, encrypt: bool) -> Maker | None:
    ciphers: Any = importlib.import_module("cryptography.hazmat.primitives.ciphers")
    lacks: Any = importlib.import_module("cryptography.exceptions").UnsupportedAlgorithm
    with warnings.catch_warnings():  # old ciphers are measured on purpose
        warnings.simplefilter("ignore")
        cipher = _attribute(_ALGORITHMS, kind.algorithm)
        chaining = _attribute(_MODES, mode.upper())
    if cipher is None or chaining is None:
        return None

    def make(key: bytes, iv: bytes) -> Stream:
        cipher_object = ciphers.Cipher(cipher(key), chaining() if mode == "ecb" else chaining(iv))
        update = (cipher_object.encryptor() if encrypt else cipher_object.decryptor()).update_into
        return Stream(OPENSSL, lambda source, target: partial(update, source, target))

    try:
        make(bytes(range(kind.key_bytes)), bytes(kind.block_bytes))
    except lacks:
        return None
    return make


def _pycryptodome(kind: Kind, mode: str, encrypt: bool) -> Maker | None:
    name = f"Cryptodome.Cipher.{_CRYPTODOME_MODULES[kind.algorithm]}"
    try:
        module: Any = importlib.import_module(name)
    except ImportError:
        return None
    number = getattr(module, f"MODE_{mode.upper().removesuffix('8')}")

    def make(key: bytes, iv: bytes) -> Stream:
        by_mode: dict[str, dict[str, bytes | int]] = {
            "ecb": {},
            "ctr": {"nonce": b"", "initial_value": int.from_bytes(iv, "big")},
            "cfb": {"iv": iv, "segment_size": 8 * len(iv)},
            "cfb8": {"iv": iv, "segment_size": 8},
        }
        options = by_mode.get(mode, {"iv": iv})
        cipher = module.new(key, number, **options)
        step = cipher.encrypt if encrypt else cipher.decrypt
        return Stream(
            PYCRYPTODOME,
            lambda source, target: partial(step, source, output=memoryview(target)[: len(source)]),
        )

    return make
