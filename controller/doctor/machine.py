"""Diagnoses of the target's state: its counters, its processor, its power, what else runs on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from contract.plan import Quiet
from controller.doctor.diagnosis import Diagnosis, Scene, not_made, passed, split
from controller.doctor.here import sleeps

MIB = 2**20
ROOM_BYTES = 512 * MIB


def rapl(scene: Scene) -> Iterator[Diagnosis]:
    found = scene.part("rapl")
    if found is None:
        why = scene.part_error("rapl")
        what, way = split(why)
        way = way or "As root on the target: modprobe intel_rapl_msr."
        yield Diagnosis("rapl", "fail", what, way) if why else not_made("rapl", "It was not told.")
        return
    still = [zone for zone in found["zones"] if zone not in found["moved"]]
    if len(still) == len(found["zones"]):
        said = f"RAPL's counters stand still ({', '.join(still)}): they measure nothing."
        way = "Run on the machine itself: a virtual machine shows counters that are not its own."
        yield Diagnosis("rapl", "fail", said, way, found)
    else:
        zones = ", ".join(found["zones"])
        counted = f"; {', '.join(still)} did not count while we looked" if still else ""
        yield passed("rapl", f"RAPL zones {zones}{counted}.", **found)


def origin(scene: Scene) -> Iterator[Diagnosis]:
    """Whether figures would be called measured that a model makes."""
    simulated, said = scene.part("simulated_rapl"), scene.target["origin"]
    if simulated and said == "measured":
        yield Diagnosis(
            "origin",
            "fail",
            "The inventory calls its figures measured, but the target's RAPL zone is simulated.",
            "Say fde_origin: modelled.",
        )
    elif simulated is None:
        yield not_made("origin", scene.part_error("simulated_rapl") or "It was not looked at.")
    else:
        yield passed("origin", f"Figures are {said}, which is what the target's counters are.")


def governor(scene: Scene) -> Iterator[Diagnosis]:
    yield _of_check(scene, "governor", "The governor of every processor is performance.")


def turbo(scene: Scene) -> Iterator[Diagnosis]:
    yield _of_check(scene, "turbo", "Turbo is off.")


def load(scene: Scene) -> Iterator[Diagnosis]:
    yield _of_check(scene, "load", "Nothing else keeps its processors busy.")


def memory(scene: Scene) -> Iterator[Diagnosis]:
    yield _of_check(scene, "memory", "There is memory to spare.")


def swap(scene: Scene) -> Iterator[Diagnosis]:
    yield _of_check(scene, "swap", "Nothing is swapped out.")


def _of_check(scene: Scene, name: str, fine: str) -> Diagnosis:
    """What a check of agent/checks said of a machine on which no suite runs."""
    rows: list[dict[str, Any]] | None = scene.part("checks")
    row = next((row for row in rows or () if row["name"] == name), None)
    if row is None:
        return not_made(name, scene.part_error("checks") or "The machine does not offer it.")
    facts = {"value": row["value"]}
    if row["ok"]:
        return passed(name, fine, **facts)
    what, _, way = row["message"].rpartition(": ")
    state = "fail" if row["severity"] == "blocker" else "warn"
    return Diagnosis(name, state, f"{what}.", way, facts)  # type: ignore[arg-type]


def idle_states(scene: Scene) -> Iterator[Diagnosis]:
    found = scene.part("idle_states")
    if not found or not found["allowed"]:
        yield not_made("c-states", "The kernel leaves no C-states to the processor, or tells none.")
    elif found["off"]:
        yield Diagnosis(
            "c-states",
            "warn",
            f"C-states are switched off by hand: {', '.join(found['off'])}.",
            "Leave them as in normal use: they are part of what is measured.",
            found,
        )
    else:
        yield passed("c-states", f"C-states {found['allowed']} may be entered.", **found)


def services(scene: Scene) -> Iterator[Diagnosis]:
    found = scene.part("disturbers")
    if found is None:
        yield not_made("services", scene.part_error("disturbers") or "They were not looked at.")
        return
    stop = scene.target.get("quiet", {}).get("stop", Quiet().stop)
    left = {group: units for group, units in found.items() if group not in stop}
    for group, units in left.items():
        yield Diagnosis(
            "services",
            "warn",
            f"On the target run {group}: {', '.join(units)}.",
            f"Add {group} to fde_stop: then they are stopped for a suite, and started again.",
            {"units": units},
        )
    if not left:
        count = sum(len(units) for units in found.values())
        more = f"; {count} timers and services are stopped for a suite" if count else ""
        yield passed("services", f"No service that disturbs runs{more}.", stopped=found)


def power(scene: Scene) -> Iterator[Diagnosis]:
    found = scene.part("power")
    if found is None:
        yield not_made("power", scene.part_error("power") or "It was not looked at.")
    elif found["discharging"] or (found["batteries"] and found["mains"] is False):
        said = "The target runs on its battery: its firmware then saves power as it likes."
        yield Diagnosis("power", "fail", said, "Plug it in.", found)
    elif found["batteries"]:
        said = "It has a battery: while that charges, a meter at the wall counts it, too."
        yield Diagnosis("power", "warn", said, "Let it fill up, or take it out.", found)
    else:
        yield passed("power", "It has no battery, so it runs on mains.", **found)


def sleep(scene: Scene) -> Iterator[Diagnosis]:
    found = scene.part("sleep")
    if found is None:
        yield not_made("target-sleep", scene.part_error("sleep") or "It was not looked at.")
    else:
        yield sleeps("target-sleep", "The target", found)


def room(scene: Scene) -> Iterator[Diagnosis]:
    free = scene.part("room_bytes")
    if free is None:
        yield not_made("target-room", scene.part_error("room_bytes") or "It was not looked at.")
        return
    said = f"{free / MIB:,.0f} MiB are free there for results"
    if free < ROOM_BYTES:
        way = "Make room below /var/lib on the target's system disk."
        yield Diagnosis("target-room", "fail", f"Only {said}.", way, {"free_bytes": free})
    else:
        yield passed("target-room", f"{said}.", free_bytes=free)
