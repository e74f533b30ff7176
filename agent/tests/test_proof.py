"""A proof fails where it must: every single deviation from the plan is told."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.storage import ciphers, mapping, plaintext_probe, proof, registry, tcrypt
from agent.storage.base import Layer, Place, Segment
from agent.storage.proof import Found, Planned
from contract.plan import Disk, Extent

PLACE = Place(Disk("plain", "/x", "S", 2**31), "/dev/sdx1", 1, Extent(2**24, 2**30))
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
    },
    "state": "unlocked",
    "state_before": "locked",
}
OFF: dict[str, Any] = {
    "status": {"locking_enabled": True, "mbr_enabled": False, "mbr_done": False},
    "range": {"read_lock_enabled": False, "write_lock_enabled": False},
    "state": "off",
    "state_before": None,
}
HEADER = {"chain": "aes-twofish-serpent", "mode": "xts-plain64", "key_bits": "1536"}


def _planned(kind: str, **entry: object) -> Planned:
    disk = "sed" if kind == "opal" else "plain"
    configuration = registry.complete({"name": "c", "kind": kind, "disk": disk, **entry})
    expectation = registry.load(kind).expectation(PLACE, configuration)
    return Planned(expectation, 4352, 262144, 2**24, 2**30)


AES: dict[str, Any] = {"cipher": "aes-xts-plain64", "key_bits": 256, "sector_size": 4096}
DMCRYPT = _planned("dmcrypt", **AES)
NO_HEADER = _planned("dmcrypt", **AES, header="none")
NO_QUEUES = _planned("dmcrypt", **AES, no_read_workqueue=True, no_write_workqueue=True)
OPAL_PLAN = _planned("opal")
PLAIN = _planned("plain")
CASCADE = _planned("tcrypt", cipher="aes-twofish-serpent", key_bits=256)

# What is found when everything is as planned.
SOUND: dict[str, tuple[Planned, Found]] = {
    "dmcrypt": (DMCRYPT, Found(DMCRYPT.expectation.layers, LUKS, None, None, SEEN)),
    "no header": (NO_HEADER, Found(NO_HEADER.expectation.layers, None, None, None, SEEN)),
    "no queues": (NO_QUEUES, Found(NO_QUEUES.expectation.layers, LUKS, None, None, SEEN)),
    "opal": (OPAL_PLAN, Found(OPAL_PLAN.expectation.layers, OPAL_LUKS, OPAL, None, PLAIN_SEEN)),
    "plain": (PLAIN, Found(PLAIN.expectation.layers, None, None, None, PLAIN_SEEN)),
    "plain on sed": (PLAIN, Found(PLAIN.expectation.layers, None, OFF, None, PLAIN_SEEN)),
    "dmcrypt on sed": (DMCRYPT, Found(DMCRYPT.expectation.layers, LUKS, OFF, None, SEEN)),
    "cascade": (CASCADE, Found(CASCADE.expectation.layers, None, None, HEADER, SEEN)),
}

LINEAR = "0 2097152 linear 259:2 32768"
CRYPT = (
    "0 2097152 crypt aes-xts-plain64 :64:logon:cryptsetup:f00-d0 0 259:2 32768 1 sector_size:4096"
)


def test_lines_of_tables_are_parsed() -> None:
    assert mapping.parse_line(CRYPT) == Segment(
        2097152, "crypt", "259:2", 32768, "aes-xts-plain64", 512, 4096, 0, ()
    )
    assert mapping.parse_line(LINEAR) == Segment(2097152, "linear", "259:2", 32768)
    hexadecimal = f"0 8 crypt aes-xts-plain64 {'0' * 64} 256 8:1 0 2 same_cpu_crypt allow_discards"
    assert mapping.parse_line(hexadecimal) == Segment(
        8, "crypt", "8:1", 0, "aes-xts-plain64", 256, 512, 256, ("allow_discards", "same_cpu_crypt")
    )
    null = "0 8 crypt cipher_null-ecb - 0 8:1 0"
    assert mapping.parse_line(null) == Segment(8, "crypt", "8:1", 0, "cipher_null-ecb", 0, 512, 0)
    for key in (" - ", " 0 "):  # as the kernel and as dmsetup shows it
        line = null.replace(" - ", key, 1)
        assert mapping.parse_line(line) == mapping.parse_line(null)
        assert mapping.without_key(line) == null.replace(" - ", " <0-bit-key> ")
    assert mapping.parse_line("0 8 zero") == Segment(8, "zero")


@pytest.mark.parametrize(
    "text", ["", "0 8", "0 x zero", "0 8 linear 8:1", "0 8 crypt aes 00 0 8:1"]
)
def test_lines_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(mapping.TableError):
        mapping.parse_line(text)


def test_no_key_is_ever_told() -> None:
    key = "ab" * 32
    text = f"0 8 crypt aes-xts-plain64 {key} 0 8:1 0"
    assert key not in mapping.without_key(text)
    with pytest.raises(mapping.TableError) as error:
        mapping.parse_line(f"0 8 crypt aes-xts-plain64 {key} rubbish")
    assert key not in str(error.value)


@pytest.mark.parametrize("name", SOUND)
def test_what_is_as_planned_is_proven(name: str) -> None:
    assert proof.mismatches(*SOUND[name]) == []


def _with_top(found: Found, **changes: Any) -> Found:
    top = found.layers[0]
    segment = replace(top.segments[0], **changes)
    return replace(found, layers=(replace(top, segments=(segment,)), *found.layers[1:]))


@pytest.mark.parametrize(
    "changes",
    [
        {"cipher": "serpent-xts-plain64"},
        {"cipher": "aes-xts-plain"},
        {"key_bits": 256},
        {"sector_size": 512},
        {"offset_sectors": 32776},
        {"length_sectors": 2097144},
        {"device": "sdy1"},
        {"iv_offset_sectors": 8},
        {"options": ("no_read_workqueue",)},
        {"options": ("allow_discards",)},
    ],
)
def test_a_replaced_mapping_is_told(changes: dict[str, Any]) -> None:
    plan, found = SOUND["dmcrypt"]
    (said,) = proof.mismatches(plan, _with_top(found, **changes))
    assert said.startswith(f"fde-data: dm {next(iter(changes))} is")


def test_work_queues_that_are_there_after_all_are_told() -> None:
    plan, found = SOUND["no queues"]
    (said,) = proof.mismatches(plan, _with_top(found, options=("no_read_workqueue",)))
    assert "no_write_workqueue" in said


def test_a_plain_mapping_instead_of_dmcrypt_is_told() -> None:
    plan, found = SOUND["dmcrypt"]
    linear = PLAIN.expectation.layers
    said = proof.mismatches(plan, replace(found, layers=linear, plaintext_probe=PLAIN_SEEN))
    assert any("dm target is 'linear'" in line for line in said)
    assert any("is of FDE-TESTBED, planned CRYPT-LUKS2" in line for line in said)
    assert any("plaintext" in line for line in said)


def test_a_header_where_none_is_planned_and_the_reverse_is_told() -> None:
    plan, found = SOUND["no header"]
    (said,) = proof.mismatches(plan, replace(found, layers=DMCRYPT.expectation.layers))
    assert "is of CRYPT-LUKS2, planned CRYPT-PLAIN" in said
    plan, found = SOUND["dmcrypt"]
    assert proof.mismatches(plan, replace(found, luks=None)) == ["no LUKS2 header can be read"]


@pytest.mark.parametrize("name", ["fde-data", "fde-data_1", "fde-data_2", "fde-data-container"])
def test_every_layer_of_a_cascade_is_looked_at(name: str) -> None:
    plan, found = SOUND["cascade"]
    others = [layer for layer in found.layers if layer.name != name]
    (missing,) = proof.mismatches(plan, replace(found, layers=others))
    assert missing == f"there is no mapping {name}"
    (layer,) = (layer for layer in found.layers if layer.name == name)
    moved = replace(layer.segments[0], offset_sectors=8)
    wrong = replace(layer, segments=(moved, *layer.segments[1:]))
    (said,) = proof.mismatches(plan, replace(found, layers=[*others, wrong]))
    assert said.startswith(f"{name}: dm offset_sectors is 8")
    empty = replace(layer, segments=())
    (said,) = proof.mismatches(plan, replace(found, layers=[*others, empty]))
    assert said.startswith(f"{name}: dm segments are 0")


def test_a_mapping_too_many_is_told() -> None:
    plan, found = SOUND["plain"]
    more = Layer("fde-data_1", "CRYPT-TCRYPT", ())
    said = proof.mismatches(plan, replace(found, layers=[*found.layers, more]))
    assert said == ["there is a mapping fde-data_1 that is not planned"]


@pytest.mark.parametrize(
    ("key", "value"), [("chain", "aes"), ("mode", "cbc-tcw"), ("key_bits", "512"), (None, None)]
)
def test_a_header_with_other_ciphers_is_told(key: str | None, value: str | None) -> None:
    plan, found = SOUND["cascade"]
    header = {**HEADER, key: value} if key else None
    said = proof.mismatches(plan, replace(found, tcrypt=header))
    assert [line.split()[:2] for line in said] == [
        ["TrueCrypt", name] for name in ([key] if key else ["chain", "mode", "key_bits"])
    ]


def test_what_cryptsetup_says_of_a_truecrypt_header_is_read() -> None:
    text = (
        "TCRYPT header information for /dev/x\nVersion:       \t5\nMK offset:\t131072\n"
        "Cipher chain:\taes-twofish-serpent\nCipher mode:\txts-plain64\nMK bits:       \t1536\n"
    )
    assert tcrypt.parse_dump(text) == HEADER


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
    plan, found = SOUND["dmcrypt"]
    luks = copy.deepcopy(LUKS)
    luks["segments"]["0"][key] = value
    (said,) = proof.mismatches(plan, replace(found, luks=luks))
    assert key in said


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("range", "start_blocks", 0),
        ("range", "length_blocks", 262143),
        ("range", "read_lock_enabled", False),
        ("range", "write_lock_enabled", False),
        ("status", "locking_enabled", False),
        ("status", "mbr_enabled", True),
        (None, "state", "locked"),
        (None, "state", "off"),
        (None, "state_before", "unlocked"),
        (None, "state_before", None),
    ],
)
def test_a_range_that_does_not_lock_as_planned_is_told(
    part: str | None, key: str, value: object
) -> None:
    plan, found = SOUND["opal"]
    opal = copy.deepcopy(OPAL)
    (opal[part] if part else opal)[key] = value
    assert len(proof.mismatches(plan, replace(found, opal=opal))) == 1


@pytest.mark.parametrize("name", ["plain on sed", "dmcrypt on sed"])
@pytest.mark.parametrize(
    ("part", "key", "value"), [(None, "state", "unlocked"), ("status", "mbr_enabled", True)]
)
def test_a_range_that_locks_where_it_should_be_off_is_told(
    name: str, part: str | None, key: str, value: object
) -> None:
    plan, found = SOUND[name]
    opal = copy.deepcopy(OFF)
    (opal[part] if part else opal)[key] = value
    assert len(proof.mismatches(plan, replace(found, opal=opal))) == 1


def test_opal_without_opal_is_told() -> None:
    plan, found = SOUND["opal"]
    assert "Opal range state is None" in proof.mismatches(plan, replace(found, opal=None))[0]


@pytest.mark.parametrize("name", SOUND)
def test_a_probe_that_is_not_where_it_should_be_proves_nothing(name: str) -> None:
    plan, found = SOUND[name]
    lost = {"through_mapping": False, "on_medium": False}
    said = proof.mismatches(plan, replace(found, plaintext_probe=lost))
    assert said == [
        "the plaintext probe was not found through the mapping, so the medium proves nothing"
    ]
    turned = {"through_mapping": True, "on_medium": not found.plaintext_probe["on_medium"]}
    (said_of_medium,) = proof.mismatches(plan, replace(found, plaintext_probe=turned))
    assert "on the raw partition" in said_of_medium


def test_the_driver_of_highest_priority_is_the_one_in_use() -> None:
    crypto = (
        "name         : xts(aes)\ndriver       : xts-aes-aesni\npriority     : 401\n\n"
        "name         : xts(aes)\ndriver       : xts-aes-vaes-avx2\npriority     : 600\n\n"
        "name         : __xts(aes)\ndriver       : other\npriority     : 900\n"
    )
    assert ciphers.driver(ciphers.algorithm("aes-xts-plain64"), crypto) == "xts-aes-vaes-avx2"
    assert ciphers.driver("xts(serpent)", crypto) is None


def test_canaries_differ_by_run_and_can_be_made_again() -> None:
    assert (
        plaintext_probe.content("a") == plaintext_probe.content("a") != plaintext_probe.content("b")
    )
    assert len(plaintext_probe.content("a")) == plaintext_probe.BLOCK_BYTES


def test_a_missing_device_is_an_unreadable_one(tmp_path: Path) -> None:
    assert plaintext_probe.locked_read(str(tmp_path / "none"), 0) == "ENOENT"
