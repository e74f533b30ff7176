"""The variables of an inventory's host, resolved into its target once every rule holds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from agent.storage import layout, registry
from agent.system import quiet
from contract import schema
from contract.errors import AgentError
from contract.parameters import described
from contract.plan import (
    DATA_OFFSET_BYTES,
    TARGET_FORMAT,
    Asset,
    Configuration,
    Disk,
    Extent,
    Filesystem,
    TargetDocument,
)
from contract.problem import Problem, wordings_of
from controller.planning import assumptions
from controller.planning.suites import on_disk

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")
_DISK_KEYS = ("by_id", "serial", "size_bytes")
_SIZES = ("size_bytes", "endurance_bytes", "max_written_bytes")
Entries = Sequence[Mapping[str, Any]]
Disks = Mapping[str, Mapping[str, Any]]


def words(entry: Configuration) -> str:
    """Describe a configuration of a resolved target in one short line."""
    configuration = registry.fill_in(entry)
    texts = [registry.label(configuration)]
    for parameter in registry.load(configuration.kind).fields:
        value = configuration.settings[parameter.name]
        if isinstance(value, bool):
            texts += [parameter.name] * value
        else:
            texts.append(f"{parameter.name} {value} {parameter.unit}".rstrip())
    return "; ".join(texts)


def table(entries: Sequence[Configuration]) -> list[str]:
    """Return a line for each configuration: name, disk, words."""
    width = max((len(entry.name) for entry in entries), default=0)
    return [f"{entry.name:<{width}}  {entry.disk:<5}  {words(entry)}" for entry in entries]


def resolve(document: Mapping[str, Any]) -> TargetDocument:
    """Resolve the variables of a host; raises AgentError with every broken rule."""
    unread = {"format": TARGET_FORMAT, "disks": {}, "extent_bytes": 0, "configurations": ()}
    try:
        assumed = schema.read(dict[str, Any], document["assumptions"], "assumptions")
        extent_bytes = int(str(document["extent_bytes"]))
        disks = schema.read(dict[str, dict[str, Any]], document["disks"], "disks")
        entries = list(_on_each_disk(document["configurations"]))
        rest = schema.read(TargetDocument, {**document, **unread, "assumptions": {}})
        problems = [
            *_check_disks(disks, extent_bytes, lab=rest.lab),
            *_check_configurations(entries, disks),
            *assumptions.broken(assumed),
            *_check_rest(rest),
        ]
        if problems:
            raise AgentError(*problems)
        configurations = tuple(map(_complete, entries))
        kinds = {entry.kind for entry in configurations}
        return replace(
            rest,
            packages=tuple(sorted(name for kind in kinds for name in registry.load(kind).packages)),
            disks=_read_disks(disks),
            extent_bytes=extent_bytes,
            configurations=configurations,
            assumptions=assumptions.resolved(assumed),
        )
    except ValueError as error:
        raise AgentError(Problem("type", {"error": str(error)}, f"{error}.")) from None


def _on_each_disk(configurations: Any) -> Iterator[dict[str, Any]]:
    """Yield an entry for each of its disks, called `NAME-on-DISK` where there is a list."""
    for entry in schema.read(tuple[dict[str, Any], ...], configurations, "configurations"):
        name, disks = entry.get("name"), entry.get("disk")
        if name is None or not isinstance(disks, list):
            yield entry
        else:
            yield from ({**entry, "name": on_disk(name, disk), "disk": disk} for disk in disks)


def _read_disks(disks: Disks) -> dict[str, Disk]:
    """Read the disks; a serial number of digits alone may be a number, and NO is none."""
    texts = {
        role: {key: str(entry[key]) for key in ("serial", "erase") if type(entry.get(key)) is int}
        for role, entry in disks.items()
    }
    sizes = {
        role: {key: int(entry[key]) for key in _SIZES if entry.get(key) is not None}
        for role, entry in disks.items()
    }
    read = {role: {**entry, **texts[role], **sizes[role]} for role, entry in disks.items()}
    return schema.read(dict[str, Disk], read, "disks")


@dataclass(frozen=True)
class _Named:
    """What configurations of every kind have."""

    name: str
    kind: str
    disk: str
    filesystem: Filesystem | None = None


def _complete(entry: Mapping[str, Any]) -> Configuration:
    """Return the configuration with its kind's defaults; raises AgentError, ValueError."""
    return replace(registry.complete(entry), filesystem=schema.read(_Named, entry).filesystem)


def _problem(code: str, **facts: object) -> Problem:
    return Problem.from_wording(wordings_of("controller/targets", "inventory"), code, facts)


def _check_disks(disks: Disks, size: int, *, lab: bool) -> Iterator[Problem]:
    if not disks:
        yield _problem("no-disk")
    aligned = size > 0 and size % layout.MIB == 0
    if not aligned:
        yield _problem("extent", size=size)
    if unnamed := list(_check_disk_keys(disks)):
        yield from unnamed
        return
    read = _read_disks(disks)
    for disk in read.values():
        if not re.fullmatch(r"/dev/disk/by-id/[^/]+", disk.by_id):
            yield _problem("disk-path", disk=disk.role, by_id=disk.by_id)
        elif re.search(r"-part\d+$", disk.by_id):
            yield _problem("disk-partition", disk=disk.role, by_id=disk.by_id)
        if not disk.serial.strip():
            yield _problem("disk-serial", disk=disk.role)
        yield from _check_erase(disk, lab=lab)
        if aligned and (reason := layout.fits(disk, Extent(DATA_OFFSET_BYTES, size))):
            yield Problem("disk-size", {"disk": disk.role}, reason.sentence, reason.remedy)
    paths, serials = ({getattr(d, key) for d in read.values()} for key in ("by_id", "serial"))
    for what, different in {"path": paths, "serial": serials}.items():
        if len(different) < len(disks):
            yield _problem("disk-twice", what=what)


def _check_disk_keys(disks: Disks) -> Iterator[Problem]:
    """Yield a problem for names and keys without which a disk cannot be checked further."""
    known = {field.name for field in fields(Disk)} - {"role"}
    for role, entry in disks.items():
        if not NAME.fullmatch(role):
            yield _problem("disk-name", disk=role)
        if missing := ", ".join(key for key in _DISK_KEYS if entry.get(key) is None):
            yield _problem("disk-keys", disk=role, missing=missing)
        for key in _SIZES:
            count = entry.get(key)
            if count is not None and not str(count).isdecimal():
                yield _problem("disk-size-bytes", disk=role, key=key, count=count)
        if unknown := ", ".join(sorted(entry.keys() - known)):
            yield _problem("disk-unknown-keys", disk=role, unknown=unknown)


def _check_erase(disk: Disk, *, lab: bool) -> Iterator[Problem]:
    if disk.erase is None:
        return
    digits, facts = disk.erase_digits, {"disk": disk.role, "erase": disk.erase}
    if digits is None and not disk.erase.startswith(f"{disk.serial} "):
        yield _problem("erase-serial", **facts, serial=disk.serial)
    elif digits is None:
        yield _problem("erase-digits", **facts)
    elif not digits and not lab:
        yield _problem("erase-anything", **facts)


def _check_configurations(entries: Entries, disks: Disks) -> Iterator[Problem]:
    if not entries:
        yield _problem("no-configuration")
    incomplete = False
    for entry in entries:
        if missing := ", ".join(k for k in ("disk", "kind", "name") if entry.get(k) is None):
            incomplete = True
            name = entry.get("name") or entry.get("kind")
            yield _problem("configuration-keys", configuration=name, missing=missing)
    if incomplete:
        return
    named = schema.read(tuple[_Named, ...], entries, "configurations")
    yield from _check_unique("configurations", "name", [each.name for each in named])
    for role in sorted({each.disk for each in named} - set(disks)):
        names = ", ".join(each.name for each in named if each.disk == role)
        yield _problem("configuration-disk", disk=role, configurations=names)
    for entry in entries:
        if not NAME.fullmatch(entry["name"]):
            yield _problem("configuration-name", configuration=entry["name"])
            continue
        try:
            _complete(entry)
        except AgentError as error:
            yield _problem("configuration", configuration=entry["name"], error=error)


def _check_rest(target: TargetDocument) -> Iterator[Problem]:
    """Yield a problem for every rule that is neither of disks nor of configurations."""
    yield from _check_unique("meters", "name", [meter.name for meter in target.meters])
    # At one address on a network there may be several: the sockets of a strip.
    ports = [meter.port for meter in target.meters if "://" not in meter.port]
    yield from _check_unique("meters", "port", ports)
    for name, asset in target.assets.items():
        yield from _check_asset(name, asset)
    for group in sorted(set(target.quiet.stop) - set(quiet.GROUPS)):
        yield _problem("stop", group=group, known=", ".join(quiet.GROUPS))
    governor = target.quiet.governor
    if governor is not None and not re.fullmatch(r"[a-z_]{1,15}", governor):
        yield _problem("governor", governor=governor)
    receivers = target.notify.receivers
    yield from _check_unique("receivers", "name", [receiver.name for receiver in receivers])
    for each in receivers:
        if each.missing:
            yield _problem("receiver-incomplete", receiver=each.name, key=each.missing)
    if target.power and target.ssh is None:
        yield _problem("switch-of-controller")
    elif target.power and not target.power.argv:
        yield _problem("switch-incomplete")
    if Path(target.secrets_file).name != "secrets.json":
        yield _problem("secrets-name")


def _check_asset(name: str, asset: Asset) -> Iterator[Problem]:
    for key, path in (("path", asset.path), ("sums", asset.sums)):
        if path is not None and not path.startswith("/"):
            yield _problem("asset-path", asset=name, key=key, path=path)
    if (asset.sha256 is None) == (asset.sums is None):
        yield _problem("asset-sum", asset=name)
    if asset.sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", asset.sha256):
        yield _problem("asset-sha256", asset=name)


def _check_unique(what: str, key: str, values: Sequence[str]) -> Iterator[Problem]:
    for value, count in sorted(Counter(values).items()):
        if count > 1:
            yield _problem(f"{what}-twice", key=key, value=value)


def main() -> None:
    """Print what the kinds of configurations declare (`--kinds`)."""
    for name in registry.names():
        kind = registry.load(name)
        print(f"{name}: encrypted by {kind.encrypted_by}", *map(described, kind.fields), sep="\n  ")


if __name__ == "__main__":
    main()
