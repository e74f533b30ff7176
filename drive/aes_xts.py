"""AES-XTS over runs of sectors: libcrypto, called by a small compiled loop (`xts.c`).

XTS needs one call per sector, which from Python costs several times the cipher itself. The system's
C compiler builds the loop once; the shared object is cached under a hash of its sources.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import subprocess
import tempfile
from pathlib import Path

KEY_BYTES = {128: 32, 256: 64}

_SOURCE = Path(__file__).with_name("xts.c")
_COMPILER = "cc"
_OPTIONS = ("-O2", "-Wall", "-Wextra", "-shared", "-fPIC")
_LIBRARIES = ("-lcrypto",)


class CryptoError(Exception):
    """The cipher is not available or refused; the message is one sentence for people."""


def _cache() -> Path:
    """Return the folder of compiled loops, shared by all drives of this user."""
    if named := os.environ.get("VIRTUAL_DRIVE_CACHE"):
        return Path(named).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "virtual-drive"


def shared_object(cache: Path) -> Path:
    """Return the compiled loop in `cache`, compiling it if it is missing. Raises CryptoError.

    A half-written object is never seen under its name, however many drives start at once.
    """
    text = (*_OPTIONS, *_LIBRARIES, platform.machine(), *platform.libc_ver(), _SOURCE.read_text())
    digest = hashlib.sha256("\0".join(text).encode()).hexdigest()
    path = cache / f"xts-{digest[:16]}.so"
    if not path.exists():
        try:
            cache.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache, prefix="xts-") as folder:
                unfinished = Path(folder) / "xts.so"
                _compile(unfinished)
                unfinished.replace(path)
        except OSError as error:
            raise CryptoError(
                f"the cipher's loop cannot be kept in {cache} ({error.strerror}); "
                "name a folder that can be written with VIRTUAL_DRIVE_CACHE"
            ) from error
    return path


def _compile(target: Path) -> None:
    command = [_COMPILER, *_OPTIONS, "-o", str(target), str(_SOURCE), *_LIBRARIES]
    try:
        compilation = subprocess.run(command, capture_output=True, text=True, check=False)
        reason = next((line for line in compilation.stderr.splitlines() if "error" in line), "")
        if compilation.returncode == 0:
            return
    except FileNotFoundError:
        reason = f"there is no {_COMPILER}"
    raise CryptoError(
        f"the cipher's loop could not be compiled ({reason.strip() or 'no reason given'}); "
        "install the packages gcc, libc6-dev and libssl-dev"
    )


@functools.cache
def load() -> ctypes.CDLL:
    """Load the loop, which releases the interpreter while it runs. Raises CryptoError."""
    path = shared_object(_cache())
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise CryptoError(f"{error}; remove {path}, and it will be made again") from error
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    library.xts_new.restype = pointer
    library.xts_new.argtypes = [ctypes.c_char_p, size, ctypes.c_int]
    library.xts_free.restype = None
    library.xts_free.argtypes = [pointer]
    library.xts_run.argtypes = [pointer, ctypes.c_uint64, pointer, size, size]
    return library


class _Context:
    """One direction's key schedule; threads may share it, and it is wiped when freed."""

    def __init__(self, key: bytes, encrypt: bool, sector_bytes: int) -> None:
        library = load()
        self._free, self._run = library.xts_free, library.xts_run
        self._sector_bytes = sector_bytes
        self._address = library.xts_new(key, len(key), encrypt)
        if self._address is None:
            raise CryptoError("libcrypto refused the AES-XTS key")

    def __del__(self) -> None:
        if getattr(self, "_address", None):
            self._free(self._address)

    def run(self, lba: int, data: memoryview) -> None:
        if len(data) % self._sector_bytes:
            raise ValueError("only whole sectors can be encrypted")
        if not data:
            return
        first = ctypes.addressof(ctypes.c_char.from_buffer(data))
        if not self._run(self._address, lba, first, len(data), self._sector_bytes):
            raise CryptoError("libcrypto failed to process a sector")


class AesXts:
    """AES-XTS with `key` (32 or 64 bytes, halves unequal); any number of threads may use it.

    `encrypt(lba, data)` and `decrypt(lba, data)` work in place on whole sectors, the first of them
    at address `lba`. The tweak is the address, little-endian, as in dm-crypt's plain64.
    """

    def __init__(self, key: bytes, sector_bytes: int) -> None:
        self.encrypt = _Context(key, True, sector_bytes).run
        self.decrypt = _Context(key, False, sector_bytes).run
