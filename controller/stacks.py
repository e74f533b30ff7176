"""Configurations in words, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
