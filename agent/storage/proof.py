"""The proof that a configuration is the planned one; a mismatch voids the run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent.storage import ciphers, devices, layout, mapping, opal, plaintext_probe
from agent.storage.base import Expectation, KindFindings, Layer, Place, Segment, VolumeHeader
from agent.storage.devices import BLOCK, SECTOR_BYTES
from agent.storage.dmcrypt import HMAC_BITS
from agent.storage.guard import MAPPING
from agent.storage.layout import DiscardFindings
from agent.storage.opal import LuksHeader, OpalFindings
from agent.storage.plaintext_probe import Probe
from agent.storage.secrets import Secrets
from agent.storage.stack import Entered
from agent.system.command import CommandError, run
from contract import system_text
from contract.problem import Problem, wordings_of
from workloads.children.kernel_ciphers import driver

# Metadata, tags and journals are written in addition to a probe.
_MOST_TIMES_WRITTEN = 4
MISMATCHES = wordings_of("agent/storage", "mismatch")


Value = str | int | bool | tuple[int, ...] | tuple[str, ...] | None


def _mismatch(code: str, **facts: Any) -> Problem:
    return Problem.from_wording(MISMATCHES, code, facts)


def _differences(
    code: str, actual: object, planned: Mapping[str, Value], **facts: str
) -> list[Problem]:
    """Return a mismatch for each planned value that a field of `actual` differs from."""
    return [
        _mismatch(code, **facts, field=key, found=getattr(actual, key, None), planned=value)
        for key, value in planned.items()
        if getattr(actual, key, None) != value
    ]


@dataclass(frozen=True)
class Planned:
    """The planned state; blocks are the disk's, bytes count within the partition."""

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
class Observed:
    """The observed state: mappings, LUKS2 metadata, Opal, TrueCrypt's header, the probe."""

    layers: Sequence[Layer]
    luks: LuksHeader | None
    opal: OpalFindings | None
    tcrypt: VolumeHeader | None
    plaintext_probe: Probe
    discard: DiscardFindings | None = None
    of_kind: KindFindings = field(default_factory=KindFindings)


_OF_SEGMENT = ("target", "device", "offset_sectors", "cipher", "sector_size", "options")


@dataclass(frozen=True)
class LayerReport:
    """A layer with its table, without keys, and the driver of its cipher."""

    name: str
    made_by: str
    table: tuple[str, ...]
    target: str
    device: str | None
    offset_sectors: int | None
    length_sectors: int
    cipher: str | None
    volume_key_bits: int | None
    sector_size: int | None
    options: tuple[str, ...]
    cipher_driver: str | None

    @property
    def key_bits(self) -> int | None:
        """Bits of the cipher's own key: XTS takes two of them, and an HMAC another."""
        if not (self.volume_key_bits and self.cipher):
            return None
        hmac_bits = HMAC_BITS if "(hmac(" in self.cipher else 0
        return (self.volume_key_bits - hmac_bits) // ciphers.key_factor(self.cipher)


@dataclass(frozen=True)
class Proof:
    """`proof` of run.json (data/README.md); `key_bits` are of the cipher's own key.

    `ok`: nothing differs from the plan; if it is `declared`, nothing more is known.
    """

    ok: bool
    mismatches: tuple[Problem, ...]
    declared: bool = False
    planned: Planned | None = None
    layers: tuple[LayerReport, ...] = ()
    dmsetup_table: str = ""
    luks: LuksHeader | None = None
    opal: OpalFindings | None = None
    tcrypt: VolumeHeader | None = None
    of_kind: KindFindings | None = None
    cipher_driver: str | None = None
    key_bits: int | None = None
    sector_size: int | None = None
    plaintext_probe: Probe | None = None
    discard: DiscardFindings | None = None


def planned(place: Place, expectation: Expectation, discards: bool = False) -> Planned:
    """Convert an expectation into the units of the findings."""
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


def mismatches(plan: Planned, findings: Observed) -> list[Problem]:
    """Compare findings with the plan; return every difference, none if it is proven."""
    expectation = plan.expectation
    differing = _layer_mismatches(expectation.layers, findings.layers)
    if expectation.luks_segment is not None:
        differing += _luks_mismatches(plan, findings.luks)
    if expectation.range_state != "off" or findings.opal is not None:
        differing += _opal_mismatches(plan, findings.opal)
    if expectation.chain is not None:
        bits = str(512 * len(expectation.chain.split("-")))
        header = {"chain": expectation.chain, "mode": "xts-plain64", "key_bits": bits}
        differing += _differences("truecrypt", findings.tcrypt, header)
    if findings.discard and findings.discard.mounted != plan.discards:
        differing.append(_mismatch("no-discard" if plan.discards else "discard"))
    if findings.of_kind.refused:
        differing.append(_mismatch("kind", refused=findings.of_kind.refused))
    return differing + _probe_mismatches(expectation, findings.plaintext_probe)


def _layer_mismatches(planned_layers: Sequence[Layer], actual: Sequence[Layer]) -> list[Problem]:
    """Compare the existing layers with the planned ones.

    A layer to which cryptsetup gave another name is matched by its place in the stack.
    """
    unmatched = {layer.name: layer for layer in _stack(actual)}
    pairs = {layer.name: unmatched.pop(layer.name, None) for layer in planned_layers}
    for name in [name for name, layer in pairs.items() if layer is None and unmatched]:
        pairs[name] = unmatched.pop(next(iter(unmatched)), None)
    names = {name: actual_layer.name for name, actual_layer in pairs.items() if actual_layer}
    differing = [_mismatch("mapping-unplanned", name=name) for name in unmatched]
    for layer in planned_layers:
        actual_layer = pairs[layer.name]
        if actual_layer is None:
            differing.append(_mismatch("mapping-missing", name=layer.name))
            continue
        named = {"name": actual_layer.name}
        if layer.made_by not in ("", actual_layer.made_by):
            makers = {"found": actual_layer.made_by or "unknown", "planned": layer.made_by}
            differing.append(_mismatch("mapping-maker", **named, **makers))
        if len(actual_layer.segments) != len(layer.segments):
            counts = {"found": len(actual_layer.segments), "planned": len(layer.segments)}
            differing.append(_mismatch("segments", **named, **counts))
            continue
        for segment, planned in zip(actual_layer.segments, layer.segments, strict=True):
            # All else differs with the target.
            keys = ["target"] if segment.target != planned.target else list(vars(planned))
            device = names.get(planned.device or "", planned.device)
            fields = {**vars(planned), "device": device}
            values = {key: fields[key] for key in keys if fields[key] is not None}
            differing += _differences("segment", segment, values, **named)
    return differing


def _stack(layers: Sequence[Layer]) -> list[Layer]:
    """Return layers from the one with the file system down, then those that do not carry it."""
    unvisited = {layer.name: layer for layer in layers}
    stack, name = [], MAPPING
    while (layer := unvisited.pop(name, None)) is not None:
        stack.append(layer)
        name = layer.segments[0].device or "" if layer.segments else ""
    return stack + list(unvisited.values())


def _luks_mismatches(plan: Planned, luks: LuksHeader | None) -> list[Problem]:
    segment = luks.segments.get("0") if luks else None
    if luks is None or segment is None:
        return [_mismatch("luks-missing")]
    planned_values: dict[str, Value] = {"type": plan.expectation.luks_segment}
    planned_values |= {"offset": str(plan.offset_bytes)}
    differing = []
    if plan.top.cipher is not None:
        cipher, tags = plan.expectation.luks_cipher or (plan.top.cipher, None)
        planned_values |= {"encryption": cipher, "sector_size": plan.top.sector_size}
        tags_found = segment.integrity.type if segment.integrity else None
        if tags_found != tags:
            integrity = {"field": "integrity", "found": tags_found, "planned": tags}
            differing.append(_mismatch("luks", **integrity))
    else:
        planned_values |= {"size": str(plan.size_bytes)}
    differing = _differences("luks", segment, planned_values) + differing
    if plan.top.key_bits is not None:
        key_bits = plan.top.key_bits + plan.expectation.luks_more_bits
        differing += _differences("luks", luks, {"key_bits": (key_bits,)})
    return differing


def _opal_mismatches(plan: Planned, opal_findings: OpalFindings | None) -> list[Problem]:
    status = opal_findings.status if opal_findings else None
    planned_state = plan.expectation.range_state
    differing = _differences("range", opal_findings, {"state": planned_state})
    if planned_state != "off":
        planned_values: dict[str, Value] = {"read_lock_enabled": True, "write_lock_enabled": True}
        planned_values |= {"start_blocks": plan.start_blocks, "length_blocks": plan.length_blocks}
        differing += _differences("range", opal_findings and opal_findings.range, planned_values)
        if opal_findings is None or opal_findings.state_before != "locked":
            differing.append(_mismatch("range-not-locked"))
        if status is None or not status.locking_enabled:
            differing.append(_mismatch("locking-off"))
    if status and status.mbr_enabled and not status.mbr_done:
        differing.append(_mismatch("shadowed"))
    return differing


def _probe_mismatches(expectation: Expectation, probe: Probe) -> list[Problem]:
    if probe.error is not None:
        return [_mismatch("probe-failed", error=probe.error)]
    if not probe.through_mapping:
        return [_mismatch("probe-lost")]
    counts = {"written_bytes": probe.written_bytes, "read_bytes": probe.read_bytes}
    size = plaintext_probe.BLOCK_BYTES
    if expectation.interleaved and probe.written_bytes < size:
        return [_mismatch("probe-elsewhere", **counts, size_bytes=size)]
    if expectation.declared:
        size, most = probe.size_bytes, _MOST_TIMES_WRITTEN * probe.size_bytes
        if not (size <= probe.written_bytes <= most and size <= probe.read_bytes):
            return [_mismatch("probe-elsewhere", **counts, size_bytes=size)]
    if probe.on_medium == expectation.plaintext_on_medium:
        return []
    return [_mismatch("probe-plaintext" if probe.on_medium else "probe-not-plaintext")]


def prove(
    entered: Entered, secrets: Secrets, folder: Path, key: str, *, search: bool = True
) -> Proof:
    """Examine the entered configuration and compare it with the plan.

    `folder` is on the file system under test, `key` makes the plaintext probe; `search`: look for
    it in all of the partition, which takes minutes, if it is unknown what encrypts. Raises
    AgentError if something cannot be read.
    """
    place, configuration = entered.place, entered.configuration
    expectation = entered.kind.expectation(place, configuration)
    mappings = mapping.devices()
    lines = mapping.tables(mappings)
    os.sync()
    asked = ["findmnt", "--noheadings", "--output", "OPTIONS", "--target", str(folder)]
    luks = None
    if expectation.luks_segment:
        with suppress(CommandError):
            luks = opal.luks_header(place.partition)
    mount_options = run(asked).out.strip()
    findings = Observed(
        layers=mapping.layers(mappings, lines),
        luks=luks,
        opal=opal.findings(place, secrets, entered.evidence),
        tcrypt=entered.evidence.header,
        plaintext_probe=_plaintext_probe(place, expectation, folder, key, search),
        discard=layout.discard_findings(place, mappings, mount_options, entered.first_discard),
        of_kind=entered.kind.findings(configuration),
    )
    plan = planned(place, expectation, configuration.discard)
    differing = mismatches(plan, findings)
    crypto = system_text.read(Path("/proc/crypto"))
    layers = tuple(
        _report(layer, lines.get(layer.name, []), crypto) for layer in _stack(findings.layers)
    )
    top = next((layer for layer in layers if layer.name == MAPPING), None)
    return Proof(
        ok=not differing,
        mismatches=tuple(differing),
        declared=expectation.declared,
        planned=plan,
        layers=layers,
        dmsetup_table="\n".join(top.table) if top else "",
        **{name: getattr(top, name, None) for name in ("cipher_driver", "key_bits", "sector_size")},
        **{name: value for name, value in vars(findings).items() if name != "layers"},
    )


def with_locked_read(proof: Proof, error: str | None) -> Proof:
    """Return the proof with the result of a read of the locked range: an error's name, or None."""
    if error is not None:
        return proof
    return replace(proof, ok=False, mismatches=(*proof.mismatches, _mismatch("range-readable")))


def _plaintext_probe(
    place: Place, expectation: Expectation, folder: Path, key: str, search: bool
) -> Probe:
    """Look for the probe; return an error as such, so that all other findings are kept."""
    offset_bytes, room_bytes = place.extent.offset_bytes, 0
    probe_place = (folder, key, mapping.PATH, place.partition)
    try:
        if expectation.declared:
            size = layout.partition_bytes(place.extent) if search else 0
            return plaintext_probe.look_everywhere(*probe_place, size)
        if expectation.interleaved:
            mapped = int(system_text.read(BLOCK / Path(mapping.PATH).resolve().name / "size"))
            offset_bytes -= plaintext_probe.BEFORE_BYTES
            room_bytes = layout.partition_bytes(place.extent) - offset_bytes
            room_bytes -= SECTOR_BYTES * mapped
        return plaintext_probe.look(*probe_place, offset_bytes, room_bytes=room_bytes)
    except plaintext_probe.ProbeError as error:
        return Probe(error=str(error))


def _report(layer: Layer, lines: Sequence[str], crypto: str) -> LayerReport:
    first = layer.segments[0] if layer.segments else Segment(0, "none")
    return LayerReport(
        name=layer.name,
        made_by=layer.made_by,
        table=tuple(mapping.without_key(line) for line in lines),
        length_sectors=sum(segment.length_sectors or 0 for segment in layer.segments),
        volume_key_bits=first.key_bits,
        **{name: getattr(first, name) for name in _OF_SEGMENT},
        cipher_driver=(first.cipher and driver(ciphers.algorithm(first.cipher), crypto)) or None,
    )
