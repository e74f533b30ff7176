"""The proof that a configuration is what the plan says; a mismatch voids the run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agent.storage import ciphers, devices, layout, mapping, opal, plaintext_probe
from agent.storage.base import Expectation, Layer, Place, Segment
from agent.storage.devices import BLOCK, SECTOR_BYTES
from agent.storage.dmcrypt import HMAC_BITS
from agent.storage.guard import MAPPING
from agent.storage.secrets import Secrets
from agent.storage.stack import Entered
from agent.system.command import CommandError, run
from contract import system_text
from contract.problem import Problem, Wording

MISMATCHES: Mapping[str, Wording] = {
    "mapping-missing": Wording("The mapping {name} is missing."),
    "mapping-unplanned": Wording("The mapping {name} is not planned."),
    "mapping-maker": Wording("The mapping {name} is of {found}, planned {planned}."),
    "segments": Wording("{name}: the number of dm segments is {found}, planned {planned}."),
    "segment": Wording("{name}: dm {field} is {found!r}, planned {planned!r}."),
    "luks-missing": Wording("No LUKS2 header can be read."),
    "luks": Wording("LUKS2 {field} is {found!r}, planned {planned!r}."),
    "range": Wording("Opal range {field} is {found!r}, planned {planned!r}."),
    "range-not-locked": Wording("The range was not locked before it was opened."),
    "locking-off": Wording("Opal locking is not enabled."),
    "shadowed": Wording("An MBR shadow hides the start of the disk."),
    "truecrypt": Wording("TrueCrypt {field} is {found!r}, planned {planned!r}."),
    "discard": Wording("The file system is mounted with discard, planned without."),
    "no-discard": Wording("The file system is mounted without discard, planned with."),
    "kind": Wording("{refused}"),
    "probe-failed": Wording("{error}"),
    "probe-elsewhere": Wording(
        "What is written to the file system does not reach the partition, so the medium proves "
        "nothing."
    ),
    "probe-lost": Wording(
        "The plaintext probe was not found through the mapping, so the medium proves nothing."
    ),
    "probe-plaintext": Wording("The plaintext probe lies in plaintext on the raw partition."),
    "probe-not-plaintext": Wording(
        "The plaintext probe is not on the raw partition, where nothing should encrypt it."
    ),
}


def _mismatch(code: str, **facts: Any) -> Problem:
    return Problem.from_wording(MISMATCHES, code, facts)


def _differences(
    code: str, actual: Mapping[str, Any], planned: Mapping[str, Any], **facts: str
) -> list[Problem]:
    """Mismatches of `code`, one for each planned value that differs from the one found."""
    return [
        _mismatch(code, **facts, field=key, found=actual.get(key), planned=value)
        for key, value in planned.items()
        if actual.get(key) != value
    ]


@dataclass(frozen=True)
class Planned:
    """What must be found; blocks are the disk's, bytes count within the partition."""

    expectation: Expectation
    start_blocks: int
    length_blocks: int
    offset_bytes: int
    size_bytes: int
    discards: bool = False

    @property
    def top(self) -> Segment:
        """The segment that carries the file system."""
        return self.expectation.layers[0].segments[0]


@dataclass(frozen=True)
class Found:
    """What is there: mappings, LUKS2 metadata, Opal's findings, TrueCrypt's header, the probe."""

    layers: Sequence[Layer]
    luks: Mapping[str, Any] | None
    opal: Mapping[str, Any] | None
    tcrypt: Mapping[str, Any] | None
    plaintext_probe: Mapping[str, Any]
    discard: Mapping[str, Any] = field(default_factory=dict)
    of_kind: Mapping[str, Any] = field(default_factory=dict)


def planned(place: Place, expectation: Expectation, discards: bool = False) -> Planned:
    """Return what the plan asks for, in the units in which it is found."""
    name = Path(place.partition).name
    block_bytes = devices.block_bytes(name)
    extent = place.extent
    start_bytes = devices.partition_start_bytes(name) + extent.offset_bytes
    return Planned(
        expectation,
        start_blocks=start_bytes // block_bytes,
        length_blocks=extent.size_bytes // block_bytes,
        offset_bytes=extent.offset_bytes,
        size_bytes=extent.size_bytes,
        discards=discards,
    )


def mismatches(plan: Planned, findings: Found) -> list[Problem]:
    """Compare findings with the plan; every difference, none if it is proven."""
    expectation = plan.expectation
    differing = _layer_mismatches(expectation.layers, findings.layers)
    if expectation.luks_segment is not None:
        differing += _luks_mismatches(plan, findings.luks)
    if expectation.range_state != "off" or findings.opal is not None:
        differing += _opal_mismatches(plan, findings.opal or {})
    if expectation.chain is not None:
        bits = str(512 * len(expectation.chain.split("-")))
        wanted = {"chain": expectation.chain, "mode": "xts-plain64", "key_bits": bits}
        differing += _differences("truecrypt", findings.tcrypt or {}, wanted)
    if findings.discard and findings.discard["mounted"] != plan.discards:
        differing.append(_mismatch("no-discard" if plan.discards else "discard"))
    if refused := findings.of_kind.get("refused"):
        differing.append(_mismatch("kind", refused=refused))
    return differing + _probe_mismatches(expectation, findings.plaintext_probe)


def _layer_mismatches(wanted: Sequence[Layer], actual: Sequence[Layer]) -> list[Problem]:
    """Compare the layers that are there with those that are planned.

    A layer is known by its place in the stack where cryptsetup has given it another name.
    """
    left = {layer.name: layer for layer in _stack(actual)}
    pairs = {layer.name: left.pop(layer.name, None) for layer in wanted}
    for name in [name for name, one in pairs.items() if one is None and left]:
        pairs[name] = left.pop(next(iter(left)), None)
    called = {name: one.name for name, one in pairs.items() if one}
    differing = [_mismatch("mapping-unplanned", name=name) for name in left]
    for layer in wanted:
        one = pairs[layer.name]
        if one is None:
            differing.append(_mismatch("mapping-missing", name=layer.name))
            continue
        named = {"name": one.name}
        if layer.made_by not in ("", one.made_by):
            makers = {"found": one.made_by or "unknown", "planned": layer.made_by}
            differing.append(_mismatch("mapping-maker", **named, **makers))
        if len(one.segments) != len(layer.segments):
            counts = {"found": len(one.segments), "planned": len(layer.segments)}
            differing.append(_mismatch("segments", **named, **counts))
            continue
        for segment, planned in zip(one.segments, layer.segments, strict=True):
            # All else differs with the target.
            keys = ["target"] if segment.target != planned.target else list(vars(planned))
            known = {**vars(planned), "device": called.get(planned.device or "", planned.device)}
            values = {key: known[key] for key in keys if known[key] is not None}
            differing += _differences("segment", vars(segment), values, **named)
    return differing


def _stack(layers: Sequence[Layer]) -> list[Layer]:
    """Layers from the one that carries the file system down, then those that do not bear it."""
    left = {layer.name: layer for layer in layers}
    stack, name = [], MAPPING
    while (layer := left.pop(name, None)) is not None:
        stack.append(layer)
        name = layer.segments[0].device or "" if layer.segments else ""
    return stack + list(left.values())


def _luks_mismatches(plan: Planned, luks: Mapping[str, Any] | None) -> list[Problem]:
    if luks is None:
        return [_mismatch("luks-missing")]
    wanted: dict[str, Any] = {
        "type": plan.expectation.luks_segment,
        "offset": str(plan.offset_bytes),
    }
    if plan.top.cipher is not None:
        cipher, tags = plan.expectation.luks_cipher or (plan.top.cipher, None)
        wanted |= {"encryption": cipher, "sector_size": plan.top.sector_size, "integrity": tags}
    else:
        wanted |= {"size": str(plan.size_bytes)}
    header_segment = luks.get("segments", {}).get("0", {})
    tags_found = (header_segment.get("integrity") or {}).get("type")
    segment = {**header_segment, "integrity": tags_found, "key_bits": luks.get("key_bits")}
    if plan.top.key_bits is not None:
        wanted["key_bits"] = [plan.top.key_bits]
    return _differences("luks", segment, wanted)


def _opal_mismatches(plan: Planned, opal_findings: Mapping[str, Any]) -> list[Problem]:
    status = opal_findings.get("status", {})
    planned_state = plan.expectation.range_state
    differing = _differences("range", opal_findings, {"state": planned_state})
    if planned_state != "off":
        wanted = {
            "start_blocks": plan.start_blocks,
            "length_blocks": plan.length_blocks,
            "read_lock_enabled": True,
            "write_lock_enabled": True,
        }
        differing += _differences("range", opal_findings.get("range") or {}, wanted)
        if opal_findings.get("state_before") != "locked":
            differing.append(_mismatch("range-not-locked"))
        if not status.get("locking_enabled"):
            differing.append(_mismatch("locking-off"))
    if status.get("mbr_enabled") and not status.get("mbr_done"):
        differing.append(_mismatch("shadowed"))
    return differing


def _probe_mismatches(expectation: Expectation, probe: Mapping[str, Any]) -> list[Problem]:
    if "error" in probe:
        return [_mismatch("probe-failed", error=str(probe["error"]))]
    if not probe["through_mapping"]:
        return [_mismatch("probe-lost")]
    if expectation.interleaved and probe["written_bytes"] < plaintext_probe.BLOCK_BYTES:
        return [_mismatch("probe-elsewhere")]
    if probe["on_medium"] == expectation.plaintext_on_medium:
        return []
    return [_mismatch("probe-plaintext" if probe["on_medium"] else "probe-not-plaintext")]


def prove(entered: Entered, secrets: Secrets, folder: Path, key: str) -> dict[str, Any]:
    """Look at the entered configuration and compare; the dictionary of the data contract.

    `folder` lies on the file system under test, `key` makes the plaintext probe. Raises AgentError
    where something cannot be read.
    """
    place, configuration = entered.place, entered.configuration
    expectation = entered.kind.expectation(place, configuration)
    mappings = mapping.devices()
    lines = mapping.texts(mappings)
    os.sync()
    asked = ["findmnt", "--noheadings", "--output", "OPTIONS", "--target", str(folder)]
    luks = None
    if expectation.luks_segment:
        with suppress(CommandError):
            luks = opal.luks_metadata(place.partition)
    findings = Found(
        layers=mapping.layers(mappings, lines),
        luks=luks,
        opal=opal.findings(place, secrets, entered.evidence),
        tcrypt=entered.evidence.get("tcrypt"),
        plaintext_probe=_plaintext_probe(place, expectation, folder, key),
        discard=layout.discard_findings(place, mappings, run(asked).out.strip()),
        of_kind=entered.kind.findings(configuration),
    )
    plan = planned(place, expectation, configuration.discard)
    differing = mismatches(plan, findings)
    crypto = system_text.read(Path("/proc/crypto"))
    layers = [
        _document(layer, lines.get(layer.name, []), crypto) for layer in _stack(findings.layers)
    ]
    top = next((layer for layer in layers if layer["name"] == MAPPING), {})
    return {
        "ok": not differing,
        "mismatches": [mismatch.document() for mismatch in differing],
        "planned": asdict(plan),
        "layers": layers,
        "dmsetup_table": "\n".join(top.get("table", [])),
        "luks": findings.luks,
        "opal": findings.opal,
        "tcrypt": findings.tcrypt,
        "of_kind": dict(findings.of_kind),
        "cipher_driver": top.get("cipher_driver"),
        "key_bits": _cipher_bits(top),
        "sector_size": top.get("sector_size"),
        "plaintext_probe": findings.plaintext_probe,
        "discard": {
            **findings.discard,
            "first_bytes": entered.evidence.get("discarded_bytes", 0),
            "first_outcome": entered.evidence.get("discarded", "not-planned"),
        },
    }


def _plaintext_probe(
    place: Place, expectation: Expectation, folder: Path, key: str
) -> dict[str, Any]:
    """Return what was seen of it, or `{error}`, so that all else that was found is told as well."""
    offset_bytes, room_bytes = place.extent.offset_bytes, 0
    try:
        if expectation.interleaved:
            mapped = int(system_text.read(BLOCK / Path(mapping.PATH).resolve().name / "size"))
            offset_bytes -= plaintext_probe.BEFORE_BYTES
            room_bytes = layout.partition_bytes(place.extent) - offset_bytes
            room_bytes -= SECTOR_BYTES * mapped
        return plaintext_probe.look(
            *(folder, key, mapping.PATH, place.partition, offset_bytes),
            room_bytes=room_bytes,
        )
    except plaintext_probe.ProbeError as error:
        return {"error": str(error)}


def _document(layer: Layer, lines: Sequence[str], crypto: str) -> dict[str, Any]:
    """Return a layer for the data contract, with the driver of its cipher; no keys."""
    first = layer.segments[0] if layer.segments else Segment(0, "none")
    driver = ciphers.driver(ciphers.algorithm(first.cipher), crypto) if first.cipher else None
    return {
        "name": layer.name,
        "made_by": layer.made_by,
        "table": [mapping.without_key(line) for line in lines],
        "target": first.target,
        "device": first.device,
        "offset_sectors": first.offset_sectors,
        "length_sectors": sum(segment.length_sectors or 0 for segment in layer.segments),
        "cipher": first.cipher,
        "volume_key_bits": first.key_bits,
        "sector_size": first.sector_size,
        "options": list(first.options),
        "cipher_driver": driver,
    }


def _cipher_bits(top: Mapping[str, Any]) -> int | None:
    """Bits of the cipher's own key: XTS takes two of them, and an HMAC has its own beside."""
    bits, cipher = int(top.get("volume_key_bits") or 0), top.get("cipher")
    if not (bits and cipher):
        return None
    return (bits - (HMAC_BITS if "(hmac(" in cipher else 0)) // ciphers.key_factor(cipher)
