"""The variables of an inventory's host, resolved into its target once every rule holds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from agent.storage import layout, registry
from agent.system import quiet
from contract import schema
from contract.errors import AgentError
from contract.messages import Notify
from contract.parameters import described
from contract.plan import (
    DATA_OFFSET_BYTES,
    TARGET_FORMAT,
    Asset,
    Configuration,
    Disk,
    Extent,
    Filesystem,
    MeterEntry,
    PowerSwitch,
    Quiet,
    SshLink,
    TargetDocument,
)
from contract.problem import Problem, wordings_of
from contract.strict_json import Document
from controller.planning import assumptions
from controller.planning.suites import on_disk

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")
_Number = int | str  # templates yield texts


@dataclass(frozen=True)
class DiskVariables:
    """A disk of `fde_disks`, before it is checked."""

    by_id: str | None = None
    serial: str | int | None = None
    size_bytes: _Number | None = None
    erase: str | int | None = None
    endurance_bytes: _Number | None = None
    max_written_bytes: _Number | None = None
    unknown: Annotated[Mapping[str, Any], schema.REST] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        """Keys that every disk needs and this one lacks."""
        return [key for key in ("by_id", "serial", "size_bytes") if getattr(self, key) is None]

    def disk(self, role: str) -> Disk:
        """Return the disk; raises ValueError where its size is not a number."""
        erase = None if self.erase is None else str(self.erase)
        names = str(self.by_id), str(self.serial)
        writes = (
            None if count is None else int(count)
            for count in (self.endurance_bytes, self.max_written_bytes)
        )
        return Disk(role, *names, int(self.size_bytes or 0), erase, *writes)


@dataclass(frozen=True)
class ConfigurationVariables:
    """An entry of `fde_configurations`, before it is checked; on several disks it means several."""

    name: str | None = None
    kind: str | None = None
    disk: str | tuple[str, ...] | None = None
    filesystem: Filesystem | None = None
    settings: Annotated[Mapping[str, Any], schema.REST] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        """Keys that every configuration needs and this one lacks."""
        return [key for key in ("disk", "kind", "name") if getattr(self, key) is None]

    def on_each_disk(self) -> Iterator[ConfigurationVariables]:
        """Yield an entry for each of its disks, called `NAME-on-DISK` where there is a list."""
        if self.name is None or self.disk is None or isinstance(self.disk, str):
            yield self
            return
        for disk in self.disk:
            yield replace(self, name=on_disk(self.name, disk), disk=disk)

    def complete(self) -> Configuration:
        """Return the configuration with its kind's defaults; raises AgentError."""
        named = {"name": self.name, "kind": self.kind, "disk": self.disk}
        complete = registry.complete({**self.settings, **named})
        return replace(complete, filesystem=self.filesystem)


@dataclass(frozen=True)
class Variables:
    """The variables of a host that have rules beyond their types; Ansible checked the latter."""

    disks: Mapping[str, DiskVariables]
    extent_bytes: _Number
    configurations: tuple[ConfigurationVariables, ...]
    secrets_file: str
    lab: bool = False
    meters: tuple[MeterEntry, ...] = ()
    assets: Mapping[str, Asset] = field(default_factory=dict)
    quiet: Quiet = field(default_factory=Quiet)
    notify: Notify = field(default_factory=Notify)
    power: PowerSwitch | None = None
    ssh: SshLink | None = None
    assumptions: Mapping[str, Any] = field(default_factory=dict)


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


def resolve(document: Document) -> TargetDocument:
    """Resolve the variables of a host; raises AgentError with every broken rule."""
    try:
        variables = schema.read(Variables, document)
        entries = [each for entry in variables.configurations for each in entry.on_each_disk()]
        problems = list(_check(replace(variables, configurations=tuple(entries))))
        if problems:
            raise AgentError(*problems)
        kinds = {str(entry.kind) for entry in entries}
        resolved = {
            "format": TARGET_FORMAT,
            "packages": sorted(name for kind in kinds for name in registry.load(kind).packages),
            "disks": {role: asdict(entry.disk(role)) for role, entry in variables.disks.items()},
            "extent_bytes": int(variables.extent_bytes),
            "configurations": [schema.write(entry.complete()) for entry in entries],
            "assumptions": assumptions.resolved(variables.assumptions),
        }
        return schema.read(TargetDocument, {**document, **resolved})
    except ValueError as error:
        raise AgentError(Problem("type", {"error": str(error)}, f"{error}.")) from None


def _check(variables: Variables) -> Iterator[Problem]:
    """Yield a problem for every rule that does not hold."""
    yield from _check_disks(variables)
    yield from _check_configurations(variables)
    yield from _check_unique("meters", "name", [meter.name for meter in variables.meters])
    # At one address on a network there may be several: the sockets of a strip.
    ports = [meter.port for meter in variables.meters if "://" not in meter.port]
    yield from _check_unique("meters", "port", ports)
    for name, asset in variables.assets.items():
        yield from _check_asset(name, asset)
    for group in sorted(set(variables.quiet.stop) - set(quiet.GROUPS)):
        yield _problem("stop", group=group, known=", ".join(quiet.GROUPS))
    governor = variables.quiet.governor
    if governor is not None and not re.fullmatch(r"[a-z_]{1,15}", governor):
        yield _problem("governor", governor=governor)
    receivers = variables.notify.receivers
    yield from _check_unique("receivers", "name", [receiver.name for receiver in receivers])
    for each in receivers:
        if each.missing:
            yield _problem("receiver-incomplete", receiver=each.name, key=each.missing)
    if variables.power and variables.ssh is None:
        yield _problem("switch-of-controller")
    elif variables.power and not variables.power.argv:
        yield _problem("switch-incomplete")
    yield from assumptions.broken(variables.assumptions)
    if Path(variables.secrets_file).name != "secrets.json":
        yield _problem("secrets-name")


def _problem(code: str, **facts: object) -> Problem:
    return Problem.from_wording(wordings_of("controller/targets", "inventory"), code, facts)


def _check_disks(variables: Variables) -> Iterator[Problem]:
    size = int(variables.extent_bytes)
    if not variables.disks:
        yield _problem("no-disk")
    aligned = size > 0 and size % layout.MIB == 0
    if not aligned:
        yield _problem("extent", size=size)
    if unnamed := list(_check_disk_keys(variables.disks)):
        yield from unnamed
        return
    disks = [entry.disk(role) for role, entry in variables.disks.items()]
    for disk in disks:
        yield from _check_disk_names(disk)
        yield from _check_erase(disk, lab=variables.lab)
        if aligned and (reason := layout.fits(disk, Extent(DATA_OFFSET_BYTES, size))):
            yield Problem("disk-size", {"disk": disk.role}, reason.sentence, reason.remedy)
    identities = {"path": {disk.by_id for disk in disks}, "serial": {disk.serial for disk in disks}}
    for what, different in identities.items():
        if len(different) < len(disks):
            yield _problem("disk-twice", what=what)


def _check_disk_keys(disks: Mapping[str, DiskVariables]) -> Iterator[Problem]:
    """Yield a problem for names and keys without which a disk cannot be checked further."""
    for role, entry in disks.items():
        if not NAME.fullmatch(role):
            yield _problem("disk-name", disk=role)
        if entry.missing:
            yield _problem("disk-keys", disk=role, missing=", ".join(entry.missing))
        for key in ("size_bytes", "endurance_bytes", "max_written_bytes"):
            count = getattr(entry, key)
            if count is not None and not str(count).isdecimal():
                yield _problem("disk-size-bytes", disk=role, key=key, count=count)
        if entry.unknown:
            unknown = ", ".join(sorted(entry.unknown))
            yield _problem("disk-unknown-keys", disk=role, unknown=unknown)


def _check_disk_names(disk: Disk) -> Iterator[Problem]:
    if not re.fullmatch(r"/dev/disk/by-id/[^/]+", disk.by_id):
        yield _problem("disk-path", disk=disk.role, by_id=disk.by_id)
    elif re.search(r"-part\d+$", disk.by_id):
        yield _problem("disk-partition", disk=disk.role, by_id=disk.by_id)
    if not disk.serial.strip():
        yield _problem("disk-serial", disk=disk.role)


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


def _check_configurations(variables: Variables) -> Iterator[Problem]:
    entries = variables.configurations
    if not entries:
        yield _problem("no-configuration")
    incomplete = [entry for entry in entries if entry.missing]
    for entry in incomplete:
        name = entry.name or entry.kind
        yield _problem("configuration-keys", configuration=name, missing=", ".join(entry.missing))
    if incomplete:
        return
    yield from _check_unique("configurations", "name", [str(entry.name) for entry in entries])
    for role in sorted({str(entry.disk) for entry in entries} - set(variables.disks)):
        names = ", ".join(str(entry.name) for entry in entries if entry.disk == role)
        yield _problem("configuration-disk", disk=role, configurations=names)
    for entry in entries:
        if not NAME.fullmatch(str(entry.name)):
            yield _problem("configuration-name", configuration=entry.name)
        try:
            entry.complete()
        except AgentError as error:
            yield _problem("configuration", configuration=entry.name, error=error)


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
