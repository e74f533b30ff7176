"""Checks of the disks under test: identity, contents, Opal, health, link, power management."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict

from agent.preflight import OPAL_KINDS
from contract.command_results import CheckOutcome
from contract.examination import DiskReport
from controller.targets.doctor.diagnosis import (
    Judge,
    Scene,
    failed,
    not_made,
    passed,
    refused,
    warned,
)

HOT_C = 65.0


def disks(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that disks are as named, not in use, and empty, ours or given up."""
    answer = scene.answer
    assert answer is not None
    if answer.error:
        error = f"{answer.error[:1].upper()}{answer.error[1:].rstrip('.')}"
        yield failed("disks-unseen", {"missing": answer.facts.missing}, error=error)
    for disk in answer.disks:
        named = {"role": disk.role, "serial": disk.serial}
        yield from (refused(problem, "", **named) for problem in disk.refusals)
        if not disk.refusals:
            yield passed("disk-as-named", named, contents=disk.found)


def opal(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that a disk that needs Opal has it, and may be taken."""
    assert scene.answer is not None
    needing = {entry.disk for entry in scene.target.configurations if entry.kind in OPAL_KINDS}
    for disk in scene.answer.disks:
        if disk.role not in needing or not disk.path:
            continue
        if disk.opal is None:
            yield failed("opal-missing", {"role": disk.role})
        elif disk.opal.sid_blocked:
            yield failed("opal-sid-blocked", asdict(disk.opal))
        else:
            sid = "free" if disk.opal.sid_blocked is False else "unknown"
            yield passed(f"opal-sid-{sid}", asdict(disk.opal), role=disk.role)


def _each(judge: Callable[[str, DiskReport], CheckOutcome]) -> Judge:
    """Return a judge of every disk by its role."""

    def judge_all(scene: Scene) -> Iterator[CheckOutcome]:
        if states := scene.examined.disks:
            yield from (judge(role, state) for role, state in states.items())
        else:
            yield _unexamined(scene)

    return judge_all


def _unexamined(scene: Scene) -> CheckOutcome:
    if scene.examined.disks is None:
        return scene.unavailable("disks", "The disks were not looked at")
    return not_made("no-disk-attached")


@_each
def smart(role: str, disk: DiskReport) -> CheckOutcome:
    """Check the disk's own verdict, its errors and its temperature."""
    health = disk.health
    if health is None:
        return not_made("smart-missing", role=role)
    facts = {"role": role, **asdict(health)}
    if health.passed is False:
        return failed("smart-failing", facts)
    if health.errors:
        return warned("smart-errors", facts)
    if (heat_c := disk.temperature_c or health.temperature_c) and heat_c >= HOT_C:
        return warned("smart-hot", facts, heat_c=heat_c)
    return passed("smart-healthy", facts)


@_each
def link(role: str, disk: DiskReport) -> CheckOutcome:
    """Check that the disk's link has its best speed and width."""
    speed = f"{disk.link_speed}, x{disk.link_width}"
    best = f"{disk.link_speed_max}, x{disk.link_width_max}"
    if disk.link_speed is None:
        if speeds := "; ".join(disk.sata_link.values()):
            return passed("link-known", {"role": role}, speeds=speeds)
        return not_made("link-unknown", role=role)
    if speed != best and disk.link_speed_max:
        return failed("link-slow", {"role": role, "now": speed, "most": best})
    return passed("link-best", {"role": role}, speed=speed)


def saving(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that APST and ALPM are alike for disks that are compared."""
    states = scene.examined.disks
    if not states:
        yield _unexamined(scene)
        return
    settings = {role: (d.apst_tolerance_us, d.alpm_policy) for role, d in states.items()}
    known = {role: pair for role, pair in settings.items() if any(pair)}
    words = "; ".join(
        f"{role}: " + ", ".join(filter(None, [a and f"APST up to {a} µs", p and f"ALPM {p}"]))
        for role, (a, p) in known.items()
    )
    if not known:
        yield not_made("saving-unknown")
    elif len(set(known.values())) > 1:
        yield warned("saving-differs", settings=words)
    else:
        yield passed("saving-alike", settings=words)
