"""A proof fails where it must: every single deviation from the plan is told."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.storage import canary, proof
from agent.storage.base import Expectation
from agent.storage.proof import Planned, Table

CRYPT = (
    "0 2097152 crypt aes-xts-plain64 :64:logon:cryptsetup:f00-d0 0 259:2 32768 1 sector_size:4096"
)
LINEAR = "0 2097152 linear 259:2 32768"
SEEN = {"through_mapping": True, "on_medium": False}
PLAIN_SEEN = {"through_mapping": True, "on_medium": True}
LUKS: dict[str, Any] = {
    "segments": {
        "0": {
            "type": "crypt",
            "offset": "16777216",
            "encryption": "aes-xts-plain64",
            "sector_size": 4096,
        }
    },
    "key_bits": [512],
}
OPAL_LUKS: dict[str, Any] = {
    "segments": {"0": {"type": "hw-opal", "offset": "16777216", "size": "1073741824"}},
    "key_bits": [256],
}
OPAL: dict[str, Any] = {
    "status": {"locking_enabled": True, "mbr_enabled": False, "mbr_done": False},
    "range": {
        "start_blocks": 4352,
        "length_blocks": 262144,
        "read_lock_enabled": True,
        "write_lock_enabled": True,
        "state": "unlocked",
    },
    "locked_read": "ENODATA",
}


def _planned(text: str, expectation: Expectation) -> Planned:
    table = replace(proof.parse_table(text), options=())
    return Planned(table, expectation, 4352, 262144, 2**24, 2**30)


DMCRYPT = _planned(CRYPT, Expectation("crypt", "crypt", plaintext_on_medium=False))
OPAL_PLAN = _planned(LINEAR, Expectation("linear", "hw-opal", plaintext_on_medium=True))
PLAIN = _planned(LINEAR, Expectation("linear", None, plaintext_on_medium=True))


def test_tables_are_parsed() -> None:
    assert proof.parse_table(CRYPT) == Table(
        "crypt", 2097152, "259:2", 32768, "aes-xts-plain64", 512, 4096, ("sector_size:4096",)
    )
    assert proof.parse_table(LINEAR) == Table("linear", 2097152, "259:2", 32768)
    hexadecimal = "0 8 crypt aes-xts-plain64 " + "0" * 64 + " 0 8:1 0"
    assert proof.parse_table(hexadecimal).key_bits == 256
    assert proof.parse_table(hexadecimal).sector_size == 512


@pytest.mark.parametrize("text", ["", "0 8 zero", "0 8 linear 8:1", LINEAR + "\n" + LINEAR])
def test_other_tables_are_refused(text: str) -> None:
    with pytest.raises(proof.ProofError):
        proof.parse_table(text)


def test_no_key_is_ever_told() -> None:
    key = "ab" * 32
    text = f"0 8 crypt aes-xts-plain64 {key} 0 8:1 0"
    assert key not in proof.without_key(text)
    with pytest.raises(proof.ProofError) as error:
        proof.parse_table(f"0 8 crypt aes-xts-plain64 {key} rubbish")
    assert key not in str(error.value)


def test_what_is_as_planned_is_proven() -> None:
    assert proof.mismatches(DMCRYPT, proof.parse_table(CRYPT), LUKS, None, SEEN) == []
    linear = proof.parse_table(LINEAR)
    assert proof.mismatches(OPAL_PLAN, linear, OPAL_LUKS, OPAL, PLAIN_SEEN) == []
    assert proof.mismatches(PLAIN, linear, None, None, PLAIN_SEEN) == []


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("aes-xts", "serpent-xts", "cipher"),
        ("aes-xts-plain64", "aes-xts-plain", "cipher"),
        (":64:", ":32:", "key_bits"),
        ("sector_size:4096", "sector_size:512", "sector_size"),
        (" 32768 ", " 32776 ", "offset_sectors"),
        ("0 2097152", "0 2097144", "length_sectors"),
        ("259:2", "259:3", "device"),
    ],
)
def test_a_replaced_mapping_is_told(old: str, new: str, what: str) -> None:
    table = proof.parse_table(CRYPT.replace(old, new))
    found = proof.mismatches(DMCRYPT, table, LUKS, None, SEEN)
    assert len(found) == 1
    assert f"dm {what} is" in found[0]


def test_a_plain_mapping_instead_of_dmcrypt_is_told() -> None:
    found = proof.mismatches(DMCRYPT, proof.parse_table(LINEAR), LUKS, None, PLAIN_SEEN)
    assert any("dm target is 'linear'" in line for line in found)
    assert any("plaintext" in line for line in found)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("type", "hw-opal-crypt"),
        ("offset", "8388608"),
        ("encryption", "aes-cbc-essiv:sha256"),
        ("sector_size", 512),
    ],
)
def test_a_header_that_is_not_the_mapping_s_is_told(key: str, value: object) -> None:
    luks = copy.deepcopy(LUKS)
    luks["segments"]["0"][key] = value
    found = proof.mismatches(DMCRYPT, proof.parse_table(CRYPT), luks, None, SEEN)
    assert len(found) == 1
    assert key in found[0]


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("range", "start_blocks", 0),
        ("range", "length_blocks", 262143),
        ("range", "read_lock_enabled", False),
        ("range", "write_lock_enabled", False),
        ("range", "state", "locked"),
        ("status", "locking_enabled", False),
        ("status", "mbr_enabled", True),
        (None, "locked_read", None),
    ],
)
def test_a_range_that_does_not_lock_as_planned_is_told(
    part: str | None, key: str, value: object
) -> None:
    opal = copy.deepcopy(OPAL)
    (opal[part] if part else opal)[key] = value
    found = proof.mismatches(OPAL_PLAN, proof.parse_table(LINEAR), OPAL_LUKS, opal, PLAIN_SEEN)
    assert len(found) == 1


@pytest.mark.parametrize("plan", [DMCRYPT, PLAIN])
def test_a_canary_that_is_not_where_it_should_be_proves_nothing(plan: Planned) -> None:
    lost = {"through_mapping": False, "on_medium": False}
    text = CRYPT if plan is DMCRYPT else LINEAR
    found = proof.mismatches(plan, proof.parse_table(text), LUKS, None, lost)
    assert found == ["the canary was not found through the mapping, so the medium proves nothing"]


def test_the_driver_of_highest_priority_is_the_one_in_use() -> None:
    crypto = (
        "name         : xts(aes)\ndriver       : xts-aes-aesni\npriority     : 401\n\n"
        "name         : xts(aes)\ndriver       : xts-aes-vaes-avx2\npriority     : 600\n\n"
        "name         : __xts(aes)\ndriver       : other\npriority     : 900\n"
    )
    assert proof.cipher_driver(proof.algorithm("aes-xts-plain64"), crypto) == "xts-aes-vaes-avx2"
    assert proof.cipher_driver("xts(serpent)", crypto) is None


def test_canaries_differ_by_run_and_can_be_made_again() -> None:
    assert canary.content("a") == canary.content("a") != canary.content("b")
    assert len(canary.content("a")) == canary.BLOCK_BYTES


def test_a_missing_device_is_an_unreadable_one(tmp_path: Path) -> None:
    assert canary.locked_read(str(tmp_path / "none"), 0) == "ENOENT"
