"""Diagnoses of the disks under test: identity, contents, Opal, health, link, power management."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from controller.doctor.diagnosis import Diagnosis, Scene, not_made, passed, split

HOT_C = 65.0


def disks(scene: Scene) -> Iterator[Diagnosis]:
    """What `fde check` would refuse: not as named, in use, with somebody's data, owned."""
    assert scene.look is not None
    if scene.look.error:
        yield Diagnosis("disks", "fail", *split(scene.look.error))
    for disk in scene.look.disks:
        facts = {"role": disk["role"], "serial": disk["serial"]}
        for refusal in disk["refusals"]:
            what, way = split(refusal["sentence"])
            more = {**facts, "cause": refusal["cause"]}
            yield Diagnosis("disks", "fail", what, way, more)
        if not disk["refusals"]:
            yield passed("disks", f"{disk['role']} is as named: {disk['found']}.", **facts)


def opal(scene: Scene) -> Iterator[Diagnosis]:
    """Whether the role that needs Opal has it, and may be taken."""
    assert scene.look is not None
    needing = {c["disk"] for c in scene.target["configurations"] if c["kind"] == "opal"}
    for disk in scene.look.disks:
        if disk["role"] not in needing or not disk.get("path"):
            continue
        found = disk.get("opal")
        if found is None:
            what = f"The disk {disk['role']} has no Opal, which its configurations need."
            way = "Name the self-encrypting disk as sed; docs/hardware.md says how to tell it."
            yield Diagnosis("opal", "fail", what, way)
        elif found["sid_blocked"]:
            yield Diagnosis(
                "opal",
                "fail",
                "The firmware has blocked the owner's login (Block SID) until power is lost.",
                "Switch Block SID off in the firmware, then switch the machine off and on.",
                found,
            )
        else:
            sid = "its SID is free" if found["sid_blocked"] is False else "tells nothing of its SID"
            yield passed("opal", f"The disk {disk['role']} has Opal and {sid}.", **found)


def smart(scene: Scene) -> Iterator[Diagnosis]:
    for role, disk in _examined(scene, "smart"):
        if isinstance(disk, Diagnosis):
            yield disk
            continue
        health = disk["health"]
        if health is None:
            yield not_made("smart", f"The disk {role} tells no SMART, or smartctl is not there.")
        elif health["passed"] is False:
            what = f"The disk {role} reports by SMART that it is failing."
            yield Diagnosis("smart", "fail", what, "Replace it.", {"role": role, **health})
        elif health["errors"]:
            what = f"The disk {role} has counted {health['errors']} errors of its medium."
            way = "Look at smartctl -a, and consider replacing it."
            yield Diagnosis("smart", "warn", what, way, {"role": role, **health})
        elif (heat := disk["temperature_c"] or health["temperature_c"]) and heat >= HOT_C:
            what = f"The disk {role} is at {heat:.0f} °C, near where disks slow down."
            yield Diagnosis("smart", "warn", what, "Give it air.", {"role": role, **health})
        else:
            yield passed("smart", f"The disk {role} is healthy by SMART.", role=role, **health)


def link(scene: Scene) -> Iterator[Diagnosis]:
    for role, disk in _examined(scene, "disk-link"):
        if isinstance(disk, Diagnosis):
            yield disk
            continue
        now = f"{disk['link_speed']}, x{disk['link_width']}"
        most = f"{disk['link_speed_max']}, x{disk['link_width_max']}"
        if disk["link_speed"] is None:
            told = "; ".join(disk["sata_link"].values())
            if told:
                yield passed("disk-link", f"The disk {role} is linked at {told}.", role=role)
            else:
                yield not_made("disk-link", f"The link of the disk {role} tells no speed.")
        elif now != most and disk["link_speed_max"]:
            yield Diagnosis(
                "disk-link",
                "fail",
                f"The disk {role} is linked at {now}, though it can do {most}.",
                "Put it into a slot of that speed, see that it sits well, and look at the "
                "firmware's PCIe settings.",
                {"role": role, "now": now, "most": most},
            )
        else:
            yield passed("disk-link", f"The disk {role} is linked at its best, {now}.", role=role)


def saving(scene: Scene) -> Iterator[Diagnosis]:
    """APST and ALPM: kept as they are, but alike for disks that are compared."""
    found: dict[str, tuple[Any, Any]] = {}
    for role, disk in _examined(scene, "disk-saving"):
        if isinstance(disk, Diagnosis):
            yield disk
            return
        found[role] = disk["apst_tolerance_us"], disk["alpm_policy"]
    known = {role: pair for role, pair in found.items() if any(pair)}
    if not known:
        yield not_made("disk-saving", "The disks tell neither APST nor ALPM.")
        return
    words = "; ".join(
        f"{role}: " + ", ".join(filter(None, [a and f"APST up to {a} µs", p and f"ALPM {p}"]))
        for role, (a, p) in known.items()
    )
    if len(set(known.values())) > 1:
        yield Diagnosis(
            "disk-saving",
            "warn",
            f"The disks save power by different settings ({words}).",
            "Set both alike, or the comparison holds their settings, too.",
        )
    else:
        yield passed("disk-saving", f"{words}.")


def _examined(
    scene: Scene, code: str
) -> Iterator[tuple[str, Mapping[str, Any]] | tuple[str, Diagnosis]]:
    found = scene.part("disks")
    if found is None:
        yield "", not_made(code, scene.part_error("disks") or "The disks were not looked at.")
    elif not found:
        yield "", not_made(code, "None of the disks that the inventory names is there.")
    else:
        yield from found.items()
