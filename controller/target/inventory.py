"""The variables of an inventory's host, resolved into its target once every rule holds."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from agent.storage import layout, registry
from agent.storage.base import UNENCRYPTED
from agent.system import quiet
from contract import schema
from contract.errors import AgentError
from contract.parameters import Parameter, ParameterValue, described
from contract.plan import (
    DATA_OFFSET_BYTES,
    TARGET_FORMAT,
    Asset,
    Configuration,
    Disk,
    Extent,
    MeterEntry,
    Quiet,
    TargetDocument,
)
from contract.problem import Problem
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
        needed = {"by_id": self.by_id, "serial": self.serial, "size_bytes": self.size_bytes}
        return [key for key, value in needed.items() if value is None]

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
    settings: Annotated[Mapping[str, Any], schema.REST] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        """Keys that every configuration needs and this one lacks."""
        needed = {"disk": self.disk, "kind": self.kind, "name": self.name}
        return [key for key, value in needed.items() if value is None]

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
        return registry.complete({**self.settings, **named})


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
    assumptions: Mapping[str, Any] = field(default_factory=dict)


def words(entry: Configuration) -> str:
    """Describe a configuration of a resolved target in one short line."""
    named = {"name": entry.name, "kind": entry.kind, "disk": entry.disk}
    configuration = registry.complete({**entry.settings, **named})
    fields = registry.load(configuration.kind).fields
    settings = [_setting_text(field, configuration.settings[field.name]) for field in fields]
    return "; ".join([registry.label(configuration), *(text for text in settings if text)])


def _setting_text(parameter: Parameter, value: ParameterValue) -> str:
    if isinstance(value, bool):
        return parameter.name if value else ""
    return f"{parameter.name} {value}{f' {parameter.unit}' if parameter.unit else ''}"


def table(entries: Sequence[Configuration]) -> list[str]:
    """Return a line for each configuration: name, disk, words."""
    width = max((len(entry.name) for entry in entries), default=0)
    return [f"{entry.name:<{width}}  {entry.disk:<5}  {words(entry)}" for entry in entries]


def resolve(document: Mapping[str, Any]) -> TargetDocument:
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
            "configurations": [
                {"name": each.name, "kind": each.kind, "disk": each.disk, **each.settings}
                for each in (entry.complete() for entry in entries)
            ],
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
    # At one address on a network there may be several: plugs at a broker, sockets of a strip.
    ports = [meter.port for meter in variables.meters if "://" not in meter.port]
    remedy = "Distinguish equal ones as usb:VVVV:PPPP:SERIAL or by path."
    yield from _check_unique("meters", "port", ports, remedy)
    for name, asset in variables.assets.items():
        yield from _check_asset(name, asset)
    yield from _check_quiet(variables.quiet)
    yield from assumptions.broken(variables.assumptions)
    if Path(variables.secrets_file).name != "secrets.json":
        yield Problem(
            "secrets-name", {}, "Invalid fde_secrets_file.", "It must be named secrets.json."
        )


def _check_disks(variables: Variables) -> Iterator[Problem]:
    size = int(variables.extent_bytes)
    if not variables.disks:
        yield Problem(
            "no-disk",
            {},
            "fde_disks names no disk.",
            "Name the one that may be erased as `plain` or as `sed`.",
        )
    aligned = size > 0 and size % layout.MIB == 0
    if not aligned:
        yield Problem(
            "extent",
            {},
            f"fde_extent_bytes is {size}.",
            f"It must be a multiple of 1 MiB ({layout.MIB}), so that every configuration is "
            "aligned alike.",
        )
    if unnamed := list(_check_disk_keys(variables.disks)):
        yield from unnamed
        return
    disks = [entry.disk(role) for role, entry in variables.disks.items()]
    for disk in disks:
        yield from _check_disk_names(disk)
        yield from _check_erase(disk, lab=variables.lab)
        if aligned and (reason := layout.fits(disk, Extent(DATA_OFFSET_BYTES, size))):
            yield Problem("disk-size", {"disk": disk.role}, reason.sentence, reason.remedy)
    identities = {
        "by_id": ("path", {disk.by_id for disk in disks}),
        "serial": ("serial", {disk.serial for disk in disks}),
    }
    for key, (what, different) in identities.items():
        if len(different) < len(disks):
            yield Problem(
                "disk-twice",
                {"key": key},
                f"Two roles name the same disk ({what}).",
                "Each role needs a disk with a serial number that no other has.",
            )


def _check_disk_keys(disks: Mapping[str, DiskVariables]) -> Iterator[Problem]:
    """Yield a problem for names and keys without which a disk cannot be checked further."""
    for role, entry in disks.items():
        facts = {"disk": role}
        if not NAME.fullmatch(role):
            yield Problem(
                "disk-name",
                facts,
                f"Invalid disk name {role!r}.",
                "It must be letters, digits, dots, dashes and underscores.",
            )
        if entry.missing:
            yield Problem("disk-keys", facts, f"Disk {role} lacks {', '.join(entry.missing)}.")
        for key in ("size_bytes", "endurance_bytes", "max_written_bytes"):
            count = getattr(entry, key)
            if count is not None and not str(count).isdecimal():
                what = f"The {key} of disk {role} is {count!r}."
                yield Problem("disk-size-bytes", facts, what, "It must be a number of bytes.")
        if entry.unknown:
            yield Problem(
                "disk-keys",
                facts,
                f"Disk {role} has unknown keys: {', '.join(sorted(entry.unknown))}.",
                "Remove them.",
            )


def _check_disk_names(disk: Disk) -> Iterator[Problem]:
    facts = {"disk": disk.role}
    if not re.fullmatch(r"/dev/disk/by-id/[^/]+", disk.by_id):
        yield Problem(
            "disk-path",
            facts,
            f"Disk {disk.role} is named {disk.by_id}.",
            "Name it by its path below /dev/disk/by-id, which means the same disk after a reboot.",
        )
    elif re.search(r"-part\d+$", disk.by_id):
        what = f"Disk {disk.role} is {disk.by_id}, a partition."
        yield Problem("disk-partition", facts, what, "Name the whole disk.")
    if not disk.serial.strip():
        remedy = "Give it as lsblk --nodeps --output NAME,SERIAL prints it."
        yield Problem("disk-serial", facts, f"Disk {disk.role} has no serial.", remedy)


def _check_erase(disk: Disk, *, lab: bool) -> Iterator[Problem]:
    if disk.erase is None:
        return
    digits = disk.erase_digits
    what, facts = f"Disk {disk.role} has erase {disk.erase!r}", {"disk": disk.role}
    if digits is None and not disk.erase.startswith(f"{disk.serial} "):
        yield Problem(
            "erase-serial",
            facts,
            f"{what}, but its serial is {disk.serial!r}.",
            "`erase` must begin with the disk's own serial number.",
        )
    elif digits is None:
        yield Problem(
            "erase-digits",
            facts,
            f"{what}.",
            "The serial must be followed by the 12 hexadecimal digits that fde check printed.",
        )
    elif not digits and not lab:
        yield Problem(
            "erase-anything",
            facts,
            f"{what}, which permits erasing any contents on any day.",
            "Remove it, read what fde check prints, and set the erase that it prints.",
        )


def _check_configurations(variables: Variables) -> Iterator[Problem]:
    entries = variables.configurations
    if not entries:
        yield Problem("no-configuration", {}, "fde_configurations is empty.", "Name at least one.")
    incomplete = [entry for entry in entries if entry.missing]
    for entry in incomplete:
        what = f"Configuration {entry.name or entry.kind} lacks {', '.join(entry.missing)}."
        yield Problem("configuration-keys", {}, what)
    if incomplete:
        return
    yield from _check_unique("configurations", "name", [str(entry.name) for entry in entries])
    for role in sorted({str(entry.disk) for entry in entries} - set(variables.disks)):
        names = ", ".join(str(entry.name) for entry in entries if entry.disk == role)
        yield Problem(
            "configuration-disk",
            {"disk": role, "configurations": names},
            f"Disk {role} is not named in fde_disks.",
            f"Name it, or remove its configurations: {names}.",
        )
    for entry in entries:
        name = str(entry.name)
        if not NAME.fullmatch(name):
            yield Problem(
                "configuration-name",
                {"configuration": name},
                f"Invalid configuration name {name}: it becomes part of file names.",
                "It must begin with a letter or digit, followed by those, dots, dashes and "
                "underscores; 48 characters at most.",
            )
        try:
            entry.complete()
        except AgentError as error:
            facts = {"configuration": name, "error": str(error)}
            yield Problem("configuration", facts, f"Configuration {name}: {error}")


def _check_quiet(settings: Quiet) -> Iterator[Problem]:
    for name in sorted(set(settings.stop) - set(quiet.GROUPS)):
        known = ", ".join(quiet.GROUPS)
        yield Problem(
            "stop", {}, f"fde_stop: unknown service group {name!r}.", f"Known are {known}."
        )
    governor = settings.governor
    if governor is not None and not re.fullmatch(r"[a-z_]{1,15}", governor):
        remedy = "Name one that cpupower frequency-info lists."
        yield Problem("governor", {}, f"fde_governor is {governor!r}.", remedy)


def _check_asset(name: str, asset: Asset) -> Iterator[Problem]:
    facts = {"asset": name}
    for key, path in (("path", asset.path), ("sums", asset.sums)):
        if path is not None and not path.startswith("/"):
            what = f"The {key} of asset {name} is {path!r}."
            yield Problem("asset-path", facts, what, "Give the absolute path on the target.")
    if (asset.sha256 is None) == (asset.sums is None):
        yield Problem(
            "asset-sum",
            facts,
            f"Asset {name} needs either sha256 or sums.",
            "sha256 is its checksum, sums a file on the target as sha256sum writes it.",
        )
    if asset.sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", asset.sha256):
        what = f"The sha256 of asset {name} is not 64 hexadecimal digits."
        yield Problem("asset-sha256", facts, what, "Give what sha256sum prints.")


def _check_unique(
    what: str, key: str, values: Sequence[str], remedy: str = "Each needs a different one."
) -> Iterator[Problem]:
    for value, count in sorted(Counter(values).items()):
        if count > 1:
            text = f"Two {what} have the same {key} {value!r}."
            yield Problem(f"{what}-twice", {key: value}, text, remedy)


def _describe_kind(name: str) -> Iterator[str]:
    kind = registry.load(name)
    who = "nothing" if kind.encrypted_by == UNENCRYPTED else f"the {kind.encrypted_by}"
    yield f"{name}: {who} encrypts"
    yield from (f"  {described(parameter)}" for parameter in kind.fields)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what the kinds of configurations declare."""
    parser = ArgumentParser(prog="python -m controller.target.inventory", description=__doc__)
    parser.add_argument("--kinds", action="store_true", help="what fde_configurations may have")
    parser.parse_args(arguments)
    print("\n".join(line for name in registry.names() for line in _describe_kind(name)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
