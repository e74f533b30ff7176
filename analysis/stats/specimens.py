"""Two disks are two specimens: what they differ in besides their encryption."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.suite.records import Suite

# Keys of a disk in provenance/before.json, and what they are called.
FIELDS = {
    "model": "model",
    "firmware": "firmware",
    "transport": "bus",
    "link": "link",
    "size_bytes": "capacity (B)",
    "logical_block_bytes": "sector (B)",
    "spare_percent": "spare space (%)",
    "serial": "serial number",
}


def across(suite: Suite, *names: str | None) -> bool:
    """Whether these configurations lie on more than one disk."""
    return len({suite.disk_of(name) for name in names if name} - {""}) > 1


def table(suite: Suite) -> list[list[str]]:
    """What differs between the disks that were measured: (field, value on each), in words.

    Headed by the disks' roles; empty where there is one disk.
    """
    there = roles(suite)
    if len(there) < 2:
        return []
    known = [_facts(suite, role) for role in there]
    rows = [
        [called, *(str(facts.get(key) or "not known") for facts in known)]
        for key, called in FIELDS.items()
        if len({str(facts.get(key)) for facts in known}) > 1
    ]
    return [["", *there], *rows]


def unlike(suite: Suite) -> list[str]:
    """What the disks differ in besides their serial numbers: `model`, `firmware`."""
    return [row[0] for row in table(suite)[1:] if row[0] != FIELDS["serial"]]


def described(suite: Suite) -> str:
    """`they differ in model and firmware` or `two specimens of one model`."""
    fields = [field.removesuffix(" (B)").removesuffix(" (%)") for field in unlike(suite)]
    if not fields:
        known = any(_facts(suite, role).get("model") for role in roles(suite))
        return "two specimens of one model" if known else "two disks of which nothing is known"
    together = ", ".join(fields[:-1])
    return f"they differ in {f'{together} and {fields[-1]}' if together else fields[-1]}"


def roles(suite: Suite) -> list[str]:
    """Of the disks that the configurations lie on, in the plan's order."""
    return list(dict.fromkeys(filter(None, map(suite.disk_of, suite.configurations))))


def _facts(suite: Suite, role: str) -> Mapping[str, Any]:
    """What the agent found of a disk before the first run, else what the plan says."""
    planned = _mapping(_mapping(suite.plan.get("disks")).get(role))
    return {**planned, **_mapping(_mapping(suite.before.get("disks")).get(role))}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
