"""Several hosts as one group: what they may not share, what must be the same, and group.json."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from contract import names, strict_json
from contract.errors import ControllerError
from contract.files import write_json
from controller.holder import require_plain
from instrumentation.choose import UnknownNameError
from instrumentation.meters import registry
from instrumentation.ports import Lookup, PortError

FORMAT = "fde-group/1"
FILE = "group.json"
# What every plan of a group has alike: without these, hosts could not be laid beside each other.
SAME = {
    "origin": "what their figures are (fde_origin)",
    "filesystem": "the file system (fde_filesystem)",
    "runs": "the order of the runs",
}

Target = Mapping[str, Any]
Plan = Mapping[str, Any]


def require_apart(targets: Sequence[Target]) -> None:
    """ControllerError where two hosts are one machine, or would read one meter."""
    broken = [
        reason
        for one, other in combinations(targets, 2)
        for reason in (*_same_machine(one, other), *_same_meter(one, other))
    ]
    if broken:
        raise ControllerError(" ".join(broken))


def _same_machine(one: Target, other: Target) -> Iterator[str]:
    if all(one["ssh"][key] == other["ssh"][key] for key in ("host", "port")):
        address = f"{one['ssh']['host']}, port {one['ssh']['port']}"
        yield (
            f"{one['host']} and {other['host']} are the same machine ({address}): "
            "name it once in the inventory."
        )


def _same_meter(one: Target, other: Target) -> Iterator[str]:
    for mine in one["meters"]:
        for its in other["meters"]:
            if _port(mine) & _port(its):
                yield (
                    f"{one['host']}'s meter {mine['name']} and {other['host']}'s meter "
                    f"{its['name']} are at the same port ({mine['port']}): give each host a meter "
                    "of its own, and tell equal ones apart as usb:VVVV:PPPP:SERIAL or by path."
                )


def _port(meter: Mapping[str, Any]) -> set[str]:
    """What a meter's port is called: as the inventory does, and its device where it is there."""
    names = {str(meter["port"])}
    try:
        ids = registry.load(meter["kind"]).usb_ids
        names.add(os.path.realpath(Lookup(meter["port"], ids).device()))
    except (PortError, UnknownNameError, ValueError):
        pass  # not plugged in or misspelt: the recorder will say so
    return names


def require_alike(plans: Sequence[Plan]) -> None:
    """ControllerError where the hosts would not do the same work on the same stacks."""
    first, *rest = plans
    for plan in rest:
        both = f"{first['host']} and {plan['host']}"
        _require_same_entries("configurations", first, plan, "CONFIGURATIONS=…")
        _require_same_entries("workloads", first, plan, "fde_database, if it is sql")
        if first["extent"]["size_bytes"] != plan["extent"]["size_bytes"]:
            raise ControllerError(
                f"{both} differ in fde_extent_bytes: give both the same in the inventory."
            )
        for key, what in SAME.items():
            if first[key] != plan[key]:
                raise ControllerError(f"{both} differ in {what}: make it the same for all hosts.")


def _require_same_entries(kind: str, one: Plan, other: Plan, way_out: str) -> None:
    entries = [{entry["name"]: entry for entry in plan[kind]} for plan in (one, other)]
    hosts = one["host"], other["host"]
    for mine, its, host, elsewhere in (
        (*entries, *hosts),
        (*reversed(entries), *reversed(hosts)),
    ):
        missing = [name for name in mine if name not in its]
        if missing:
            shared = " ".join(name for name in mine if name in its) or "none"
            raise ControllerError(
                f"{host} has {kind} that {elsewhere} has not: {', '.join(missing)}. Name them in "
                f"both hosts' inventory, or choose what all have ({shared}) with {way_out}."
            )
    for name, mine in entries[0].items():
        unlike = [
            key
            for key in dict.fromkeys([*mine, *entries[1][name]])
            if mine.get(key) != entries[1][name].get(key)
        ]
        if unlike:
            raise ControllerError(
                f"{kind.removesuffix('s').capitalize()} {name} is not the same on {hosts[0]} and "
                f"{hosts[1]} ({', '.join(unlike)}): make it the same in the inventory, "
                f"or leave it out ({way_out})."
            )


def name_of(suite: str, suite_id: str) -> str:
    """`<suite>-<UTC time>`, the time that the ids of all its suites end with."""
    return f"{suite}-{suite_id.rpartition('-')[2]}"


def write(folder: Path, plans: Sequence[Plan]) -> None:
    """group.json, before the first run. Raises ControllerError where the folder is there."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise ControllerError(f"{folder} exists already: wait a second and plan again.") from None
    write_json(
        folder / FILE,
        {
            "format": FORMAT,
            "group": folder.name,
            "suites": [plan["suite_id"] for plan in plans],
            "hosts": [plan["host"] for plan in plans],
        },
    )


def suites(folder: Path) -> list[Path]:
    """The folders of a group's suites, beside its own. Raises ControllerError."""
    require_plain(folder)
    try:
        found = strict_json.loads((folder / FILE).read_text(encoding="utf-8"))
        ids = list(found["suites"])
    except OSError as error:
        raise ControllerError(
            f"{folder / FILE} cannot be read ({error.strerror}): name a group's folder."
        ) from None
    except (ValueError, KeyError, TypeError):
        raise ControllerError(f"{folder / FILE} is damaged: name the suites one by one.") from None
    if found.get("format") != FORMAT:
        raise ControllerError(f"{folder / FILE} is not of the format {FORMAT}.")
    if not all(names.safe(suite_id) for suite_id in ids):
        raise ControllerError(f"{folder / FILE} is damaged: name the suites one by one.")
    return [folder.parent / suite_id for suite_id in ids]
