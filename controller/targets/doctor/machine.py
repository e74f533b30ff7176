"""Checks of the target's state: its counters, its processor, its power, what else runs on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from agent import checks
from contract.command_results import CheckOutcome, State
from controller.targets.doctor.controller_host import MIB, judge_room, judge_sleep
from controller.targets.doctor.diagnosis import Judge, Scene, failed, not_made, passed, warned
from instrumentation.sources.zones import kind_of

ROOM_BYTES = 512 * MIB


def rapl(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that RAPL's zones can be read and count."""
    state = scene.examined.rapl
    if state is None:
        outcome = scene.unavailable("rapl")
        unread = "rapl" in scene.examined.errors
        yield failed("rapl-unread", why=outcome.sentence) if unread else outcome
        return
    facts = asdict(state)
    still = [zone for zone in state.zones if zone not in state.moved]
    if len(still) == len(state.zones):
        yield failed("rapl-still", facts, names=", ".join(still))
        return
    asleep = [zone for zone in still if kind_of(zone) == "uncore"]  # a graphics processor
    faults = {
        "did not count over rest and load": [zone for zone in still if zone not in asleep],
        "counted less than its package": list(state.below),
    }
    for fault, zones in faults.items():
        if zones:
            yield warned("rapl-zone", facts, names=", ".join(zones), fault=fault)
    if not any(faults.values()):
        counted = f"; {', '.join(asleep)} did not count in the meantime" if asleep else ""
        yield passed("rapl-sound", facts, names=", ".join(state.zones), asleep=counted)


def origin(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that figures of a model are not called measured."""
    simulated, declared = scene.examined.simulated_rapl, scene.target.origin
    if simulated and declared == "measured":
        yield failed("origin-wrong")
    elif simulated is None:
        yield scene.unavailable("simulated_rapl")
    else:
        yield passed("origin-right", origin=declared)


def _by_agent(name: str) -> Judge:
    """Return a judge by the check of agent/checks with this name."""

    def judge(scene: Scene) -> Iterator[CheckOutcome]:
        findings = [each for each in scene.examined.checks or () if each.name == name]
        if not findings:
            yield scene.unavailable("checks", "The machine does not offer it")
        for finding in findings:
            if finding.ok:
                yield passed(name, {"value": finding.value})
                continue
            problem, facts = checks.problem_of(finding), {"value": finding.value}
            state: State = "fail" if finding.severity == "blocker" else "warn"
            yield CheckOutcome("", state, problem.sentence, problem.remedy, facts)

    return judge


governor, turbo, load = map(_by_agent, ("governor", "turbo", "load"))
memory, swap = map(_by_agent, ("memory", "swap"))


def idle_states(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that no C-state is switched off."""
    states = scene.examined.idle_states
    if not states or not states.allowed:
        yield not_made("c-states-unknown")
    elif states.off:
        yield warned("c-states-off", asdict(states), names=", ".join(states.off))
    else:
        yield passed("c-states", asdict(states))


def services(scene: Scene) -> Iterator[CheckOutcome]:
    """Check for services that disturb and that no suite may stop."""
    groups = scene.examined.disturbers
    if groups is None:
        yield scene.unavailable("disturbers")
        return
    stopped = {group: units for group, units in groups.items() if group in scene.target.quiet.stop}
    for group, units in groups.items():
        if group not in stopped:
            yield warned("services-run", {"units": units}, group=group, names=", ".join(units))
    if len(stopped) == len(groups):
        names = "; ".join(f"{group} ({', '.join(units)})" for group, units in stopped.items())
        more = f"; stopped while a suite runs: {names}" if names else ""
        yield passed("services-stopped", {"stopped": stopped}, more=more)


def power(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that the target runs on mains."""
    supply = scene.examined.power
    if supply is None:
        yield scene.unavailable("power")
    elif supply.discharging or (supply.batteries and supply.mains is False):
        yield failed("power-battery", asdict(supply))
    elif supply.batteries:
        yield warned("power-charging", asdict(supply))
    else:
        yield passed("power-mains", asdict(supply))


def sleep(scene: Scene) -> Iterator[CheckOutcome]:
    """Check whether the target may fall asleep."""
    state = scene.examined.sleep
    yield scene.unavailable("sleep") if state is None else judge_sleep("The target", state)


def room(scene: Scene) -> Iterator[CheckOutcome]:
    """Check the room for results on the target."""
    if (free_bytes := scene.examined.room_bytes) is None:
        yield scene.unavailable("room_bytes")
    else:
        yield judge_room("target-room", free_bytes, ROOM_BYTES, ROOM_BYTES)
