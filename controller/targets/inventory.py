"""Check of the variables of an inventory's host, and their conversion into a target."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NoReturn

from agent.storage import layout, registry
from agent.system import quiet
from contract import schema
from contract.errors import AgentError
from contract.parameters import described
from contract.plan import (
    DATA_OFFSET_BYTES,
    TARGET_FORMAT,
    Configuration,
    Disk,
    Extent,
    Filesystem,
    TargetDocument,
    file_by_id,
    file_serial,
)
from contract.problem import Problem, wordings_of
from controller.planning import assumptions
from controller.planning.suites import on_disk
from controller.targets.sizes import parse_size

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")
# Whatever its settings, Ansible reads no hidden file of a folder as an inventory.
SECRETS_FILE = ".secrets.json"
_DISK_KEYS = ("by_id", "serial", "size_bytes")
_FILE_KEYS = ("file", "size_bytes")
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
    """Return a line for each configuration: name, disk, description."""
    width = max((len(entry.name) for entry in entries), default=0)
    return [f"{entry.name:<{width}}  {entry.disk:<5}  {words(entry)}" for entry in entries]


def resolve(document: Mapping[str, Any]) -> TargetDocument:
    """Resolve the variables of a host; raises AgentError with every broken rule."""
    unread = {"format": TARGET_FORMAT, "disks": {}, "extent_bytes": 0, "configurations": ()}
    try:
        assumed = schema.read(dict[str, Any], document["assumptions"], "assumptions")
        extent_bytes = parse_size(document["extent_bytes"]) or 0
        extent_problems = list(_check_extent(document["extent_bytes"]))
        disks = schema.read(dict[str, dict[str, Any]], document["disks"], "disks")
        entries = list(_on_each_disk(document["configurations"]))
        schema.read(dict[str, str | None], document.get("connection", {}))
        partial = schema.read(TargetDocument, {**document, **unread, "assumptions": {}})
        problems = [
            *extent_problems,
            *_check_disks(disks, 0 if extent_problems else extent_bytes, lab=partial.lab),
            *_check_configurations(entries, disks),
            *assumptions.find_problems(assumed),
            *_check_common(partial),
        ]
        if problems:
            raise AgentError(*problems)
        configurations = tuple(map(_complete, entries))
        kinds = {entry.kind for entry in configurations}
        return replace(
            partial,
            packages=tuple(sorted(name for kind in kinds for name in registry.load(kind).packages)),
            disks=_read_disks(disks),
            extent_bytes=extent_bytes,
            configurations=configurations,
            assumptions=assumptions.resolve(assumed),
        )
    except schema.PlacedError as error:
        variable = _variable(error.place)
        text = str(error).replace(error.place, variable, 1).rstrip("?")
        needs_text = isinstance(error, schema.ShapeError) and error.needs_text
        code = "not-text" if needs_text else "type"
        raise AgentError(_problem(code, error=text, variable=variable)) from None
    except ValueError as error:
        raise AgentError(_problem("type", error=error, variable="")) from None


def refuse_date(value: object) -> NoReturn:
    """Raise AgentError for a value that JSON cannot hold, a date of YAML or TOML."""
    raise AgentError(_problem("date", value=value))


def _variable(place: str) -> str:
    """Return the inventory's name of the place of a value in a target's document."""
    if place == "host":
        return "inventory_hostname"
    if place.startswith(("ssh.", "ansible_")):
        return place.replace("ssh.", "ansible_")
    return f"fde_{place.removeprefix('quiet.')}"


def _on_each_disk(configurations: Any) -> Iterator[dict[str, Any]]:
    """Yield the entries, one for each disk of a list, which are then named `NAME-on-DISK`."""
    for entry in schema.read(tuple[dict[str, Any], ...], configurations, "configurations"):
        name, disks = entry.get("name"), entry.get("disk")
        if name is None or not isinstance(disks, list):
            yield entry
        else:
            yield from ({**entry, "name": on_disk(name, disk), "disk": disk} for disk in disks)


def _read_disks(disks: Disks) -> dict[str, Disk]:
    """Read the disks, whose sizes are valid."""
    documents = {}
    for role, entry in disks.items():
        sizes = {key: parse_size(entry[key]) for key in _SIZES if entry.get(key) is not None}
        derived = {}
        if file := entry.get("file"):
            derived = {"by_id": file_by_id(file), "serial": file_serial(file)}
        documents[role] = {**entry, **sizes, **derived}
    return schema.read(dict[str, Disk], documents, "disks")


@dataclass(frozen=True)
class _CommonKeys:
    """The keys that configurations of every kind have."""

    name: str
    kind: str
    disk: str
    filesystem: Filesystem | None = None


def _complete(entry: Mapping[str, Any]) -> Configuration:
    """Return the configuration with its kind's defaults; raises AgentError, ValueError."""
    return replace(registry.complete(entry), filesystem=schema.read(_CommonKeys, entry).filesystem)


def _problem(code: str, **facts: object) -> Problem:
    return Problem.from_wording(wordings_of("controller/targets", "inventory"), code, facts)


def _check_extent(value: object) -> Iterator[Problem]:
    facts = {"variable": "fde_extent_bytes", "size": value}
    size = parse_size(value)
    if size is None:
        yield _problem("size", **facts)
    elif not size or size % layout.MIB:
        yield _problem("extent", **facts, aligned=max(1, size // layout.MIB))


def _check_disks(disks: Disks, size: int, *, lab: bool) -> Iterator[Problem]:
    if not disks:
        yield _problem("no-disk")
    if unnamed := list(_check_disk_keys(disks)):
        yield from unnamed
        return
    read = _read_disks(disks)
    for disk in read.values():
        if disk.file is not None:
            if disk.file != os.path.normpath(disk.file) or not disk.file.startswith("/"):
                yield _problem("disk-file", disk=disk.role, file=disk.file)
        elif not re.fullmatch(r"/dev/disk/by-id/[^/]+", disk.by_id):
            yield _problem("disk-path", disk=disk.role, by_id=disk.by_id)
        elif re.search(r"-part\d+$", disk.by_id):
            yield _problem("disk-partition", disk=disk.role, by_id=disk.by_id)
        if not disk.serial.strip():
            yield _problem("disk-serial", disk=disk.role)
        yield from _check_erase(disk, lab=lab)
        if size and (reason := layout.extent_refusal(disk, Extent(DATA_OFFSET_BYTES, size))):
            facts = {"disk": disk.role, "variable": "fde_extent_bytes"}
            yield Problem("disk-size", facts, reason.sentence, reason.remedy)
    for name, field in {"path": "by_id", "serial": "serial"}.items():
        if len({getattr(disk, field) for disk in read.values()}) < len(disks):
            yield _problem("disk-twice", what=name)


def _check_disk_keys(disks: Disks) -> Iterator[Problem]:
    """Yield the problems of names and keys that prevent further checks of the disks."""
    known_keys = {field.name for field in fields(Disk)} - {"role"}
    for role, entry in disks.items():
        if not NAME.fullmatch(role):
            yield _problem("disk-name", disk=role)
        disk_keys = _FILE_KEYS if "file" in entry else _DISK_KEYS
        if missing := ", ".join(key for key in disk_keys if entry.get(key) is None):
            yield _problem("disk-keys", disk=role, missing=missing, variable=f"fde_disks.{role}")
        for key in _SIZES:
            size = entry.get(key)
            identity = key == "size_bytes"  # it is compared with the kernel's
            if size is not None and (
                parse_size(size) is None or (identity and not str(size).isdecimal())
            ):
                facts = {"variable": f"fde_disks.{role}.{key}", "size": size}
                yield _problem("size-exact" if identity else "size", **facts)
        permitted = {*_FILE_KEYS, "max_written_bytes"} if "file" in entry else known_keys
        for key in sorted(entry.keys() - permitted):
            near = schema.nearest(key, sorted(permitted)).rstrip(".")
            variable = f"fde_disks.{role}.{key}"
            yield _problem("disk-unknown-key", disk=role, key=key, nearest=near, variable=variable)


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
    common = schema.read(tuple[_CommonKeys, ...], entries, "configurations")
    yield from _check_unique("configurations", "name", [keys.name for keys in common])
    for role in sorted({keys.disk for keys in common} - set(disks)):
        names = ", ".join(keys.name for keys in common if keys.disk == role)
        yield _problem("configuration-disk", disk=role, configurations=names)
    for entry in entries:
        if not NAME.fullmatch(entry["name"]):
            yield _problem("configuration-name", configuration=entry["name"])
            continue
        try:
            _complete(entry)
        except AgentError as error:
            yield _problem("configuration", configuration=entry["name"], error=error)


def _check_common(target: TargetDocument) -> Iterator[Problem]:
    """Yield the problems of meters, assets, services, receivers and secrets."""
    yield from _check_unique("meters", "name", [meter.name for meter in target.meters])
    # Several meters may share a network address: the sockets of a power strip.
    ports = [meter.port for meter in target.meters if "://" not in meter.port]
    yield from _check_unique("meters", "port", ports)
    for name, asset in target.assets.items():
        for key, path in (("path", asset.path), ("sums", asset.sums)):
            if path is not None and not path.startswith("/"):
                yield _problem("asset-path", asset=name, key=key, path=path)
        if (asset.sha256 is None) == (asset.sums is None):
            yield _problem("asset-sum", asset=name)
        if asset.sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", asset.sha256):
            yield _problem("asset-sha256", asset=name)
    for group in sorted(set(target.quiet.stop) - set(quiet.GROUPS)):
        yield _problem("stop", group=group, known=", ".join(quiet.GROUPS))
    governor = target.quiet.governor
    if governor is not None and not re.fullmatch(r"[a-z_]{1,15}", governor):
        yield _problem("governor", governor=governor)
    receivers = [receiver.name for receiver in target.notify.receivers]
    yield from _check_unique("receivers", "name", receivers)
    if Path(target.secrets_file).name not in (SECRETS_FILE, SECRETS_FILE.lstrip(".")):
        yield _problem("secrets-name")


def _check_unique(entries: str, key: str, values: Sequence[str]) -> Iterator[Problem]:
    for value, count in sorted(Counter(values).items()):
        if count > 1:
            yield _problem(f"{entries}-twice", key=key, value=value)


def main() -> None:
    """Print the parameters of each kind of configuration."""
    for name in registry.names():
        kind = registry.load(name)
        print(f"{name}: encrypted by {kind.encrypted_by}", *map(described, kind.fields), sep="\n  ")


if __name__ == "__main__":
    main()
