"""What every kind of storage must hold to, those of installed packages too."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from agent import preflight
from agent.storage import layout, mapping, registry
from agent.storage.base import BOTH, PROCESSOR, Layer, Place
from contract.errors import AgentError
from contract.plan import CONFIGURATION_KEYS, Configuration, Disk, EncryptedBy, Extent

EXTENT = Extent(2**24, 2**25)
SIZE_BYTES = layout.partition_bytes(EXTENT)
TREE = dict.fromkeys(("dmcrypt", "external", "inlinecrypt", "plain", "tcrypt"), "off")
TREE |= {"opal": "unlocked", "opal_dmcrypt": "unlocked"}
AES: dict[str, Any] = {"cipher": "aes-xts-plain64", "key_bits": 256}
AES_4096 = {**AES, "sector_size": 4096}
CRYPT_CPUS = {"submit_from_crypt_cpus": True, "same_cpu_crypt": True}
HMAC, ADIANTUM = {"integrity": "hmac-sha256"}, "xchacha12,aes-adiantum-plain64"
EXTERNAL: dict[str, Any] = {
    "product": "BestCrypt 4",
    **{name: [f"/opt/product/{name}", "{device}"] for name in ("open", "close", "prove")},
    "describe": ["/opt/product/describe"],
}
EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "plain": [{}, {"disk": "sed"}],
    "opal_dmcrypt": [{**AES, "sector_size": 4096}],
    "dmcrypt": [
        AES_4096,
        {"cipher": "aes-cbc-essiv:sha256", "key_bits": 128, "sector_size": 512, "header": "luks1"},
        {**AES, "cipher": "twofish-xts-plain64", "sector_size": 512, "header": "none"},
        {**AES_4096, **HMAC, "integrity_no_journal": True},
        {"cipher": "aegis128-random", "key_bits": 128, "sector_size": 4096, "integrity": "aead"},
        {"cipher": ADIANTUM, "key_bits": 256, "sector_size": 4096},
    ],
    "external": [EXTERNAL],
    "inlinecrypt": [{}, {"sector_size": 512, "discard": True}],
    "tcrypt": [
        {"cipher": "serpent", "key_bits": 256},
        {"cipher": "aes-twofish-serpent", "key_bits": 256},
        {"cipher": "aes", "key_bits": 256, "volume": "veracrypt"},
    ],
}


def complete(kind: str, **entry: Any) -> Configuration:
    return registry.complete({"name": "c", "kind": kind, "disk": role(kind), **entry})


def role(kind: str) -> str:
    return "plain" if registry.load(kind).range_state == "off" else "sed"


def example(kind: str) -> dict[str, Any]:
    """Return what a configuration must be told, as its declaration shows it."""
    return {field.name: field.default for field in registry.load(kind).fields if field.required}


KINDS = [
    (kind, entry) for kind in registry.names() for entry in [example(kind), *EXAMPLES.get(kind, ())]
]
every_kind = pytest.mark.parametrize(("kind", "entry"), KINDS, ids=lambda value: str(value)[:60])
PLACE = Place(Disk("plain", "/dev/disk/by-id/x", "S", SIZE_BYTES), "/dev/sdx1", 1, EXTENT)


@every_kind
def test_every_kind_puts_its_data_on_exactly_the_common_extent(
    kind: str, entry: dict[str, Any]
) -> None:
    """Follow first and last sector of the top mapping down to the partition."""
    expectation = registry.load(kind).expectation(PLACE, complete(kind, **entry))
    layers = {layer.name: layer for layer in expectation.layers}
    top = expectation.layers[0]
    assert Path(mapping.PATH).name == top.name
    assert all(mapping.is_ours(name) for name in layers)
    for segment in (segment for layer in expectation.layers for segment in layer.segments):
        assert segment.offset_sectors is not None
        if segment.device == "sdx1" and segment.length_sectors is not None:
            end = segment.offset_sectors + segment.length_sectors
            assert 0 <= segment.offset_sectors < end <= SIZE_BYTES // 512
    if any(segment.length_sectors is None for segment in top.segments):
        # Tags and journal take a share of the extent that only cryptsetup knows.
        assert expectation.interleaved
        assert layers[str(top.segments[0].device)].segments[0].offset_sectors == 2**24 // 512
        return
    length = sum(segment.length_sectors or 0 for segment in top.segments)
    assert length * 512 == EXTENT.size_bytes
    if top.segments[0].device is None:  # a product's own device; the proof looks for the data
        assert expectation.declared
        return
    assert _lands(layers, top, 0) == EXTENT.offset_bytes // 512
    assert _lands(layers, top, length - 1) == (EXTENT.offset_bytes + EXTENT.size_bytes) // 512 - 1


@every_kind
def test_every_kind_declares_label_and_fields(kind: str, entry: dict[str, Any]) -> None:
    storage, configuration = registry.load(kind), complete(kind, **entry)
    assert storage.name == kind
    assert storage.encrypted_by in get_args(EncryptedBy)
    assert storage.range_state in ("off", "unlocked")
    assert len({field.name for field in storage.fields}) == len(storage.fields)
    for field in storage.fields:
        assert field.help and field.name not in CONFIGURATION_KEYS
        assert not field.choices or field.default in field.choices
    expected = storage.expectation(PLACE, configuration)
    assert expected.range_state == storage.range_state
    # What nobody encrypts is there to be read, and so is what a drive does once it is open.
    assert expected.plaintext_on_medium == (storage.encrypted_by not in (PROCESSOR, BOTH))
    assert re.fullmatch(r"[\w ,.–-]{1,60}", registry.label(configuration))
    document = {"name": "c", "kind": kind, "disk": configuration.disk, **configuration.settings}
    assert registry.complete(json.loads(json.dumps(document))) == configuration


@pytest.mark.parametrize("kind", registry.names())
def test_undeclared_settings_are_refused(kind: str) -> None:
    with pytest.raises(AgentError, match=f"nonsense means nothing for the kind {kind}: "):
        complete(kind, **example(kind), nonsense=1)
    for field in registry.load(kind).fields:
        if field.required:
            with pytest.raises(AgentError, match=f"needs {field.name}"):
                complete(kind, **{**example(kind), field.name: None})
        with pytest.raises(AgentError, match=f"The {field.name} of the kind {kind} must be"):
            complete(kind, **{**example(kind), field.name: []})


def test_only_opal_kinds_lock_their_range() -> None:
    assert {kind: registry.load(kind).range_state for kind in TREE} == TREE
    assert {kind for kind, state in TREE.items() if state != "off"} == set(preflight.OPAL_KINDS)


def _lands(layers: dict[str, Layer], layer: Layer, sector: int) -> int:
    """Return the sector of the partition that a sector of a layer ends on."""
    for segment in layer.segments:
        assert segment.length_sectors is not None
        if sector < segment.length_sectors:
            assert segment.device is not None
            assert segment.offset_sectors is not None
            below = sector + segment.offset_sectors
            under = layers.get(segment.device)
            return _lands(layers, under, below) if under else below
        sector -= segment.length_sectors
    raise AssertionError(f"{layer.name} has no sector {sector}")


@pytest.mark.parametrize(
    ("kind", "entry", "reason"),
    [
        ("dmcrypt", {}, "needs cipher, key_bits, sector_size"),
        ("dmcrypt", {**AES, "sector_size": 4096, "header": "luks1"}, "sector_size must be that"),
        ("opal_dmcrypt", {**AES, "sector_size": 512, "disk": "plain"}, "disk must be sed"),
        ("dmcrypt", AES, "needs sector_size"),
        ("dmcrypt", {**AES, "sector_size": 520}, "one of 512, 1024"),
        ("tcrypt", {"cipher": "aes-serpent-twofish", "key_bits": 256}, "aes-twofish-serpent"),
        ("tcrypt", {"cipher": "aes", "key_bits": 128}, "one of 256, not 128"),
        ("tcrypt", {"cipher": "aes", "key_bits": 256, "sector_size": 4096}, "sector_size means n"),
        ("opal", {"disk": "plain"}, "disk must be sed"),
        ("inlinecrypt", {"key_bits": 128}, "one of 256, not 128"),
        *(
            ("dmcrypt", {**AES_4096, **changes}, reason)
            for changes, reason in (
                ({"header": "luks3"}, "one of luks2, luks1, none"),
                ({"discard": "yes"}, "of type bool, not 'yes'"),
                ({"integrity": "aead"}, "aead goes with aes-gcm-random, aegis128-random"),
                ({"cipher": "aegis128-random", "key_bits": 128}, "aead goes with"),
                ({"cipher": ADIANTUM, "key_bits": 128}, "has keys of 256 bits"),
                ({**HMAC, "header": "none"}, "header must be luks2"),
                ({**HMAC, "discard": True}, "take discard out"),
                ({"integrity_no_journal": True}, "or name integrity"),
            )
        ),
        ("external", {**EXTERNAL, "open": "/usr/bin/open x"}, "must be a list of arguments"),
        ("external", {**EXTERNAL, "close": ["close"]}, "give the program's absolute path"),
        ("veracrypt", {}, "no storage kind called 'veracrypt'"),
    ],
)
def test_impossible_settings_are_refused_with_the_remedy(
    kind: str, entry: dict[str, Any], reason: str
) -> None:
    with pytest.raises(AgentError, match=reason):
        registry.complete({"name": "c", "kind": kind, "disk": "sed", **entry})


def test_quoted_numbers_are_numbers_and_missing_flags_false() -> None:
    """As templates of Ansible's yield them."""
    configuration = complete("dmcrypt", cipher="aes-xts-plain64", key_bits="128", sector_size="512")
    assert (configuration.settings["key_bits"], configuration.settings["sector_size"]) == (128, 512)
    assert complete("plain", no_read_workqueue=False, cipher=None) == complete("plain")


@pytest.mark.parametrize(
    ("entry", "label"),
    [
        ({"kind": "plain"}, "plain"),
        ({"kind": "plain", "disk": "sed"}, "SED, locking off"),
        ({"kind": "plain", "disk": "sed", "discard": True}, "SED, locking off, TRIM"),
        ({"kind": "plain", "disk": "sata-ssd"}, "plain, on sata-ssd"),
        ({"kind": "opal", "disk": "sed"}, "Opal drive"),
        ({"kind": "opal", "disk": "ssd"}, "Opal drive, on ssd"),
        ({"kind": "external", **EXTERNAL}, "BestCrypt 4"),
        *(
            ({"kind": "tcrypt", "key_bits": 256, **entry}, label)
            for entry, label in (
                ({"cipher": "aes-twofish-serpent"}, "TrueCrypt AES–Twofish–Serpent-256"),
                ({"cipher": "aes", "volume": "veracrypt"}, "VeraCrypt AES-256"),
            )
        ),
        *(
            ({**AES_4096, **entry}, f"dm-crypt {label}")
            for entry, label in (
                ({}, "AES-256"),
                ({"sector_size": 512}, "AES-256, 512 B sectors"),
                ({"header": "none"}, "AES-256, no header"),
                ({"no_write_workqueue": True}, "AES-256, no queues"),
                (CRYPT_CPUS, "AES-256, submit from crypt CPUs, same CPU"),
                ({"disk": "sed"}, "AES-256, on the SED"),
                ({"disk": "hdd"}, "AES-256, on hdd"),
                ({"cipher": "serpent-xts-plain64", "key_bits": 128}, "Serpent-128"),
                ({**HMAC, "integrity_no_journal": True}, "AES-256, HMAC-SHA-256, no journal"),
                ({"cipher": "aegis128-random", "key_bits": 128, "integrity": "aead"}, "AEGIS-128"),
            )
        ),
    ],
)
def test_labels_describe_the_configuration(entry: dict[str, Any], label: str) -> None:
    complete = registry.complete({"name": "c1", "disk": "plain", "kind": "dmcrypt", **entry})
    assert registry.label(complete) == label
