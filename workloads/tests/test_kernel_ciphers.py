"""Rows of the kernel's ciphers, and the known answers that check them."""

from __future__ import annotations

import ctypes
import os
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from workloads import kernel_ciphers, registry
from workloads.children import cipher_modes, serving
from workloads.children import kernel_ciphers as child
from workloads.children.cipher_modes import BLOCK_BYTES, BLOCKS
from workloads.crypt.known_answers import by_definition
from workloads.kernel_ciphers import DIRECTIONS, PAPER_CASCADES
from workloads.tests import contract

GCRYPT_ECB = 1  # gcrypt.h
IV = bytes(range(BLOCK_BYTES))
PLAIN = bytes(number % 251 for number in range(4096))


def rows(**settings: Any) -> list[str]:
    values = registry.complete("kernel_ciphers", settings)
    return [row.name for row in kernel_ciphers.planned(values)]


def test_rows_are_ciphers_by_mode_and_size_then_cascades() -> None:
    assert rows(ciphers="aes,serpent", cascades="aes-serpent") == [
        *("aes-xts-128", "aes-xts-256", "aes-cbc-128", "aes-cbc-256"),
        *("serpent-xts-128", "serpent-xts-256", "serpent-cbc-128", "serpent-cbc-256"),
        "aes-serpent-xts-256",
    ]
    assert rows(ciphers="aes, aes", modes="cbc", key_bits="256", cascades="") == ["aes-cbc-256"]
    assert rows(ciphers="", cascades="", drivers="xts-aes-lib,cbc-serpent-avx2") == [
        *("xts-aes-lib-128", "xts-aes-lib-256"),
        *("cbc-serpent-avx2-128", "cbc-serpent-avx2-256"),
    ]
    assert len(PAPER_CASCADES.split(",")) == 10  # and four ciphers by themselves: the paper's rows


def gcrypt_block(name: str, bits: int, key: bytes, block: bytes) -> bytes:
    """Return one block encrypted by libgcrypt."""
    try:
        library = ctypes.CDLL("libgcrypt.so.20")
    except OSError:
        pytest.skip("libgcrypt is not installed, with which the answers are compared.")
    library.gcry_check_version(None)
    number = library.gcry_cipher_map_name(f"{name.upper()}{'' if name == 'sm4' else bits}".encode())
    if not number and name == "twofish":
        number = library.gcry_cipher_map_name(b"TWOFISH")
    if not number:
        pytest.skip(f"libgcrypt has no {name}: the lab compares the kernel's own answer.")
    handle, into = ctypes.c_void_p(), ctypes.create_string_buffer(BLOCK_BYTES)
    assert library.gcry_cipher_open(ctypes.byref(handle), number, GCRYPT_ECB, 0) == 0
    assert library.gcry_cipher_setkey(handle, key, ctypes.c_size_t(len(key))) == 0
    size = ctypes.c_size_t(BLOCK_BYTES)
    assert library.gcry_cipher_encrypt(handle, into, size, block, size) == 0
    library.gcry_cipher_close(handle)
    return into.raw


@pytest.mark.parametrize(("name", "bits"), BLOCKS)
def test_the_published_answers_are_those_of_another_library(name: str, bits: int) -> None:
    key, block, answer = (bytes.fromhex(text) for text in BLOCKS[name, bits])
    assert len(key) == bits // 8
    assert gcrypt_block(name, bits, key, block) == answer


def test_xts_and_cbc_agree_with_another_library() -> None:
    ciphers = pytest.importorskip("cryptography.hazmat.primitives.ciphers")
    from cryptography.hazmat.primitives.ciphers import algorithms, modes

    first_key, second_key = bytes(range(32)), bytes(range(32, 64))

    def encrypt(key: bytes, mode: modes.Mode, data: bytes) -> bytes:
        encrypted = ciphers.Cipher(algorithms.AES(key), mode).encryptor().update(data)
        assert isinstance(encrypted, bytes)
        return encrypted

    def first(data: bytes) -> bytes:
        return encrypt(first_key, modes.ECB(), data)

    def second(data: bytes) -> bytes:
        return encrypt(second_key, modes.ECB(), data)

    xts = encrypt(first_key + second_key, modes.XTS(IV), PLAIN)
    cbc = encrypt(first_key, modes.CBC(IV), PLAIN)
    for number in (0, 1, 200, len(PLAIN) // BLOCK_BYTES - 1):
        at = slice(number * BLOCK_BYTES, (number + 1) * BLOCK_BYTES)
        assert cipher_modes.xts(first, second, IV, PLAIN, number) == xts[at]
        assert by_definition("cbc", first, (IV + cbc)[at], PLAIN[at]) == cbc[at]


def test_driver_has_the_highest_priority() -> None:
    crypto = (
        "name         : cbc(aes)\ndriver       : cbc-aes-generic\npriority     : 100\n\n"
        "name         : cbc(aes)\ndriver       : cbc-aes-aesni\npriority     : 400\n\n"
        "name         : xts(aes)\ndriver       : xts-aes-vaes\npriority     : 800\n"
    )
    assert child.driver("cbc(aes)", crypto) == "cbc-aes-aesni"
    assert child.driver("xts(serpent)", crypto) == ""


def test_ciphers_that_this_kernel_lacks_are_left_out(root: Path) -> None:
    workload = registry.load("kernel_ciphers")
    if reasons := workload.requires({}, {}):
        pytest.skip(" ".join(reasons))
    settings = {"ciphers": "aes,absent", "modes": "cbc", "key_bits": "128", "seconds": 0.05}
    _, recorded = contract.performed(
        "kernel_ciphers", root / "a", **settings, cascades="aes-absent"
    )
    assert recorded.names == [f"aes-cbc-128.{direction}" for direction in DIRECTIONS]
    assert [parts for parts, _ in recorded.left_out] == ["absent-cbc-128", "aes-absent-xts-256"]


def test_zero_threads_means_all_allowed_cpus() -> None:
    values = registry.complete("kernel_ciphers", {"threads": 0, "request_kib": 16})
    assert kernel_ciphers.threads(values) == len(os.sched_getaffinity(0))
    assert kernel_ciphers.threads(registry.complete("kernel_ciphers", {"threads": 3})) == 3
    need = registry.load("kernel_ciphers").needs(values, {})
    assert need.memory_bytes == 2 * 16 * 1024 * len(os.sched_getaffinity(0))


def test_the_steps_of_all_threads_are_counted_and_run_at_once() -> None:
    together = threading.Barrier(3, timeout=30)
    counts = [0, 0, 0]

    def step(number: int) -> None:
        if counts[number] == 0:
            together.wait()  # breaks, and fails the test, where they run one after the other
        counts[number] += 1

    result = serving.for_seconds([partial(step, number) for number in range(3)], 0.05)
    assert result["steps"] == sum(counts)
    assert min(counts) >= 1
