"""VeraCrypt's work factors, against the figures that its documentation and the paper print."""

from __future__ import annotations

import pytest

from contract.tests.refusal import refuses
from workloads import key_derivation
from workloads.key_derivation import Argon2


@pytest.mark.parametrize("hash_name", key_derivation.DEFAULTS)
def test_iterations_match_the_papers_counts(hash_name: str) -> None:
    default = 655_331 if hash_name == "ripemd160" else 500_000
    assert key_derivation.iterations(hash_name) == default  # figure 3
    assert key_derivation.iterations(hash_name, 9999) == 10_014_000  # figure 4
    assert key_derivation.iterations(hash_name, 485) == 500_000  # as the default


def test_a_system_disk_has_the_short_formula_but_for_two_hashes() -> None:
    counts = {
        name: [key_derivation.iterations(name, pim, system=True) for pim in (0, 98)]
        for name in key_derivation.DEFAULTS
    }
    assert counts == {
        "sha512": [500_000, 113_000],
        "whirlpool": [500_000, 113_000],
        "sha256": [200_000, 200_704],
        "streebog": [200_000, 200_704],
        "ripemd160": [327_661, 200_704],
    }


@pytest.mark.parametrize(
    ("pim", "cost"),
    [
        (0, Argon2(6, 416 * 1024, 1)),
        (1, Argon2(3, 64 * 1024, 1)),
        (12, Argon2(6, 416 * 1024, 1)),
        (31, Argon2(13, 1024 * 1024, 1)),
        (32, Argon2(14, 1024 * 1024, 1)),
    ],
)
def test_argon2id_grows_in_memory_then_in_passes(pim: int, cost: Argon2) -> None:
    assert key_derivation.argon2id(pim) == cost


def test_a_hash_veracrypt_never_had_is_refused() -> None:
    with refuses("no-such-hash", hash_name="md5"):
        key_derivation.iterations("md5")
