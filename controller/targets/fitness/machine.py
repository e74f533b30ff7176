"""Checks of the target's state: RAPL, processor, power supply, services, sleep and free space."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from agent import checks
from contract.command_results import CheckOutcome, State
from contract.examination import PowerSupply, SleepState
from controller.targets.fitness.controller_host import MIB, judge_room, judge_sleep
from controller.targets.fitness.diagnosis import Judge, Scene, failed, not_made, passed, warned
from instrumentation.sources.zones import kind_of

ROOM_BYTES = 512 * MIB
NOT_OFFERED = "The machine does not offer it."


def rapl(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that RAPL's zones can be read and count."""
    state = scene.examined.rapl
    if state is None:
        outcome = scene.unavailable("rapl")
        unread = "rapl" in scene.examined.errors
        remedy = "As root on the target: modprobe intel_rapl_msr."
        yield failed(outcome.sentence, remedy) if unread else outcome
        return
    facts = asdict(state)
    still = [zone for zone in state.zones if zone not in state.moved]
    if len(still) == len(state.zones):
        sentence = f"RAPL's counters stand still ({', '.join(still)}): they measure nothing."
        remedy = "Run on the machine itself: a virtual machine shows the counters of its host."
        yield failed(sentence, remedy, **facts)
        return
    if state.steady:
        names, busy = ", ".join(state.steady), not _is_quiet(scene)
        sentence = f"RAPL's {names} took no more with all processors busy than at rest"
        remedy = "End other work on the target, or go by a meter; firmware may only estimate it."
        yield (warned if busy else failed)(f"{sentence}: it follows no load.", remedy, **facts)
        return
    asleep = [zone for zone in still if kind_of(zone) == "uncore"]  # a graphics processor
    if frozen := [zone for zone in still if zone not in asleep]:
        sentence = f"RAPL's {', '.join(frozen)} did not count over rest and load"
        yield warned(
            f"{sentence}: it will have no joules.",
            "Go by the other zones, or by a meter; a virtual machine, and firmware that feeds no "
            "counter, show such zones.",
            **facts,
        )
    else:
        counted = f"; {', '.join(asleep)} did not count in the meantime" if asleep else ""
        yield passed(f"RAPL zones {', '.join(state.zones)}{counted}.", **facts)


def _is_quiet(scene: Scene) -> bool:
    """Return whether other programs leave the target's processors at rest."""
    return all(finding.ok for finding in scene.examined.checks or () if finding.name == "load")


def origin(scene: Scene, simulated: bool) -> Iterator[CheckOutcome]:
    """Check that figures of a simulated RAPL zone are not declared measured."""
    declared = scene.target.origin
    if simulated and declared == "measured":
        sentence = "The inventory calls its figures measured, but the target's RAPL is simulated."
        yield failed(sentence, "Set fde_origin: modelled.")
    else:
        yield passed(f"Figures are {declared}, which is what the target's counters are.")


def _by_agent(name: str, in_order: str) -> Judge:
    """Return a judge of the findings of the check in agent/checks with this name."""

    def judge(scene: Scene) -> Iterator[CheckOutcome]:
        findings = [f for f in scene.examined.checks or () if f.name == name]
        if not findings:
            missing = scene.examined.checks is None
            yield scene.unavailable("checks") if missing else not_made(NOT_OFFERED)
        for finding in findings:
            if finding.ok:
                yield passed(in_order, value=finding.value)
                continue
            problem, facts = checks.problem_of(finding), {"value": finding.value}
            state: State = "fail" if finding.severity == "blocker" else "warn"
            yield CheckOutcome("", state, problem.sentence, problem.remedy, facts)

    return judge


governor = _by_agent("governor", "The governor of every processor is performance.")
turbo = _by_agent("turbo", "Turbo is off.")
load = _by_agent("load", "No other program keeps its processors busy.")
memory = _by_agent("memory", "There is memory to spare.")
swap = _by_agent("swap", "No swap is in use.")


def idle_states(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that no C-state is switched off."""
    states = scene.examined.idle_states
    if not states or not states.allowed:
        yield not_made("C-states: not available on this kernel.")
    elif states.off:
        remedy = "Leave them as in normal use: they are part of what is measured."
        sentence = f"C-states are switched off by hand: {', '.join(states.off)}."
        yield warned(sentence, remedy, **asdict(states))
    else:
        yield passed(f"C-states {states.allowed} may be entered.", **asdict(states))


def services(scene: Scene, groups: Mapping[str, Sequence[str]]) -> Iterator[CheckOutcome]:
    """Check for disturbing services that the inventory does not permit to stop."""
    stopped = {group: units for group, units in groups.items() if group in scene.target.quiet.stop}
    for group, units in groups.items():
        if group not in stopped:
            remedy = f"Add {group} to fde_stop: a suite then stops them, and starts them again."
            yield warned(f"On the target run {group}: {', '.join(units)}.", remedy, units=units)
    if len(stopped) == len(groups):
        names = "; ".join(f"{group} ({', '.join(units)})" for group, units in stopped.items())
        stopped_text = f"; stopped while a suite runs: {names}" if names else ""
        yield passed(f"No service that disturbs will run{stopped_text}.", stopped=stopped)


def power(_: Scene, supply: PowerSupply) -> Iterator[CheckOutcome]:
    """Check that the target runs on mains."""
    if supply.discharging or (supply.batteries and supply.mains is False):
        sentence = "The target runs on its battery: its firmware then saves power."
        yield failed(sentence, "Plug it in.", **asdict(supply))
    elif supply.batteries:
        sentence = "It has a battery: while that charges, a meter at the wall counts it, too."
        yield warned(sentence, "Let it fill up, or take it out.", **asdict(supply))
    else:
        yield passed("It has no battery, so it runs on mains.", **asdict(supply))


def sleep(_: Scene, state: SleepState) -> Iterator[CheckOutcome]:
    """Check that the target does not fall asleep."""
    yield judge_sleep("The target", state)


def room(_: Scene, free_bytes: int) -> Iterator[CheckOutcome]:
    """Check the free space for results on the target."""
    remedy = "Make room below /var/lib on the target's system disk."
    yield judge_room("there for results", free_bytes, ROOM_BYTES, ROOM_BYTES, remedy)
