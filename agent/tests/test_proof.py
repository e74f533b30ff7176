"""A proof fails where it must: every single deviation from the plan is a mismatch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.storage import mapping, plaintext_probe, proof, registry, tcrypt
from agent.storage.base import KindFindings, Layer, Place, Segment, VolumeHeader
from agent.storage.layout import DiscardFindings
from agent.storage.opal import LuksHeader, LuksIntegrity, LuksSegment, OpalFindings
from agent.storage.opal_ioctl import RangeStatus
from agent.storage.plaintext_probe import Probe
from agent.storage.proof import MISMATCHES, Observed, Planned
from agent.tests.builders import OWNED
from contract.plan import Disk, Extent
from contract.problem import Problem

PLACE = Place(Disk("plain", "/x", "S", 2**31), "/dev/sdx1", 1, Extent(2**24, 2**30))
SEEN = Probe(through_mapping=True)
PLAIN_SEEN = Probe(through_mapping=True, on_medium=True)
SEGMENT = LuksSegment("crypt", "16777216", encryption="aes-xts-plain64", sector_size=4096)
LUKS = LuksHeader({"0": SEGMENT}, (512,))
OPAL_LUKS = LuksHeader({"0": LuksSegment("hw-opal", "16777216", "1073741824")}, (256,))
RANGE = RangeStatus(4352, 262144, True, True, "unlocked")
OPAL = OpalFindings(OWNED, RANGE, "unlocked", "locked")
OFF = OpalFindings(OWNED, RangeStatus(0, 0, False, False, "unlocked"), "off", None)
HEADER = VolumeHeader("aes-twofish-serpent", "xts-plain64", "1536")


def _planned(kind: str, **entry: Any) -> Planned:
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

# What is findings when everything is as planned.
SOUND: dict[str, tuple[Planned, Observed]] = {
    "dmcrypt": (DMCRYPT, Observed(DMCRYPT.expectation.layers, LUKS, None, None, SEEN)),
    "no header": (NO_HEADER, Observed(NO_HEADER.expectation.layers, None, None, None, SEEN)),
    "no queues": (NO_QUEUES, Observed(NO_QUEUES.expectation.layers, LUKS, None, None, SEEN)),
    "opal": (OPAL_PLAN, Observed(OPAL_PLAN.expectation.layers, OPAL_LUKS, OPAL, None, PLAIN_SEEN)),
    "plain": (PLAIN, Observed(PLAIN.expectation.layers, None, None, None, PLAIN_SEEN)),
    "plain on sed": (PLAIN, Observed(PLAIN.expectation.layers, None, OFF, None, PLAIN_SEEN)),
    "dmcrypt on sed": (DMCRYPT, Observed(DMCRYPT.expectation.layers, LUKS, OFF, None, SEEN)),
    "cascade": (CASCADE, Observed(CASCADE.expectation.layers, None, None, HEADER, SEEN)),
}

LINEAR = "0 2097152 linear 259:2 32768"
KEY = ":64:logon:cryptsetup:f00-d0"
CRYPT = f"0 2097152 crypt aes-xts-plain64 {KEY} 0 259:2 32768 1 sector_size:4096"


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
    inline = "2 sector_size:4096 iv_large_sectors"
    line = f"0 8 inlinecrypt aes-xts-plain64 {'0' * 128} 1 0 8:1 64 {inline}"
    numbers = ("aes-xts-plain64", 512, 4096, 0, ("iv_large_sectors",))
    assert mapping.parse_line(line) == Segment(8, "inlinecrypt", "8:1", 64, *numbers)


@pytest.mark.parametrize(
    "text", ["", "0 8", "0 x zero", "0 8 linear 8:1", "0 8 crypt aes 00 0 8:1"]
)
def test_malformed_lines_are_refused(text: str) -> None:
    with pytest.raises(mapping.TableError):
        mapping.parse_line(text)


@pytest.mark.parametrize("target", mapping.ENCRYPTING)
def test_no_key_is_shown(target: str) -> None:
    key = "ab" * 32
    text = f"0 8 {target} aes-xts-plain64 {key} 0 8:1 0"
    assert key not in mapping.without_key(text)
    with pytest.raises(mapping.TableError) as error:
        mapping.parse_line(f"0 8 {target} aes-xts-plain64 {key} rubbish")
    assert key not in str(error.value)


@pytest.mark.parametrize("name", SOUND)
def test_findings_as_planned_are_proven(name: str) -> None:
    assert proof.mismatches(*SOUND[name]) == []


def _mismatch(code: str, facts: dict[str, Any] | None = None) -> Problem:
    return Problem.from_wording(MISMATCHES, code, facts or {})


Change = Callable[[Observed], Observed]


def _with(**changes: Any) -> Change:
    return lambda findings: replace(findings, **changes)


def _with_opal(part: str | None, **changes: Any) -> Change:
    def change(findings: Observed) -> Observed:
        assert findings.opal
        inner = {part: replace(getattr(findings.opal, part), **changes)} if part else changes
        return replace(findings, opal=replace(findings.opal, **inner))

    return change


def _with_luks(**changes: Any) -> Change:
    return _with(luks=replace(LUKS, segments={"0": replace(SEGMENT, **changes)}))


def _with_top(**changes: Any) -> Change:
    def change(findings: Observed) -> Observed:
        top = findings.layers[0]
        layer = replace(top, segments=(replace(top.segments[0], **changes),))
        return replace(findings, layers=(layer, *findings.layers[1:]))

    return change


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
def test_a_replaced_mapping_is_reported(changes: dict[str, Any]) -> None:
    plan, findings = SOUND["dmcrypt"]
    (mismatch,) = proof.mismatches(plan, _with_top(**changes)(findings))
    ((field, value),) = changes.items()
    planned = getattr(plan.top, field)
    facts = {"name": "fde-data", "field": field, "found": value, "planned": planned}
    assert mismatch == _mismatch("segment", facts)


ONE_QUEUE = _with_top(options=("no_read_workqueue",))
LINEAR_TOP = _with(layers=PLAIN.expectation.layers, plaintext_probe=PLAIN_SEEN)
TOO_MANY = (*PLAIN.expectation.layers, Layer("fde-data_1", "CRYPT-TCRYPT", ()))
_RANGE_FIELDS = ("state", "read_lock_enabled", "write_lock_enabled", "start_blocks")
NO_OPAL: list[tuple[str, str | None]] = [
    ("range", field) for field in (*_RANGE_FIELDS, "length_blocks")
]
NO_OPAL += [("range-not-locked", None), ("locking-off", None)]
# By sound findings: a change to them, and the codes and fields of the mismatches.
SPOILT: list[tuple[str, Change, Sequence[tuple[str, str | None]]]] = [
    ("no queues", ONE_QUEUE, [("segment", "options")]),
    (
        *("dmcrypt", LINEAR_TOP),
        [("mapping-maker", None), ("segment", "target"), ("probe-plaintext", None)],
    ),
    ("no header", _with(layers=DMCRYPT.expectation.layers), [("mapping-maker", None)]),
    ("dmcrypt", _with(luks=None), [("luks-missing", None)]),
    ("plain", _with(layers=TOO_MANY), [("mapping-unplanned", None)]),
    ("plain", _with(plaintext_probe=Probe(error="no room")), [("probe-failed", None)]),
    ("plain", _with(discard=DiscardFindings({}, mounted=True)), [("discard", None)]),
    ("cascade", _with(tcrypt=replace(HEADER, chain="aes")), [("truecrypt", "chain")]),
    ("cascade", _with(tcrypt=replace(HEADER, mode="cbc-tcw")), [("truecrypt", "mode")]),
    ("cascade", _with(tcrypt=replace(HEADER, key_bits="512")), [("truecrypt", "key_bits")]),
    ("cascade", _with(tcrypt=None), [("truecrypt", f) for f in ("chain", "mode", "key_bits")]),
    ("dmcrypt", _with_luks(type="hw-opal-crypt"), [("luks", "type")]),
    ("dmcrypt", _with_luks(offset="8388608"), [("luks", "offset")]),
    ("dmcrypt", _with_luks(encryption="aes-cbc-essiv:sha256"), [("luks", "encryption")]),
    ("dmcrypt", _with_luks(sector_size=512), [("luks", "sector_size")]),
    ("opal", _with(opal=None), NO_OPAL),
    ("opal", _with_opal("range", start_blocks=0), [("range", "start_blocks")]),
    ("opal", _with_opal("range", length_blocks=262143), [("range", "length_blocks")]),
    ("opal", _with_opal("range", read_lock_enabled=False), [("range", "read_lock_enabled")]),
    ("opal", _with_opal("range", write_lock_enabled=False), [("range", "write_lock_enabled")]),
    ("opal", _with_opal("status", locking_enabled=False), [("locking-off", None)]),
    ("opal", _with_opal("status", mbr_enabled=True), [("shadowed", None)]),
    ("opal", _with_opal(None, state="locked"), [("range", "state")]),
    ("opal", _with_opal(None, state="off"), [("range", "state")]),
    ("opal", _with_opal(None, state_before="unlocked"), [("range-not-locked", None)]),
    ("opal", _with_opal(None, state_before=None), [("range-not-locked", None)]),
    ("plain on sed", _with_opal(None, state="unlocked"), [("range", "state")]),
    ("plain on sed", _with_opal("status", mbr_enabled=True), [("shadowed", None)]),
    ("dmcrypt on sed", _with_opal(None, state="unlocked"), [("range", "state")]),
    ("dmcrypt on sed", _with_opal("status", mbr_enabled=True), [("shadowed", None)]),
]


@pytest.mark.parametrize(("name", "change", "expected"), SPOILT)
def test_findings_unlike_the_plan_are_mismatches(
    name: str, change: Change, expected: Sequence[tuple[str, str | None]]
) -> None:
    plan, findings = SOUND[name]
    mismatches = proof.mismatches(plan, change(findings))
    assert [(mismatch.code, mismatch.facts.get("field")) for mismatch in mismatches] == expected
    pairs = [mismatch.facts for mismatch in mismatches if "planned" in mismatch.facts]
    assert all(pair["found"] != pair["planned"] for pair in pairs)


def test_a_planned_discard_must_be_mounted() -> None:
    plan, findings = SOUND["plain"]
    for mounted, codes in ((True, []), (False, ["no-discard"])):
        findings = replace(findings, discard=DiscardFindings({}, mounted=mounted))
        mismatches = proof.mismatches(replace(plan, discards=True), findings)
        assert [mismatch.code for mismatch in mismatches] == codes


@pytest.mark.parametrize("name", ["fde-data", "fde-data_1", "fde-data_2", "fde-data-container"])
def test_every_layer_of_a_cascade_is_compared(name: str) -> None:
    plan, findings = SOUND["cascade"]
    others = [layer for layer in findings.layers if layer.name != name]
    (missing,) = proof.mismatches(plan, replace(findings, layers=others))
    assert missing == _mismatch("mapping-missing", {"name": name})
    (layer,) = (layer for layer in findings.layers if layer.name == name)
    moved = replace(layer.segments[0], offset_sectors=8)
    wrong = replace(layer, segments=(moved, *layer.segments[1:]))
    (segment,) = proof.mismatches(plan, replace(findings, layers=[*others, wrong]))
    assert segment.facts.items() >= {"name": name, "field": "offset_sectors", "found": 8}.items()
    empty = replace(layer, segments=())
    (segments,) = proof.mismatches(plan, replace(findings, layers=[*others, empty]))
    planned = len(layer.segments)
    assert segments == _mismatch("segments", {"name": name, "found": 0, "planned": planned})


@pytest.mark.parametrize("name", ["fde-data_1", "fde-data_2"])
def test_layers_are_proven_under_any_name_of_cryptsetup(name: str) -> None:
    """Cryptsetup 2.8 has its own UUIDs (`CRYPT-SUBDEV-…`) below the mapping asked for."""
    plan, findings = SOUND["cascade"]
    other = {name: "fde-data-otherwise"}

    def rename(layer: Layer) -> Layer:
        below = (replace(s, device=other.get(s.device or "", s.device)) for s in layer.segments)
        maker = layer.made_by or "CRYPT-SUBDEV"
        return Layer(other.get(layer.name, layer.name), maker, tuple(below))

    renamed = [rename(layer) for layer in findings.layers]
    assert proof.mismatches(plan, replace(findings, layers=renamed)) == []
    assert proof.mismatches(plan, replace(findings, layers=renamed[::-1])) == []
    weaker = replace(findings, layers=[layer for layer in renamed if layer.name != other[name]])
    assert _mismatch("mapping-missing", {"name": name}) in proof.mismatches(plan, weaker)
    (at,) = (n for n, layer in enumerate(renamed) if layer.name == other[name])
    for changes in ({"cipher": "aes-cbc-plain64"}, {"key_bits": 256}, {"offset_sectors": 8}):
        spoilt = replace(renamed[at], segments=(replace(renamed[at].segments[0], **changes),))
        layers = [*renamed[:at], spoilt, *renamed[at + 1 :]]
        (mismatch,) = proof.mismatches(plan, replace(findings, layers=layers))
        assert (mismatch.code, mismatch.facts["field"]) == ("segment", next(iter(changes)))


def test_cryptsetups_report_of_a_truecrypt_header_is_parsed() -> None:
    text = (
        "TCRYPT header information for /dev/x\nVersion:       \t5\nMK offset:\t131072\n"
        "Cipher chain:\taes-twofish-serpent\nCipher mode:\txts-plain64\nMK bits:       \t1536\n"
    )
    assert tcrypt.parse_dump(text) == HEADER


@pytest.mark.parametrize("name", SOUND)
def test_a_lost_or_turned_probe_is_a_mismatch(name: str) -> None:
    plan, findings = SOUND[name]
    mismatches = proof.mismatches(plan, replace(findings, plaintext_probe=Probe()))
    assert mismatches == [_mismatch("probe-lost")]
    planned = findings.plaintext_probe.on_medium
    turned = Probe(through_mapping=True, on_medium=not planned)
    mismatches = proof.mismatches(plan, replace(findings, plaintext_probe=turned))
    assert mismatches == [_mismatch("probe-not-plaintext" if planned else "probe-plaintext")]


def test_probes_differ_by_run_and_are_reproducible() -> None:
    first, again, other = map(plaintext_probe.content, "aab")
    assert first == again != other and len(first) == plaintext_probe.BLOCK_BYTES


def test_a_missing_device_is_unreadable(tmp_path: Path) -> None:
    assert plaintext_probe.locked_read(str(tmp_path / "none"), 0) == "ENOENT"


TAGGED = _planned("dmcrypt", **AES, integrity="hmac-sha256")


def test_tags_are_proven_by_header_tables_and_a_probe_that_reached_the_partition() -> None:
    segment = replace(SEGMENT, integrity=LuksIntegrity("hmac(sha256)"))
    luks = LuksHeader({"0": segment}, (768,))
    layers = TAGGED.expectation.layers
    probe = replace(SEEN, written_bytes=4096)

    def causes(luks: LuksHeader, **changed: Any) -> list[str]:
        findings = Observed(layers, luks, None, None, replace(probe, **changed))
        return [mismatch.code for mismatch in proof.mismatches(TAGGED, findings)]

    assert causes(luks) == []
    assert causes(replace(luks, segments=LUKS.segments)) == ["luks"]
    assert causes(luks, written_bytes=0) == ["probe-elsewhere"]
    assert causes(luks, on_medium=True) == ["probe-plaintext"]
    refused = Observed(layers, luks, None, None, probe, of_kind=KindFindings("it says no"))
    assert [mismatch.sentence for mismatch in proof.mismatches(TAGGED, refused)] == ["it says no"]


COMMANDS = {name: ["/usr/local/sbin/product", name] for name in ("open", "close", "prove")}
PRODUCT = _planned("external", product="P", describe=["/usr/local/sbin/product"], **COMMANDS)
WROTE = replace(SEEN, size_bytes=2**22, written_bytes=2**22 + 8192, read_bytes=2**22)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({}, []),
        ({"written_bytes": 2**22 - 512}, ["probe-elsewhere"]),
        ({"written_bytes": 2**24 + 512}, ["probe-elsewhere"]),
        ({"read_bytes": 2**22 - 512}, ["probe-elsewhere"]),
        ({"on_medium": True}, ["probe-plaintext"]),
        ({"through_mapping": False}, ["probe-lost"]),
    ],
)
def test_an_unknown_product_must_have_moved_the_probes_bytes(
    changes: dict[str, Any], cause: list[str]
) -> None:
    probe = replace(WROTE, **changes)
    findings = Observed(PRODUCT.expectation.layers, None, None, None, probe)
    mismatches = proof.mismatches(PRODUCT, findings)
    assert [mismatch.code for mismatch in mismatches] == cause
    if cause == ["probe-elsewhere"]:
        counts = {name: getattr(probe, name) for name in ("written_bytes", "read_bytes")}
        assert mismatches[0].facts == {**counts, "size_bytes": 2**22}
    declared = [plan.expectation.declared for plan in (PRODUCT, TAGGED, OPAL_PLAN, DMCRYPT)]
    assert declared == [True, False, False, False]


@pytest.mark.parametrize("place", [0, 512, 2**20 - 256, 3 * 2**20])
def test_a_probe_is_found_wherever_tags_moved_it(tmp_path: Path, place: int) -> None:
    block, path = plaintext_probe.content("run"), tmp_path / "partition"
    room = 3 * 2**20
    path.write_bytes(bytes(4096 + place) + block + bytes(2**20))
    try:
        assert plaintext_probe.contains(str(path), 4096, room, block)
    except OSError as error:
        pytest.skip(f"no direct reads here: {error}")
    path.write_bytes(bytes(4096) + bytes(room + 2 * 2**20))
    assert not plaintext_probe.contains(str(path), 4096, room, block)
