"""Diagnoses of the disks under test: identity, contents, Opal, health, link, power management."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from controller.target.doctor.diagnosis import (
    Finding,
    Judge,
    Scene,
    failed,
    not_made,
    passed,
    split,
    warned,
)

HOT_C = 65.0


def disks(scene: Scene) -> Iterator[Finding]:
    """What `fde check` would refuse: not as named, in use, with somebody's data, owned."""
    assert scene.look is not None
    if scene.look.error:
        yield failed(*split(scene.look.error))
    for disk in scene.look.disks:
        facts = {"role": disk["role"], "serial": disk["serial"]}
        for refusal in disk["refusals"]:
            facts |= {"cause": refusal["code"]}
            yield failed(refusal["sentence"], refusal["remedy"], facts)
        if not disk["refusals"]:
            yield passed(f"{disk['role']} is as named: {disk['found']}.", **facts)


def opal(scene: Scene) -> Iterator[Finding]:
    """Whether the role that needs Opal has it, and may be taken."""
    assert scene.look is not None
    needing = {c["disk"] for c in scene.target["configurations"] if c["kind"] == "opal"}
    for disk in scene.look.disks:
        if disk["role"] not in needing or not disk.get("path"):
            continue
        state = disk.get("opal")
        if state is None:
            yield failed(
                f"The disk {disk['role']} has no Opal, which its configurations need.",
                "Name the self-encrypting disk as sed; docs/hardware.md says how to tell it.",
            )
        elif state["sid_blocked"]:
            yield failed(
                "The firmware has blocked the owner's login (Block SID) until power is lost.",
                "Switch Block SID off in the firmware, then switch the machine off and on.",
                state,
            )
        else:
            sid = "its SID is free" if state["sid_blocked"] is False else "tells nothing of its SID"
            yield passed(f"The disk {disk['role']} has Opal and {sid}.", **state)


def _each(judge: Callable[[str, Mapping[str, Any]], Finding]) -> Judge:
    """What is found of one disk, for every disk by its role."""

    def judge_all(scene: Scene) -> Iterator[Finding]:
        if disks := scene.part("disks"):
            yield from (judge(role, disk) for role, disk in disks.items())
        else:
            yield _unexamined(scene)

    return judge_all


def _unexamined(scene: Scene) -> Finding:
    if scene.part("disks") is None:
        return scene.untold("disks", "The disks were not looked at.")
    return not_made("None of the disks that the inventory names is there.")


@_each
def smart(role: str, disk: Mapping[str, Any]) -> Finding:
    health = disk["health"]
    if health is None:
        return not_made(f"The disk {role} tells no SMART, or smartctl is not there.")
    facts = {"role": role, **health}
    if health["passed"] is False:
        return failed(f"The disk {role} reports by SMART that it is failing.", "Replace it.", facts)
    if health["errors"]:
        sentence = f"The disk {role} has counted {health['errors']} errors of its medium."
        return warned(sentence, "Look at smartctl -a, and consider replacing it.", facts)
    if (heat := disk["temperature_c"] or health["temperature_c"]) and heat >= HOT_C:
        sentence = f"The disk {role} is at {heat:.0f} °C, near where disks slow down."
        return warned(sentence, "Give it air.", facts)
    return passed(f"The disk {role} is healthy by SMART.", **facts)


@_each
def link(role: str, disk: Mapping[str, Any]) -> Finding:
    now = f"{disk['link_speed']}, x{disk['link_width']}"
    most = f"{disk['link_speed_max']}, x{disk['link_width_max']}"
    if disk["link_speed"] is None:
        if speeds := "; ".join(disk["sata_link"].values()):
            return passed(f"The disk {role} is linked at {speeds}.", role=role)
        return not_made(f"The link of the disk {role} tells no speed.")
    if now != most and disk["link_speed_max"]:
        return failed(
            f"The disk {role} is linked at {now}, though it can do {most}.",
            "Put it into a slot of that speed, see that it sits well, and look at the firmware's "
            "PCIe settings.",
            {"role": role, "now": now, "most": most},
        )
    return passed(f"The disk {role} is linked at its best, {now}.", role=role)


def saving(scene: Scene) -> Iterator[Finding]:
    """APST and ALPM: kept as they are, but alike for disks that are compared."""
    disks = scene.part("disks")
    if not disks:
        yield _unexamined(scene)
        return
    settings = {role: (d["apst_tolerance_us"], d["alpm_policy"]) for role, d in disks.items()}
    known = {role: pair for role, pair in settings.items() if any(pair)}
    words = "; ".join(
        f"{role}: " + ", ".join(filter(None, [a and f"APST up to {a} µs", p and f"ALPM {p}"]))
        for role, (a, p) in known.items()
    )
    if not known:
        yield not_made("The disks tell neither APST nor ALPM.")
    elif len(set(known.values())) > 1:
        yield warned(
            f"The disks save power by different settings ({words}).",
            "Set both alike, or the comparison holds their settings, too.",
        )
    else:
        yield passed(f"{words}.")
