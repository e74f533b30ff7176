"""Configurations in words, for people."""

from __future__ import annotations

import json
import re
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.storage import layout
from contract.errors import ControllerError
from contract.files import write_json
from contract.plan import DATA_OFFSET_BYTES, TARGET_FORMAT, Configuration, Disk, Extent
from controller import declared


def words(entry: Mapping[str, Any]) -> str:
    """What a configuration of a resolved target is, in one short line."""
    return _stack(entry) + ("; what is freed is discarded (TRIM)" if entry.get("discard") else "")


def _stack(entry: Mapping[str, Any]) -> str:
    kind, on_sed = entry["kind"], entry["disk"] == "sed"
    if kind == "plain":
        return "no encryption" + ("; the drive's locking is off" if on_sed else "")
    if kind == "opal":
        return "Opal: the drive encrypts and locks"
    where = ", on the sed" if on_sed else ""
    if kind == "tcrypt":
        return f"TrueCrypt, {entry['cipher']}, {entry['key_bits']} bit{where}"
    header = "LUKS2" if entry["header"] == "luks2" else "no header"
    sectors = f"{entry['sector_size']} B sectors"
    queues = [
        name
        for name, off in (("read", "no_read_workqueue"), ("write", "no_write_workqueue"))
        if entry[off]
    ]
    without = f", no {' and '.join(queues)} queue{'s' if len(queues) > 1 else ''}" if queues else ""
    cipher = f"{entry['cipher']}, {entry['key_bits']} bit"
    return f"dm-crypt, {header}, {cipher}, {sectors}{without}{where}"


def table(entries: list[Mapping[str, Any]]) -> list[str]:
    """A line each: name, disk, words."""
    width = max((len(entry["name"]) for entry in entries), default=0)
    return [f"{entry['name']:<{width}}  {entry['disk']:<5}  {words(entry)}" for entry in entries]


CIPHERS = ("aes", "serpent", "twofish")
# The cascades that TrueCrypt knows, as tcplay and cryptsetup name them.
CHAINS = (
    *CIPHERS,
    "twofish-aes",
    "serpent-twofish-aes",
    "aes-serpent",
    "aes-twofish-serpent",
    "serpent-twofish",
)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")
SECTOR_SIZES = (512, 1024, 2048, 4096)
# Keys of an entry of fde_configurations beside name, kind and disk: which kind may have which.
KEYS_BY_KIND = {
    "plain": frozenset({"discard"}),
    "opal": frozenset({"discard"}),
    "dmcrypt": frozenset(
        {
            *("cipher", "key_bits", "sector_size", "header"),
            *("no_read_workqueue", "no_write_workqueue", "discard"),
        }
    ),
    "tcrypt": frozenset({"cipher", "key_bits"}),
}
NEEDED_BY_KIND = {
    "dmcrypt": ("cipher", "key_bits", "sector_size"),
    "tcrypt": ("cipher", "key_bits"),
}


def resolve(given: Mapping[str, Any]) -> dict[str, Any]:
    """The resolved target (`fde-target/1`). Raises ControllerError with every broken rule."""
    broken = list(_broken(given))
    if broken:
        raise ControllerError("; ".join(broken))
    return {
        **given,
        "format": TARGET_FORMAT,
        "disks": {role: _disk(entry) for role, entry in given["disks"].items()},
        "extent_bytes": int(given["extent_bytes"]),
        "configurations": [_configuration(entry) for entry in given["configurations"]],
        "assets": {name: _asset(entry) for name, entry in given["assets"].items()},
        "assumptions": declared.resolved(given["assumptions"]),
    }


def _disk(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "by_id": entry["by_id"],
        "serial": str(entry["serial"]),
        "size_bytes": int(entry["size_bytes"]),
        "erase": None if entry.get("erase") is None else str(entry["erase"]),
    }


def _configuration(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": entry["name"],
        "kind": entry["kind"],
        "disk": entry["disk"],
        "cipher": entry.get("cipher"),
        "key_bits": _number(entry.get("key_bits")),
        "sector_size": _number(entry.get("sector_size")),
        "header": entry.get("header") or Configuration.header,
        "no_read_workqueue": bool(entry.get("no_read_workqueue")),
        "no_write_workqueue": bool(entry.get("no_write_workqueue")),
        "discard": bool(entry.get("discard")),
    }


def _asset(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"path": entry["path"], "sha256": entry.get("sha256"), "sums": entry.get("sums")}


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _broken(given: Mapping[str, Any]) -> Iterator[str]:
    """Every rule that does not hold, each a sentence with the way out."""
    yield from _disks_broken(given)
    yield from _configurations_broken(given)
    yield from _meters_broken(given["meters"])
    for name, entry in given["assets"].items():
        yield from _asset_broken(name, entry)
    yield from declared.broken(given["assumptions"])
    if Path(given["secrets_file"]).name != "secrets.json":
        yield "fde_secrets_file must be named secrets.json"


def _disks_broken(given: Mapping[str, Any]) -> Iterator[str]:
    disks, size = given["disks"], int(given["extent_bytes"])
    if not disks:
        yield "fde_disks names no disk: name the one that may be erased as `plain` or as `sed`"
    aligned = size > 0 and size % layout.MIB == 0
    if not aligned:
        yield (
            f"fde_extent_bytes is {size}: make it a multiple of 1 MiB ({layout.MIB}), so that "
            "every configuration is aligned alike"
        )
    for role, entry in disks.items():
        by_id, serial = entry["by_id"], str(entry["serial"])
        if not re.fullmatch(r"/dev/disk/by-id/[^/]+", by_id):
            yield (
                f"disk {role} is named {by_id}: name it by its path below /dev/disk/by-id, which "
                "means the same disk after a reboot"
            )
        elif re.search(r"-part\d+$", by_id):
            yield f"disk {role} is named {by_id}, a partition: name the whole disk"
        if not serial.strip():
            yield f"disk {role} has no serial: give it as lsblk --nodeps --output NAME,SERIAL does"
        yield from _erase_broken(role, serial, entry.get("erase"), lab=bool(given.get("lab")))
        disk = Disk(role, by_id, serial, int(entry["size_bytes"]))
        if aligned and (reason := layout.fits(disk, Extent(DATA_OFFSET_BYTES, size))):
            yield reason.rstrip(".")
    for key, what in (("by_id", "path"), ("serial", "serial")):
        if len({str(entry[key]) for entry in disks.values()}) < len(disks):
            yield f"two roles name the same disk ({what}): each role needs a disk of its own"


def _erase_broken(role: str, serial: str, erase: Any, *, lab: bool) -> Iterator[str]:
    if erase is None:
        return
    said, _, seen = str(erase).partition(" ")
    if said != serial:
        yield (
            f"disk {role} has erase {erase!r}, but its serial is {serial!r}: what lies on a disk "
            "is given up by its own serial number, or by none"
        )
    elif not seen and not lab:
        yield (
            f"disk {role} has erase {erase!r}, which gives up whatever may lie there on any day: "
            "take it out, look at what make check says, and put in the erase that it prints"
        )
    elif seen and not re.fullmatch(r"[0-9a-f]{12}", seen):
        yield (
            f"disk {role} has erase {erase!r}: behind the serial stand the 12 hexadecimal digits "
            "that make check printed"
        )


def _configurations_broken(given: Mapping[str, Any]) -> Iterator[str]:
    entries = given["configurations"]
    if not entries:
        yield "fde_configurations is empty: name at least one"
    yield from _twice("configurations", "name", entries)
    for role in sorted({entry["disk"] for entry in entries} - set(given["disks"])):
        names = ", ".join(entry["name"] for entry in entries if entry["disk"] == role)
        yield (
            f"disk {role} is not named in fde_disks: name it, or take these configurations out: "
            f"{names}"
        )
    for entry in entries:
        for reason in _entry_broken(entry):
            yield f"configuration {entry['name']}: {reason}"


def _entry_broken(entry: Mapping[str, Any]) -> Iterator[str]:
    kind = entry["kind"]
    if not NAME.fullmatch(entry["name"]):
        yield (
            "its name becomes part of file names: begin with a letter or digit, go on with those, "
            "dots, dashes and underscores, 48 characters at most"
        )
    if kind == "opal" and entry["disk"] != "sed":
        yield "only the self-encrypting disk can do Opal: disk must be sed"
    # False is what a missing flag means, null what a missing value means.
    said = {key for key, value in entry.items() if value is not None and value is not False}
    for key in sorted(said - {"name", "kind", "disk"} - KEYS_BY_KIND[kind]):
        yield f"{key} means nothing for the kind {kind}: take it out"
    missing = [key for key in NEEDED_BY_KIND.get(kind, ()) if entry.get(key) is None]
    if missing:
        yield f"the kind {kind} needs {', '.join(missing)}"
    elif kind == "dmcrypt":
        yield from _dmcrypt_broken(entry)
    elif kind == "tcrypt":
        yield from _tcrypt_broken(entry)


def _dmcrypt_broken(entry: Mapping[str, Any]) -> Iterator[str]:
    allowed = [f"{cipher}-xts-plain64" for cipher in CIPHERS]
    if entry["cipher"] not in allowed:
        yield f"there is no cipher {entry['cipher']!r} here: choose one of {', '.join(allowed)}"
    if int(entry["key_bits"]) not in (128, 256):
        yield f"key_bits is {entry['key_bits']}: give the cipher's own, 128 or 256 (not XTS's sum)"
    if int(entry["sector_size"]) not in SECTOR_SIZES:
        yield f"sector_size is {entry['sector_size']}: choose one of {_listed(SECTOR_SIZES)}"
    if entry.get("header") not in (None, "luks2", "none"):
        yield f"header is {entry['header']!r}: luks2, or none for plain dm-crypt"


def _tcrypt_broken(entry: Mapping[str, Any]) -> Iterator[str]:
    if entry["cipher"] not in CHAINS:
        yield f"TrueCrypt has no cipher {entry['cipher']!r}: choose one of {', '.join(CHAINS)}"
    if int(entry["key_bits"]) != 256:
        yield f"key_bits is {entry['key_bits']}: TrueCrypt's ciphers have 256"


def _meters_broken(meters: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not meters:
        yield (
            "no meter is named: counters in the processor cannot see the disk, so name one in "
            "fde_meters"
        )
    yield from _twice("meters", "name", meters)
    yield from _twice(
        "meters", "port", meters, "tell equal ones apart as usb:VVVV:PPPP:SERIAL or by path"
    )


def _asset_broken(name: str, entry: Mapping[str, Any]) -> Iterator[str]:
    sha256, sums = entry.get("sha256"), entry.get("sums")
    for key, path in (("path", entry["path"]), ("sums", sums)):
        if path is not None and not path.startswith("/"):
            yield f"asset {name}: {key} is {path!r}: give the absolute path on the target"
    if (sha256 is None) == (sums is None):
        yield (
            f"asset {name}: give either sha256, its checksum, or sums, a file of checksums on the "
            "target as sha256sum writes it"
        )
    if sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", str(sha256)):
        yield f"asset {name}: sha256 is not 64 hexadecimal digits: give what sha256sum prints"


def _twice(
    what: str, key: str, entries: Sequence[Mapping[str, Any]], way_out: str = "give each its own"
) -> Iterator[str]:
    values = [entry[key] for entry in entries]
    for value in sorted({value for value in values if values.count(value) > 1}):
        yield f"two {what} have the same {key} {value!r}: {way_out}"


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))


def main(arguments: Sequence[str] | None = None) -> int:
    """Resolve the variables on standard input (JSON) into the file --out."""
    parser = ArgumentParser(prog="python -m controller.target", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        document = resolve(json.load(sys.stdin))
        options.out.parent.mkdir(parents=True, exist_ok=True)
        write_json(options.out, document)
    except (ControllerError, OSError) as error:
        print(f"fde: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
