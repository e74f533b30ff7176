"""Derived keys: costs, known answers, missing libraries."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from contract.tests.refusal import refuses
from workloads import key_derivation, registry
from workloads.children import key_derivation as child
from workloads.children.key_derivation import Libargon2, Libgcrypt
from workloads.children.serving import MissingError
from workloads.crypt.known_answers import KNOWN
from workloads.key_derivation import Argon2, KeyJob
from workloads.tests import contract

KIB = 1024


def phases(**settings: Any) -> list[str]:
    values = registry.complete("key_derivation", settings)
    return [derivation.phase for derivation in key_derivation.planned(values)]


def job(function: str) -> KeyJob:
    argon2 = Argon2(1, 8, 1) if function == key_derivation.ARGON2ID else None
    return KeyJob(function, 32, 3, argon2)


@pytest.mark.parametrize("function", key_derivation.FUNCTIONS)
def test_every_function_gives_its_known_answer(function: str) -> None:
    try:
        library, step = child.prepare(job(function))
    except MissingError as reason:
        pytest.skip(str(reason))
    assert library and len(step()) == 32


def test_both_libraries_derive_the_same_key() -> None:
    try:
        library = Libgcrypt()
    except MissingError as reason:
        pytest.skip(str(reason))
    for name in child.OPENSSL:
        expected = hashlib.pbkdf2_hmac(name, b"one", b"two", 50, 100)
        assert library.pbkdf2(name)(b"one", b"two", 50, 100) == expected


def test_a_wrong_answer_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    example = KNOWN["pbkdf2"]["sha256"]
    monkeypatch.setitem(example, "iterations", example["iterations"] + 1)
    with refuses("wrong-known-answer", function="sha256", derived="2d412f896e76685e"):
        child.prepare(job("sha256"))


def test_a_missing_library_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr("ctypes.CDLL", absent)
    for library, package in ((Libgcrypt, "libgcrypt20"), (Libargon2, "libargon2-1")):
        with refuses("library-missing", package=package):
            library()


def test_costs_come_from_counts_and_from_pims_each_once() -> None:
    settings = {"functions": "sha512,ripemd160", "iterations": "1000,500000", "pims": "0, 1"}
    assert phases(**settings) == [
        *("pbkdf2-sha512.1000i", "pbkdf2-sha512.500000i", "pbkdf2-sha512.16000i"),
        *("pbkdf2-ripemd160.1000i", "pbkdf2-ripemd160.500000i"),
        *("pbkdf2-ripemd160.655331i", "pbkdf2-ripemd160.16000i"),
    ]
    settings = {"functions": "argon2id", "argon2id": "t4-m65536KiB-p4", "pims": "0"}
    assert phases(**settings) == ["argon2id.t4-m65536KiB-p4", "argon2id.t6-m425984KiB-p1"]
    assert phases(**settings, system=True) == ["argon2id.t4-m65536KiB-p4"]


def test_memory_is_what_the_largest_argon2id_needs() -> None:
    workload = registry.load("key_derivation")
    values = registry.complete("key_derivation", {})
    assert workload.needs(values, {}).memory_bytes == 1048576 * KIB
    values["functions"] = "sha256"
    assert workload.needs(values, {}).memory_bytes == 0


def test_argon2id_on_a_system_disk_is_left_out(root: Path) -> None:
    settings = {"functions": "argon2id", "system": True, "argon2id": "t1-m64KiB-p1", "seconds": 0.0}
    _, recorded = contract.performed("key_derivation", root / "a", **settings)
    assert recorded.left_out[0][0] == "VeraCrypt's argon2id for a system disk"
