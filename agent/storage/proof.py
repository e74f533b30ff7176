"""The proof that a configuration is what the plan says; a mismatch voids the run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from agent.command import CommandError, run
from agent.storage import ciphers, devices, layout, mapping, opal, plaintext_probe
from agent.storage.base import Expectation, Layer, Place, Segment
from agent.storage.devices import BLOCK
from agent.storage.guard import MAPPING
from agent.storage.secrets import Secrets
from agent.storage.stack import Entered


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


def planned(place: Place, expectation: Expectation, discards: bool = False) -> Planned:
    """What the plan asks for, in the units in which it is found."""
    name = Path(place.partition).name
    disk = (BLOCK / name).resolve().parent.name
    block_bytes = int((BLOCK / disk / "queue" / "logical_block_size").read_text())
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


def mismatches(plan: Planned, found: Found) -> list[str]:
    """Compare findings with the plan; every difference a sentence, none if it is proven."""
    expectation = plan.expectation
    said = _layer_mismatches(expectation.layers, found.layers)
    if expectation.luks_segment is not None:
        said += _luks_mismatches(plan, found.luks)
    if expectation.range_state != "off" or found.opal is not None:
        said += _opal_mismatches(plan, found.opal or {})
    if expectation.chain is not None:
        said += _chain_mismatches(expectation.chain, found.tcrypt or {})
    if found.discard and found.discard["mounted"] != plan.discards:
        how, wanted = ("with" if on else "without" for on in (not plan.discards, plan.discards))
        said.append(f"the file system is mounted {how} discard, planned {wanted}")
    return said + _probe_mismatches(expectation, found.plaintext_probe)


def _layer_mismatches(wanted: Sequence[Layer], found: Sequence[Layer]) -> list[str]:
    names = {layer.name: layer for layer in found}
    said = [
        f"there is a mapping {name} that is not planned"
        for name in names
        if name not in {layer.name for layer in wanted}
    ]
    for layer in wanted:
        there = names.get(layer.name)
        if there is None:
            said.append(f"there is no mapping {layer.name}")
            continue
        if there.made_by != layer.made_by:
            said.append(
                f"{layer.name}: the mapping is of {there.made_by or 'unknown'}, "
                f"planned {layer.made_by}"
            )
        if len(there.segments) != len(layer.segments):
            said.append(
                f"{layer.name}: dm segments are {len(there.segments)}, "
                f"planned {len(layer.segments)}"
            )
            continue
        for one, other in zip(there.segments, layer.segments, strict=True):
            said += [f"{layer.name}: {line}" for line in _segment_mismatches(one, other)]
    return said


def _segment_mismatches(found: Segment, wanted: Segment) -> list[str]:
    if found.target != wanted.target:
        # All else differs with it.
        return [f"dm target is {found.target!r}, planned {wanted.target!r}"]
    return [
        f"dm {one.name} is {getattr(found, one.name)!r}, planned {getattr(wanted, one.name)!r}"
        for one in fields(Segment)
        if getattr(found, one.name) != getattr(wanted, one.name)
    ]


def _luks_mismatches(plan: Planned, luks: Mapping[str, Any] | None) -> list[str]:
    if luks is None:
        return ["no LUKS2 header can be read"]
    segment = luks.get("segments", {}).get("0", {})
    wanted: dict[str, Any] = {
        "type": plan.expectation.luks_segment,
        "offset": str(plan.offset_bytes),
    }
    if plan.top.cipher is not None:
        wanted |= {"encryption": plan.top.cipher, "sector_size": plan.top.sector_size}
    else:
        wanted |= {"size": str(plan.size_bytes)}
    said = [
        f"LUKS2 {key} is {segment.get(key)!r}, planned {value!r}"
        for key, value in wanted.items()
        if segment.get(key) != value
    ]
    if plan.top.key_bits is not None and luks.get("key_bits") != [plan.top.key_bits]:
        said.append(f"LUKS2 key_bits is {luks.get('key_bits')}, planned [{plan.top.key_bits}]")
    return said


def _opal_mismatches(plan: Planned, opal_found: Mapping[str, Any]) -> list[str]:
    status = opal_found.get("status", {})
    wanted_state = plan.expectation.range_state
    said = []
    if opal_found.get("state") != wanted_state:
        said.append(f"Opal range state is {opal_found.get('state')!r}, planned {wanted_state!r}")
    if wanted_state != "off":
        range_ = opal_found.get("range") or {}
        wanted = {
            "start_blocks": plan.start_blocks,
            "length_blocks": plan.length_blocks,
            "read_lock_enabled": True,
            "write_lock_enabled": True,
        }
        said += [
            f"Opal range {key} is {range_.get(key)!r}, planned {value!r}"
            for key, value in wanted.items()
            if range_.get(key) != value
        ]
        if opal_found.get("state_before") != "locked":
            said.append("the range was not locked before it was opened")
        if not status.get("locking_enabled"):
            said.append("Opal locking is not enabled")
    if status.get("mbr_enabled") and not status.get("mbr_done"):
        said.append("an MBR shadow hides the start of the disk")
    return said


def _chain_mismatches(chain: str, header: Mapping[str, Any]) -> list[str]:
    bits = str(512 * len(chain.split("-")))
    wanted = {"chain": chain, "mode": "xts-plain64", "key_bits": bits}
    return [
        f"TrueCrypt {key} is {header.get(key)!r}, planned {value!r}"
        for key, value in wanted.items()
        if header.get(key) != value
    ]


def _probe_mismatches(expectation: Expectation, seen: Mapping[str, Any]) -> list[str]:
    if "error" in seen:
        return [str(seen["error"])]
    if not seen["through_mapping"]:
        return [
            "the plaintext probe was not found through the mapping, so the medium proves nothing"
        ]
    if seen["on_medium"] and not expectation.plaintext_on_medium:
        return ["the plaintext probe lies in plaintext on the raw partition"]
    if expectation.plaintext_on_medium and not seen["on_medium"]:
        return ["the plaintext probe is not on the raw partition, where nothing should encrypt it"]
    return []


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
    found = Found(
        layers=mapping.layers(mappings, lines),
        luks=_luks(place) if expectation.luks_segment else None,
        opal=opal.findings(place, secrets, entered.evidence),
        tcrypt=entered.evidence.get("tcrypt"),
        plaintext_probe=_plaintext_probe(place, folder, key),
        discard=layout.discard_findings(place, mappings, _mount_options(folder)),
    )
    plan = planned(place, expectation, configuration.discard)
    said = mismatches(plan, found)
    crypto = Path("/proc/crypto").read_text()
    order = {layer.name: number for number, layer in enumerate(expectation.layers)}
    layers = [
        _document(layer, lines.get(layer.name, []), crypto)
        for layer in sorted(found.layers, key=lambda layer: order.get(layer.name, len(order)))
    ]
    top = next((layer for layer in layers if layer["name"] == MAPPING), {})
    return {
        "ok": not said,
        "mismatches": said,
        "planned": asdict(plan),
        "layers": layers,
        "dmsetup_table": "\n".join(top.get("table", [])),
        "luks": found.luks,
        "opal": found.opal,
        "tcrypt": found.tcrypt,
        "cipher_driver": top.get("cipher_driver"),
        "key_bits": _cipher_bits(top),
        "sector_size": top.get("sector_size"),
        "plaintext_probe": found.plaintext_probe,
        "discard": {**found.discard, "first_bytes": entered.evidence.get("discarded_bytes")},
    }


def _mount_options(folder: Path) -> str:
    """The options of the file system that a folder lies on."""
    return run(
        ["findmnt", "--noheadings", "--output", "OPTIONS", "--target", str(folder)]
    ).out.strip()


def _luks(place: Place) -> dict[str, Any] | None:
    try:
        return opal.luks_metadata(place.partition)
    except CommandError:
        return None


def _plaintext_probe(place: Place, folder: Path, key: str) -> dict[str, Any]:
    """What was seen of it, or `{error}`, so that all else that was found is told as well."""
    try:
        return plaintext_probe.look(
            folder, key, mapping.PATH, place.partition, place.extent.offset_bytes
        )
    except plaintext_probe.ProbeError as error:
        return {"error": str(error)}


def _document(layer: Layer, lines: Sequence[str], crypto: str) -> dict[str, Any]:
    """A layer for the data contract, with the driver of its cipher; no keys."""
    first = layer.segments[0] if layer.segments else Segment(0, "none")
    driver = ciphers.driver(ciphers.algorithm(first.cipher), crypto) if first.cipher else None
    return {
        "name": layer.name,
        "made_by": layer.made_by,
        "table": [mapping.without_key(line) for line in lines],
        "target": first.target,
        "device": first.device,
        "offset_sectors": first.offset_sectors,
        "length_sectors": sum(segment.length_sectors for segment in layer.segments),
        "cipher": first.cipher,
        "volume_key_bits": first.key_bits,
        "sector_size": first.sector_size,
        "options": list(first.options),
        "cipher_driver": driver,
    }


def _cipher_bits(top: Mapping[str, Any]) -> int | None:
    """Bits of the cipher's own key: XTS takes two of them."""
    bits, cipher = top.get("volume_key_bits"), top.get("cipher")
    return bits // ciphers.key_factor(cipher) if bits and cipher else None
