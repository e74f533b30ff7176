"""Encrypt in the kernel again and again, by dm-crypt on a disk that only exists in memory.

Below is the target `zero` of device-mapper, which discards what is written and reads zeros: no
disk, file system or page cache takes part. dm-crypt encrypts in the calling thread (without its
work queues), so that a thread keeps one CPU busy. Before a cipher is used, its answers are checked
on a sector in memory. The kernel removes each device when it is closed, also after a kill.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from io import FileIO
from pathlib import Path

from contract import system_text
from workloads import programs
from workloads.base import WorkloadError
from workloads.children import cipher_modes
from workloads.children.cipher_modes import BLOCK_BYTES, BLOCKS
from workloads.children.serving import Job, MissingError, repeating, serve
from workloads.crypt.known_answers import by_definition

SECTOR_BYTES, LARGE_SECTOR_BYTES = 512, 4096
INLINE = ("no_read_workqueue", "no_write_workqueue", f"sector_size:{LARGE_SECTOR_BYTES}")
CHECKED_SECTOR = 3  # a number that is not 0, so that initial values count
MEMORY = Path("/dev/shm")


def mapped(target: str, size_bytes: int) -> FileIO:
    """Return a new device-mapper device of one target, without caching; closing it removes it.

    Raises WorkloadError with dmsetup's last message.
    """
    name = f"fde-cipher-{os.getpid()}-{os.urandom(4).hex()}"
    with os.fdopen(os.memfd_create(name), "w+b") as table:  # a key appears on no command line
        table.write(f"0 {size_bytes // SECTOR_BYTES} {target}\n".encode())
        table.seek(0)
        programs.run(["dmsetup", "create", name], stdin=table)
    try:
        return FileIO(f"/dev/mapper/{name}", "r+", opener=_uncached)
    finally:
        programs.run(["dmsetup", "remove", "--deferred", name])


def _uncached(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_DIRECT)


def dm_crypt(below: FileIO | str, spec: str, key: bytes, size_bytes: int, *how: str) -> FileIO:
    """Return a dm-crypt device on `below`, by dm-crypt's name of a cipher and its options.

    MissingError if the kernel has no such cipher.
    """
    if isinstance(below, FileIO):
        number = os.fstat(below.fileno()).st_rdev
        below = f"{os.major(number)}:{os.minor(number)}"
    options = " ".join([str(len(how)), *how])
    try:
        return mapped(f"crypt {spec} {key.hex()} 0 {below} 0 {options}", size_bytes)
    except WorkloadError as error:
        raise MissingError("kernel-lacks-cipher", cipher=spec) from error


@contextmanager
def sector_cipher(spec: str, key: bytes) -> Iterator[Callable[..., bytes]]:
    """Yield a function that encrypts a sector of 512 bytes (data, its number) by dm-crypt.

    WorkloadError if decrypting does not give back the data.
    """
    size_bytes = (CHECKED_SECTOR + 1) * SECTOR_BYTES
    number, path = tempfile.mkstemp(dir=MEMORY)
    with os.fdopen(number, "r+b", buffering=0) as file:
        try:
            file.truncate(size_bytes)
            loop = programs.run(["losetup", "--find", "--show", path]).strip()
        finally:
            Path(path).unlink()
        try:
            device = dm_crypt(loop, spec, key, size_bytes)
        finally:
            programs.run(["losetup", "--detach", loop])  # once the device is removed
        with device, mmap.mmap(-1, mmap.PAGESIZE) as buffer:
            memory = memoryview(buffer)[:SECTOR_BYTES]

            def encrypt(data: bytes, sector: int = 0) -> bytes:
                memory[:] = data
                os.pwrite(device.fileno(), memory, sector * SECTOR_BYTES)
                memory[:] = bytes(SECTOR_BYTES)
                os.preadv(device.fileno(), [memory], sector * SECTOR_BYTES)
                if bytes(memory) != data:
                    raise WorkloadError("kernel-wrong-answer", cipher=spec)
                return os.pread(file.fileno(), SECTOR_BYTES, sector * SECTOR_BYTES)

            try:
                yield encrypt
            finally:
                memory.release()


@dataclass(frozen=True)
class CipherJob(Job):
    """Requests of `request_bytes` through each of `ciphers`, the last of which is applied first.

    `driver` is the kernel's driver of a single cipher; empty for the one that it prefers.
    """

    ciphers: tuple[str, ...]
    mode: str
    key_bits: int
    driver: str
    operation: str
    request_bytes: int
    threads: int


def prepare(job: CipherJob) -> tuple[list[str], list[Callable[[], None]]]:
    """Return the drivers, and a step for each thread, with separate devices and buffers.

    A step is one request, done once to test it.
    """
    for name in job.ciphers:
        check(name, job.mode, job.key_bits, job.driver)
    steps = [_step(job) for _ in range(job.threads)]
    crypto = system_text.read(Path("/proc/crypto"))
    return [driver(job.driver or f"{job.mode}({name})", crypto) for name in job.ciphers], steps


def _step(job: CipherJob) -> Callable[[], None]:
    size = job.request_bytes
    device = mapped("zero", size)
    for name in job.ciphers:
        key = os.urandom(key_bytes(job.mode, job.key_bits))
        device = dm_crypt(device, specification(name, job.mode, job.driver), key, size, *INLINE)
    buffer = memoryview(mmap.mmap(-1, size))
    buffer[:] = os.urandom(size)

    def step() -> None:
        number = device.fileno()
        if job.operation == "encrypt":
            moved = os.pwrite(number, buffer, 0)
        else:
            moved = os.preadv(number, [buffer], 0)
        if moved != size:
            raise WorkloadError("request-cut-short", size=size, moved=moved)

    step()  # allocate the memory
    return step


def specification(name: str, mode: str, driver_name: str = "") -> str:
    """Return dm-crypt's name of a cipher in a mode, or of a driver."""
    return f"capi:{driver_name}-plain64" if driver_name else f"{name}-{mode}-plain64"


def key_bytes(mode: str, bits: int) -> int:
    """Return the length of the key; XTS has two keys."""
    return bits // 8 * (2 if mode == "xts" else 1)


@cache
def check(name: str, mode: str, bits: int, driver_name: str) -> None:
    """Compare a block with its published answer, and a sector with the mode's definition.

    Raises WorkloadError if they differ, MissingError if the cipher has no such key.
    """
    if (name, bits) not in BLOCKS:
        raise MissingError(
            "no-key-length",
            cipher=name,
            bits=bits,
            blocks=", ".join((f"{cipher_name}-{length}" for cipher_name, length in BLOCKS)),
        )
    key, block, answer = (bytes.fromhex(text) for text in BLOCKS[name, bits])
    second = bytes(byte ^ 0x5A for byte in key)
    spec = specification(name, mode, driver_name)
    plain, iv = os.urandom(SECTOR_BYTES), CHECKED_SECTOR.to_bytes(BLOCK_BYTES, "little")
    # First, so that the error names it if the kernel lacks both.
    with sector_cipher(spec, key + second if mode == "xts" else key) as cipher:
        encrypted = cipher(plain, CHECKED_SECTOR)
    # The first block of CBC without an initial value is the bare cipher.
    bare_spec = f"{name}-cbc-null"
    with sector_cipher(bare_spec, key) as bare, sector_cipher(bare_spec, second) as tweaker:

        def encrypt(data: bytes) -> bytes:
            return bare(data.ljust(SECTOR_BYTES, b"\0"))[:BLOCK_BYTES]

        def tweak(data: bytes) -> bytes:
            return tweaker(data.ljust(SECTOR_BYTES, b"\0"))[:BLOCK_BYTES]

        right = encrypt(block) == answer
        for number in (0, 1, SECTOR_BYTES // BLOCK_BYTES - 1):
            start, end = number * BLOCK_BYTES, (number + 1) * BLOCK_BYTES
            right = right and encrypted[start:end] == (
                cipher_modes.xts(encrypt, tweak, iv, plain, number)
                if mode == "xts"
                else by_definition("cbc", encrypt, (iv + encrypted)[start:end], plain[start:end])
            )
    if not right:
        raise WorkloadError("kernel-wrong-answer", cipher=f"{spec} with a key of {bits} bits")


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
