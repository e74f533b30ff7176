"""Encrypt in the kernel again and again.

The interface is AF_ALG: data are copied into the kernel once, encrypted there, and returned into
our memory. Before a cipher is used, its answers are checked.
"""

from __future__ import annotations

import errno
import mmap
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from contract import system_text
from workloads.base import WorkloadError
from workloads.children import cipher_modes
from workloads.children.cipher_modes import BLOCK_BYTES, BLOCKS
from workloads.children.serving import Job, MissingError, repeating, serve
from workloads.crypt.known_answers import by_definition

# linux/if_alg.h and asm-generic/socket.h
_SOL_ALG, _SET_KEY = 279, 1
_DECRYPT, _ENCRYPT = 0, 1
_SNDBUFFORCE, _RCVBUFFORCE = 32, 33
_IV = bytes(range(BLOCK_BYTES))
# From Linux 7.3 on: 0 permits all ciphers, 1 those on a list, 2 none; others give ENOENT.
RESTRICTION = Path("/proc/sys/crypto/af_alg_restrict")


class Cipher:
    """One algorithm of the kernel, such as `xts(aes)`, with its key; MissingError without it."""

    def __init__(self, algorithm: str, key: bytes, most_bytes: int) -> None:
        with socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET) as listener:
            try:
                listener.bind(("skcipher", algorithm))
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise
                raise MissingError(
                    "kernel-lacks-cipher", algorithm=algorithm, restriction=restriction()
                ) from error
            listener.setsockopt(_SOL_ALG, _SET_KEY, key)
            self._socket, _ = listener.accept()
        self._make_room(most_bytes)

    def crypt(self, operation: int, iv: bytes, data: memoryview, into: memoryview) -> None:
        """Process one request of all bytes; `data` and `into` may be the same memory."""
        try:
            sent_bytes = self._socket.sendmsg_afalg([data], op=operation, iv=iv)
            received_bytes = self._socket.recv_into(into)
        except OSError as error:
            raise WorkloadError("request-refused", size=len(data), reason=error.strerror) from error
        if not sent_bytes == received_bytes == len(into):
            raise WorkloadError(
                "request-cut-short", sent=sent_bytes, size=len(into), done=received_bytes
            )

    def encrypted(self, iv: bytes, data: bytes) -> bytes:
        """Return an encrypted copy."""
        into = bytearray(len(data))
        self.crypt(_ENCRYPT, iv, memoryview(data), memoryview(into))
        return bytes(into)

    def close(self) -> None:
        self._socket.close()

    def _make_room(self, size: int) -> None:
        """Make room for a whole request in the socket.

        Sending one that does not fit would block for ever, and XTS would start again with each part
        that is received separately.
        """
        options = ((_SNDBUFFORCE, socket.SO_SNDBUF), (_RCVBUFFORCE, socket.SO_RCVBUF))
        for force, plain in options:
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, force, size)
            except PermissionError:
                self._socket.setsockopt(socket.SOL_SOCKET, plain, size)
            granted = self._socket.getsockopt(socket.SOL_SOCKET, plain)
            if granted < size:
                raise WorkloadError("request-too-large", granted=granted, size=size)


@dataclass(frozen=True)
class CipherJob(Job):
    """Requests of `request_bytes` to each of `ciphers`, the last of which is applied first."""

    ciphers: tuple[str, ...]
    mode: str
    key_bits: int
    operation: str
    request_bytes: int
    threads: int


def prepare(job: CipherJob) -> tuple[list[str], list[Callable[[], None]]]:
    """Return the drivers, and a step for each thread, with separate sockets and buffers.

    A step is one request to each cipher, done once to test it.
    """
    for name in job.ciphers:
        check(name, job.mode, job.key_bits, job.request_bytes)
    steps = [_step(job) for _ in range(job.threads)]
    crypto = system_text.read(Path("/proc/crypto"))
    return [driver(algorithm(name, job.mode), crypto) for name in job.ciphers], steps


def _step(job: CipherJob) -> Callable[[], None]:
    size = job.request_bytes
    passes = [
        Cipher(algorithm(name, job.mode), os.urandom(key_bytes(job.mode, job.key_bits)), size)
        for name in reversed(job.ciphers)
    ]
    operation = _ENCRYPT if job.operation == "encrypt" else _DECRYPT
    if operation == _DECRYPT:
        passes.reverse()
    plain, buffer = memoryview(mmap.mmap(-1, size)), memoryview(mmap.mmap(-1, size))
    plain[:] = os.urandom(size)

    def step() -> None:
        data = plain
        for cipher in passes:
            cipher.crypt(operation, _IV, data, buffer)
            data = buffer

    step()  # allocate the memory, and let the kernel load its modules
    return step


def restriction() -> str:
    """Return a sentence to add if the kernel denies ciphers to programs, else ""."""
    try:
        level = system_text.read(RESTRICTION).strip()
    except OSError:
        return ""
    if level == "0":
        return ""
    return f" Or it has it, but not for programs: set {RESTRICTION} to 0, it is {level}."


def algorithm(name: str, mode: str) -> str:
    """Return the kernel's name of a cipher in a mode."""
    return f"{mode}({name})"


def key_bytes(mode: str, bits: int) -> int:
    """Return the length of the key; XTS has two keys."""
    return bits // 8 * (2 if mode == "xts" else 1)


@cache
def check(name: str, mode: str, bits: int, size: int) -> None:
    """Compare a block with its published answer, and a request with the mode's definition.

    The request has `size` bytes. Raises WorkloadError if they differ, MissingError if the
    cipher has no such key.
    """
    if (name, bits) not in BLOCKS:
        raise MissingError(
            "no-key-length",
            cipher=name,
            bits=bits,
            blocks=", ".join((f"{cipher_name}-{length}" for cipher_name, length in BLOCKS)),
        )
    key_hex, block_hex, answer_hex = BLOCKS[name, bits]
    key, block, answer = (bytes.fromhex(text) for text in (key_hex, block_hex, answer_hex))
    second = bytes(byte ^ 0x5A for byte in key)
    # First, so that the error names it if the kernel lacks both.
    cipher = Cipher(algorithm(name, mode), key + second if mode == "xts" else key, size)
    # One block of CBC without an initial value is the bare cipher.
    bare, zero = Cipher(algorithm(name, "cbc"), key, mmap.PAGESIZE), bytes(BLOCK_BYTES)
    tweaker = Cipher(algorithm(name, "cbc"), second, mmap.PAGESIZE)

    encrypt, tweak = partial(bare.encrypted, zero), partial(tweaker.encrypted, zero)
    plain = os.urandom(size)
    encrypted = cipher.encrypted(_IV, plain)
    decrypted = bytearray(size)
    cipher.crypt(_DECRYPT, _IV, memoryview(encrypted), memoryview(decrypted))
    right = encrypt(block) == answer and decrypted == plain
    for number in (0, 1, size // BLOCK_BYTES - 1):
        start, end = number * BLOCK_BYTES, (number + 1) * BLOCK_BYTES
        right = right and encrypted[start:end] == (
            cipher_modes.xts(encrypt, tweak, _IV, plain, number)
            if mode == "xts"
            else by_definition("cbc", encrypt, (_IV + encrypted)[start:end], plain[start:end])
        )
    for kernel_cipher in (bare, tweaker, cipher):
        kernel_cipher.close()
    if not right:
        raise WorkloadError("kernel-wrong-answer", cipher=algorithm(name, mode), bits=bits)


def driver(name: str, crypto: str) -> str:
    """Return the driver of highest priority for a cipher, from the text of /proc/crypto.

    The name may be a driver's. Empty if there is none.
    """
    offers = [("", -1)]
    for entry in crypto.split("\n\n"):
        pairs = (line.partition(":") for line in entry.splitlines())
        fields = {key.strip(): value.strip() for key, _, value in pairs}
        if name in (fields.get("name"), fields.get("driver")):
            offers.append((fields.get("driver", ""), int(fields.get("priority", "0"))))
    return max(offers, key=lambda offer: offer[1])[0]


if __name__ == "__main__":
    serve(repeat=repeating("drivers", CipherJob, prepare))
