"""Checks of the disks under test: identity, contents, Opal, health, link, power management."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict

from agent.preflight import OPAL_KINDS
from contract.command_results import CheckOutcome
from contract.examination import DiskReport
from controller.targets.fitness.diagnosis import Scene, failed, not_made, passed, refused, warned

HOT_C = 65.0


def disks(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that disks are the named ones, unused, and empty, ours or permitted to be erased."""
    answer = scene.answer
    assert answer is not None
    if error := answer.error:
        remedy = "Run fde provision, which installs what the agent needs, then check again."
        sentence = f"{error[:1].upper()}{error[1:].rstrip('.')}."
        yield failed(sentence, remedy, missing=answer.facts.missing)
    for disk in answer.disks:
        named = {"role": disk.role, "serial": disk.serial}
        yield from (refused(problem, "", **named) for problem in disk.refusals)
        if not disk.refusals:
            yield passed(f"{disk.role} is as named: {disk.found}.", **named)


def opal(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that disks of Opal configurations support Opal and are not blocked."""
    assert scene.answer is not None
    needing = {entry.disk for entry in scene.target.configurations if entry.kind in OPAL_KINDS}
    for disk in scene.answer.disks:
        role, state = disk.role, disk.opal
        if role not in needing or not disk.path:
            continue
        if state is None:
            sentence = f"Disk {role} has no Opal, which its configurations need."
            remedy = "Name the self-encrypting disk as sed (docs/hardware.md: how to find it)."
            yield failed(sentence, remedy, role=role)
        elif state.sid_blocked:
            yield failed(
                "The firmware has blocked the owner's login (Block SID) until power is lost.",
                "Switch Block SID off in the firmware, then switch the machine off and on.",
                **asdict(state),
            )
        else:
            free = "its SID is free" if state.sid_blocked is False else _SID_UNKNOWN
            yield passed(f"Disk {role} supports Opal; {free}.", **asdict(state))


_SID_UNKNOWN = "it does not report whether its SID is set"


Reports = Mapping[str, DiskReport]
NONE_ATTACHED = not_made("None of the disks that the inventory names is attached.")


def _for_each_disk(
    judge: Callable[[str, DiskReport], CheckOutcome],
) -> Callable[[Scene, Reports], Iterable[CheckOutcome]]:
    """Return a judge that applies `judge` to every disk and its role."""
    return lambda _, disks: [judge(*item) for item in disks.items()] or [NONE_ATTACHED]


@_for_each_disk
def smart(role: str, disk: DiskReport) -> CheckOutcome:
    """Check the disk's own verdict, its errors and its temperature."""
    health = disk.health
    if health is None:
        return not_made(f"Disk {role}: SMART or smartctl is not available.")
    facts = {"role": role, **asdict(health)}
    if health.passed is False:
        return failed(f"Disk {role} reports by SMART that it is failing.", "Replace it.", **facts)
    if health.errors:
        sentence = f"Disk {role} has counted {health.errors} errors of its medium."
        return warned(sentence, "Look at smartctl -a, and consider replacing it.", **facts)
    if (heat_c := disk.temperature_c or health.temperature_c) and heat_c >= HOT_C:
        sentence = f"Disk {role} is at {heat_c:.0f} °C, near where disks slow down."
        return warned(sentence, "Give it air.", **facts)
    return passed(f"Disk {role} is healthy by SMART.", **facts)


@_for_each_disk
def link(role: str, disk: DiskReport) -> CheckOutcome:
    """Check that the disk's link has its best speed and width."""
    speed = f"{disk.link_speed}, x{disk.link_width}"
    best = f"{disk.link_speed_max}, x{disk.link_width_max}"
    if disk.link_speed is None:
        if speeds := "; ".join(disk.sata_link.values()):
            return passed(f"Disk {role} is linked at {speeds}.", role=role)
        return not_made(f"Disk {role}: the speed of its link is not available.")
    if speed != best and disk.link_speed_max:
        return failed(
            f"Disk {role} is linked at {speed}, though it supports {best}.",
            "Put it into a slot of that speed, see that it sits well, and look at the firmware's "
            "PCIe settings.",
            **{"role": role, "now": speed, "most": best},
        )
    return passed(f"Disk {role} is linked at its best, {speed}.", role=role)


def saving(_: Scene, reports: Reports) -> Iterator[CheckOutcome]:
    """Check that all disks have the same settings of APST and ALPM."""
    settings = {role: (d.apst_tolerance_us, d.alpm_policy) for role, d in reports.items()}
    reported = {role: pair for role, pair in settings.items() if any(pair)}
    words = "; ".join(
        f"{role}: " + ", ".join(filter(None, [a and f"APST up to {a} µs", p and f"ALPM {p}"]))
        for role, (a, p) in reported.items()
    )
    if not reports:
        yield NONE_ATTACHED
    elif not reported:
        yield not_made("APST and ALPM: not available on these disks.")
    elif len(set(reported.values())) > 1:
        remedy = "Set both alike, or the comparison holds their settings, too."
        yield warned(f"The disks save power by different settings ({words}).", remedy)
    else:
        yield passed(f"{words}.")
