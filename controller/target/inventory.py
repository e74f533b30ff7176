"""What an inventory says of a target: every rule checked, all resolved; configurations in words."""

from __future__ import annotations

import json
import re
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.storage import layout, registry
from agent.storage.base import UNENCRYPTED
from agent.system import quiet
from contract.errors import AgentError
from contract.files import write_json
from contract.names import sentence
from contract.parameters import Parameter, ParameterValue, described
from contract.plan import DATA_OFFSET_BYTES, TARGET_FORMAT, Disk, Extent
from contract.problem import Problem, ProblemError
from controller.planning import assumptions
from controller.planning.suites import on_disk


def words(entry: Mapping[str, Any]) -> str:
    """What a configuration of a resolved target is, in one short line."""
    configuration = registry.complete(entry)
    fields = registry.load(configuration.kind).fields
    settings = [_setting_text(field, configuration.settings[field.name]) for field in fields]
    return "; ".join([registry.label(configuration), *(word for word in settings if word)])


def _setting_text(field: Parameter, value: ParameterValue) -> str:
    if isinstance(value, bool):
        return field.name if value else ""
    return f"{field.name} {value}{f' {field.unit}' if field.unit else ''}"


def table(entries: list[Mapping[str, Any]]) -> list[str]:
    """A line each: name, disk, words."""
    width = max((len(entry["name"]) for entry in entries), default=0)
    return [f"{entry['name']:<{width}}  {entry['disk']:<5}  {words(entry)}" for entry in entries]


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")
KEYS = {"name", "kind", "disk"}
DISK_KEYS = ("by_id", "serial", "size_bytes")


def resolve(values: Mapping[str, Any]) -> dict[str, Any]:
    """The resolved target (`fde-target/1`). Raises ProblemError with every broken rule."""
    values = {**values, "configurations": list(_on_each_disk(values["configurations"]))}
    broken = list(_broken(values))
    if broken:
        raise ProblemError(*broken)
    kinds = {entry["kind"] for entry in values["configurations"]}
    return {
        **values,
        "format": TARGET_FORMAT,
        "packages": sorted(package for kind in kinds for package in registry.load(kind).packages),
        "disks": {role: _disk(entry) for role, entry in values["disks"].items()},
        "extent_bytes": int(values["extent_bytes"]),
        "configurations": [_configuration(entry) for entry in values["configurations"]],
        "assets": {
            name: {"path": entry["path"], "sha256": entry.get("sha256"), "sums": entry.get("sums")}
            for name, entry in values["assets"].items()
        },
        "assumptions": assumptions.resolved(values["assumptions"]),
    }


def _on_each_disk(entries: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """An entry whose disk is a list stands for one on each of them, called `NAME-on-DISK`."""
    for entry in entries:
        disks = entry.get("disk")
        if isinstance(disks, list) and "name" in entry:
            yield from ({**entry, "name": on_disk(entry["name"], d), "disk": d} for d in disks)
        else:
            yield entry


def _disk(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "by_id": entry["by_id"],
        "serial": str(entry["serial"]),
        "size_bytes": int(entry["size_bytes"]),
        "erase": None if entry.get("erase") is None else str(entry["erase"]),
    }


def _configuration(entry: Mapping[str, Any]) -> dict[str, Any]:
    configuration = registry.complete(entry)
    return {
        "name": configuration.name,
        "kind": configuration.kind,
        "disk": configuration.disk,
        **configuration.settings,
    }


def _broken(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for every rule that does not hold."""
    yield from _disks_broken(values)
    yield from _configurations_broken(values)
    yield from _meters_broken(values["meters"])
    for name, entry in values["assets"].items():
        yield from _asset_broken(name, entry)
    yield from _quiet_broken(values.get("quiet", {}))
    yield from assumptions.broken(values["assumptions"])
    if Path(values["secrets_file"]).name != "secrets.json":
        yield Problem(
            "secrets-name", {}, "Invalid fde_secrets_file.", "It must be named secrets.json."
        )


def _disks_broken(values: Mapping[str, Any]) -> Iterator[Problem]:
    disks, size = values["disks"], int(values["extent_bytes"])
    if not disks:
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
    if unnamed := list(_disks_unnamed(disks)):
        yield from unnamed
        return
    for role, entry in disks.items():
        by_id, serial = str(entry["by_id"]), str(entry["serial"])
        facts = {"disk": role}
        if not re.fullmatch(r"/dev/disk/by-id/[^/]+", by_id):
            yield Problem(
                "disk-path",
                facts,
                f"Disk {role} is named {by_id}.",
                "Name it by its path below /dev/disk/by-id, which means the same disk after a "
                "reboot.",
            )
        elif re.search(r"-part\d+$", by_id):
            remedy = "Name the whole disk."
            yield Problem("disk-partition", facts, f"Disk {role} is {by_id}, a partition.", remedy)
        if not serial.strip():
            remedy = "Give it as lsblk --nodeps --output NAME,SERIAL prints it."
            yield Problem("disk-serial", facts, f"Disk {role} has no serial.", remedy)
        yield from _erase_broken(role, serial, entry.get("erase"), lab=bool(values.get("lab")))
        disk = Disk(role, by_id, serial, int(entry["size_bytes"]))
        if aligned and (reason := layout.fits(disk, Extent(DATA_OFFSET_BYTES, size))):
            yield Problem("disk-size", facts, reason.sentence, reason.remedy)
    for key, what in (("by_id", "path"), ("serial", "serial")):
        if len({str(entry[key]) for entry in disks.values()}) < len(disks):
            yield Problem(
                "disk-twice",
                {"key": key},
                f"Two roles name the same disk ({what}).",
                "Each role needs a disk of its own, with a serial number that no other has.",
            )


def _disks_unnamed(disks: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for names and keys without which nothing more can be said of a disk."""
    for role, entry in disks.items():
        facts = {"disk": role}
        if not NAME.fullmatch(role):
            yield Problem(
                "disk-name",
                facts,
                f"Invalid disk name {role!r}.",
                "It must be letters, digits, dots, dashes and underscores.",
            )
        keys = entry if isinstance(entry, Mapping) else {}
        if lacking := [key for key in DISK_KEYS if key not in keys]:
            yield Problem("disk-keys", facts, f"Disk {role} lacks {', '.join(lacking)}.")
        elif not str(keys["size_bytes"]).isdecimal():
            what = f"The size_bytes of disk {role} is {keys['size_bytes']!r}."
            yield Problem("disk-size-bytes", facts, what, "It must be a number of bytes.")
        if stray := sorted(set(keys) - {*DISK_KEYS, "erase"}):
            yield Problem(
                "disk-keys",
                facts,
                f"Disk {role} has unknown keys: {', '.join(stray)}.",
                "Remove them.",
            )


def _erase_broken(role: str, serial: str, erase: Any, *, lab: bool) -> Iterator[Problem]:
    if erase is None:
        return
    digits = Disk(role, "", serial, 0, str(erase)).erase_digits
    what, facts = f"Disk {role} has erase {erase!r}", {"disk": role}
    if digits is None and not str(erase).startswith(f"{serial} "):
        yield Problem(
            "erase-serial",
            facts,
            f"{what}, but its serial is {serial!r}.",
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
            f"{what}, which permits erasing whatever is there on any day.",
            "Remove it, read what fde check says, and set the erase that it prints.",
        )


def _configurations_broken(values: Mapping[str, Any]) -> Iterator[Problem]:
    entries = values["configurations"]
    if not entries:
        yield Problem("no-configuration", {}, "fde_configurations is empty.", "Name at least one.")
    lacking = [(entry, sorted(KEYS - set(entry))) for entry in entries]
    for entry, keys in lacking:
        if keys:
            what = f"Configuration {entry.get('name', entry)} lacks {', '.join(keys)}."
            yield Problem("configuration-keys", {}, what)
    if any(keys for _, keys in lacking):
        return
    yield from _twice("configurations", "name", entries)
    for role in sorted({str(entry["disk"]) for entry in entries} - set(values["disks"])):
        names = [entry["name"] for entry in entries if entry["disk"] == role]
        yield Problem(
            "configuration-disk",
            {"disk": role, "configurations": ", ".join(names)},
            f"Disk {role} is not named in fde_disks.",
            f"Name it, or remove its configurations: {', '.join(names)}.",
        )
    for entry in entries:
        facts = {"configuration": entry["name"]}
        if not NAME.fullmatch(str(entry["name"])):
            yield Problem(
                "configuration-name",
                facts,
                f"Invalid configuration name {entry['name']}: it becomes part of file names.",
                "It must begin with a letter or digit, followed by those, dots, dashes and "
                "underscores; 48 characters at most.",
            )
        try:
            registry.complete(entry)
        except AgentError as error:
            what = f"Configuration {entry['name']}: {error}"
            yield Problem("configuration", {**facts, "error": str(error)}, what)


def _meters_broken(meters: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    yield from _twice("meters", "name", meters)
    # At one address on a network there may be several: plugs at a broker, sockets of a strip.
    wired = [meter for meter in meters if "://" not in str(meter["port"])]
    remedy = "Distinguish equal ones as usb:VVVV:PPPP:SERIAL or by path."
    yield from _twice("meters", "port", wired, remedy)


def _quiet_broken(settings: Mapping[str, Any]) -> Iterator[Problem]:
    for name in sorted(set(settings.get("stop", ())) - set(quiet.GROUPS)):
        known = ", ".join(quiet.GROUPS)
        yield Problem(
            "stop", {}, f"fde_stop: unknown service group {name!r}.", f"Known are {known}."
        )
    governor = settings.get("governor")
    if governor is not None and not re.fullmatch(r"[a-z_]{1,15}", str(governor)):
        remedy = "Name one that cpupower frequency-info lists."
        yield Problem("governor", {}, f"fde_governor is {governor!r}.", remedy)


def _asset_broken(name: str, entry: Mapping[str, Any]) -> Iterator[Problem]:
    sha256, sums = entry.get("sha256"), entry.get("sums")
    facts = {"asset": name}
    for key, path in (("path", entry["path"]), ("sums", sums)):
        if path is not None and not path.startswith("/"):
            what = f"The {key} of asset {name} is {path!r}."
            yield Problem("asset-path", facts, what, "Give the absolute path on the target.")
    if (sha256 is None) == (sums is None):
        yield Problem(
            "asset-sum",
            facts,
            f"Asset {name} needs either sha256 or sums.",
            "sha256 is its checksum, sums a file on the target as sha256sum writes it.",
        )
    if sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", str(sha256)):
        what = f"The sha256 of asset {name} is not 64 hexadecimal digits."
        yield Problem("asset-sha256", facts, what, "Give what sha256sum prints.")


def _twice(
    what: str, key: str, entries: Sequence[Mapping[str, Any]], remedy: str = "Give each its own."
) -> Iterator[Problem]:
    values = [entry[key] for entry in entries]
    for value in sorted({value for value in values if values.count(value) > 1}):
        sentence = f"Two {what} have the same {key} {value!r}."
        yield Problem(f"{what}-twice", {key: value}, sentence, remedy)


def _kind(name: str) -> Iterator[str]:
    kind = registry.load(name)
    who = "nobody" if kind.encrypted_by == UNENCRYPTED else f"the {kind.encrypted_by}"
    yield f"{name}: {who} encrypts"
    yield from (f"  {described(field)}" for field in kind.fields)


def main(arguments: Sequence[str] | None = None) -> int:
    """Resolve the variables on standard input (JSON) into the file --out."""
    parser = ArgumentParser(prog="python -m controller.target.inventory", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path)
    what.add_argument("--kinds", action="store_true", help="what fde_configurations may say")
    options = parser.parse_args(arguments)
    try:
        if options.kinds:
            print("\n".join(line for name in registry.names() for line in _kind(name)))
            return 0
        options.out.parent.mkdir(parents=True, exist_ok=True)
        document = resolve(json.load(sys.stdin))
        write_json(options.out, document)
    except ProblemError as error:
        # Beside the target that it does not become, for the program that plays this.
        write_json(options.out.with_suffix(".problems"), [one.document() for one in error.problems])
        print(f"fde: {sentence(str(error))}", file=sys.stderr)
        return 1
    except (AgentError, OSError) as error:
        print(f"fde: {sentence(str(error))}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
