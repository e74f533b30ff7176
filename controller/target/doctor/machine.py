"""Diagnoses of the target's state: its counters, its processor, its power, what else runs on it."""

from __future__ import annotations

from collections.abc import Iterator

from contract.plan import Quiet
from controller.target.doctor.controller_host import sleeps
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
from instrumentation.sources.zones import kind_of

MIB = 2**20
ROOM_BYTES = 512 * MIB


def rapl(scene: Scene) -> Iterator[Finding]:
    state = scene.part("rapl")
    if state is None:
        why = scene.part_error("rapl")
        what, way = split(why)
        way = way or "As root on the target: modprobe intel_rapl_msr."
        yield failed(what, way) if why else not_made("It was not told.")
        return
    still = [zone for zone in state["zones"] if zone not in state["moved"]]
    if len(still) == len(state["zones"]):
        sentence = f"RAPL's counters stand still ({', '.join(still)}): they measure nothing."
        way = "Run on the machine itself: a virtual machine shows counters that are not its own."
        yield failed(sentence, way, state)
        return
    rests = [zone for zone in still if kind_of(zone) == "uncore"]  # a graphics processor asleep
    bad = {
        "did not count over rest and load": [zone for zone in still if zone not in rests],
        "counted less than its package": list(state.get("below", ())),
    }
    for fault, zones in bad.items():
        if zones:
            yield warned(
                f"RAPL's {', '.join(zones)} {fault}: it will have no joules.",
                "Go by the other zones, or by a meter; a virtual machine, and firmware that feeds "
                "no counter, show such zones.",
                state,
            )
    if not any(bad.values()):
        counted = f"; {', '.join(rests)} did not count while we looked" if rests else ""
        yield passed(f"RAPL zones {', '.join(state['zones'])}{counted}.", **state)


def origin(scene: Scene) -> Iterator[Finding]:
    """Whether figures would be called measured that a model makes."""
    simulated, declared = scene.part("simulated_rapl"), scene.target["origin"]
    if simulated and declared == "measured":
        yield failed(
            "The inventory calls its figures measured, but the target's RAPL zone is simulated.",
            "Say fde_origin: modelled.",
        )
    elif simulated is None:
        yield scene.untold("simulated_rapl")
    else:
        yield passed(f"Figures are {declared}, which is what the target's counters are.")


def _of_check(name: str, fine: str) -> Judge:
    """What a check of agent/checks said of a machine on which no suite runs."""

    def judge(scene: Scene) -> Iterator[Finding]:
        row = next((row for row in scene.part("checks") or () if row["name"] == name), None)
        if row is None:
            yield scene.untold("checks", "The machine does not offer it.")
        elif row["ok"]:
            yield passed(fine, value=row["value"])
        else:
            what, _, way = row["message"].rpartition(": ")
            verdict = failed if row["severity"] == "blocker" else warned
            yield verdict(f"{what}.", way, {"value": row["value"]})

    return judge


governor = _of_check("governor", "The governor of every processor is performance.")
turbo = _of_check("turbo", "Turbo is off.")
load = _of_check("load", "Nothing else keeps its processors busy.")
memory = _of_check("memory", "There is memory to spare.")
swap = _of_check("swap", "Nothing is swapped out.")


def idle_states(scene: Scene) -> Iterator[Finding]:
    states = scene.part("idle_states")
    if not states or not states["allowed"]:
        yield not_made("The kernel leaves no C-states to the processor, or tells none.")
    elif states["off"]:
        yield warned(
            f"C-states are switched off by hand: {', '.join(states['off'])}.",
            "Leave them as in normal use: they are part of what is measured.",
            states,
        )
    else:
        yield passed(f"C-states {states['allowed']} may be entered.", **states)


def services(scene: Scene) -> Iterator[Finding]:
    groups = scene.part("disturbers")
    if groups is None:
        yield scene.untold("disturbers", "They were not looked at.")
        return
    stop = scene.target.get("quiet", {}).get("stop", Quiet().stop)
    left = {group: units for group, units in groups.items() if group not in stop}
    for group, units in left.items():
        yield warned(
            f"On the target run {group}: {', '.join(units)}.",
            f"Add {group} to fde_stop: then they are stopped for a suite, and started again.",
            {"units": units},
        )
    if not left:
        count = sum(len(units) for units in groups.values())
        more = f"; {count} timers and services are stopped for a suite" if count else ""
        yield passed(f"No service that disturbs runs{more}.", stopped=groups)


def power(scene: Scene) -> Iterator[Finding]:
    supply = scene.part("power")
    if supply is None:
        yield scene.untold("power")
    elif supply["discharging"] or (supply["batteries"] and supply["mains"] is False):
        sentence = "The target runs on its battery: its firmware then saves power as it likes."
        yield failed(sentence, "Plug it in.", supply)
    elif supply["batteries"]:
        sentence = "It has a battery: while that charges, a meter at the wall counts it, too."
        yield warned(sentence, "Let it fill up, or take it out.", supply)
    else:
        yield passed("It has no battery, so it runs on mains.", **supply)


def sleep(scene: Scene) -> Iterator[Finding]:
    facts = scene.part("sleep")
    yield scene.untold("sleep") if facts is None else sleeps("The target", facts)


def room(scene: Scene) -> Iterator[Finding]:
    free = scene.part("room_bytes")
    if free is None:
        yield scene.untold("room_bytes")
        return
    sentence = f"{free / MIB:,.0f} MiB are free there for results"
    if free < ROOM_BYTES:
        way = "Make room below /var/lib on the target's system disk."
        yield failed(f"Only {sentence}.", way, {"free_bytes": free})
    else:
        yield passed(f"{sentence}.", free_bytes=free)
