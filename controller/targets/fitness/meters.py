"""Checks of the meters: entry, port, records, rate, channels, name and ranges."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields

from contract.command_results import CheckOutcome
from controller.targets.fitness.diagnosis import Judge, Scene, failed, not_made, passed, warned
from controller.targets.fitness.probe import Probe
from controller.targets.fitness.step import StepResponse
from instrumentation.meters import registry
from instrumentation.sources import coverage
from instrumentation.sources.zones import not_counted

# Relative difference between the expected and the actual interval of records.
RATE_LIMIT = 0.1
_NUMBERED = re.compile(r"/dev/tty(USB|ACM)\d+")
_RANGES = {"voltage_range_v", "current_range_a"}


def _for_each_meter(judge: Callable[[str, Probe], CheckOutcome]) -> Judge:
    """Return a judge that applies `judge` to every meter and its name."""

    def judge_all(scene: Scene) -> Iterator[CheckOutcome]:
        if not scene.probes:
            yield not_made("No meter is named.")
        yield from (judge(name, probe) for name, probe in scene.probes.items())

    return judge_all


@_for_each_meter
def settings(name: str, probe: Probe) -> CheckOutcome:
    """Check that the meter's entry is valid."""
    if probe.stage == "settings":
        remedy = "Correct its entry in fde_meters; fde meters lists kinds and settings."
        return failed(probe.error, remedy, meter=name)
    return passed(f"The entry of {name} is complete.", meter=name)


@_for_each_meter
def port(name: str, probe: Probe) -> CheckOutcome:
    """Check that the meter's port opens."""
    if probe.stage == "settings":
        return not_made(f"{name} was not opened: its entry is wrong.")
    if probe.stage != "port":
        return passed(f"{name} opens.", meter=name, device=probe.device)
    remedy = "Plug it in, or correct its port in fde_meters; fde meters lists the ports."
    if probe.errno in (errno.EACCES, errno.EPERM):
        remedy = "Join the group dialout."
    return failed(probe.error, remedy, meter=name, errno=probe.errno)


@_for_each_meter
def heard(name: str, probe: Probe) -> CheckOutcome:
    """Check that the meter sends records in the format of its kind."""
    if probe.stage == "heard":
        remedy = "Do what this names; else switch it on, and compare its entry with fde meters."
        return failed(probe.error, remedy, meter=name)
    if probe.stage != "done":
        return not_made(f"{name} was not heard.")
    shown = ", ".join(f"{channel} {w:.3g} W" for channel, w in probe.watts.items())
    return passed(f"{name} reads {shown}.", meter=name, watts=probe.watts)


def follows(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that the readings of `system` follow a step of load, no later than declared."""
    if scene.responses is None:
        remedy = "Every session does that before its first run, and so does fde check --noise."
        yield not_made("No load was stepped.", remedy)
        return
    yield from judge_responses(scene.responses)


def judge_responses(responses: Mapping[str, StepResponse | None]) -> Iterator[CheckOutcome]:
    """Judge the responses of a target's meters to a step of load, by meter."""
    for name, response in responses.items():
        if response is None:
            sentence = f"A step of load does not show whether {name} follows"
            reason = "too few readings, or too little processor time left to the target"
            yield not_made(f"{sentence}: {reason}.")
        elif response.fault:
            remedy = (
                "Correct refresh_s and averaged_s in its settings, restart it and its service, end "
                "other work on the target, or take another meter."
            )
            yield failed(f"{name} {response.fault}.", remedy, meter=name, **asdict(response))
        else:
            rise = f"from {response.rest_w:.4g} W to {response.peak_w:.4g} W"
            yield passed(f"{name} follows a load {rise}.", meter=name, **asdict(response))


@_for_each_meter
def rate(name: str, probe: Probe) -> CheckOutcome:
    """Check that records arrive at the interval of the settings and without gaps."""
    if probe.stage != "done":
        return not_made(f"{name} was not heard.")
    facts = {"meter": name, "period_s": probe.period_s, "due_s": probe.due_s, "gaps": probe.gaps}
    sentence = f"{name} gives a record each {probe.period_s * 1000:.4g} ms"
    if abs(probe.period_s / probe.due_s - 1) > RATE_LIMIT:
        remedy = "Set the interval at the meter, or correct the inventory's settings."
        due = f"its settings state each {probe.due_s * 1000:.4g} ms"
        return failed(f"{sentence}; {due}.", remedy, **facts)
    if probe.gaps:
        gaps = f"but {probe.gaps} gaps came in a few seconds"
        return warned(f"{sentence}, {gaps}.", "Look at its cable and hub.", **facts)
    return passed(f"{sentence}, as set.", **facts)


def channels(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that the channels are plausible: a disk cannot draw more than its machine."""
    probes = {name: probe for name, probe in scene.probes.items() if probe.stage == "done"}
    watts = {channel: w for probe in probes.values() for channel, w in probe.watts.items()}
    if not scene.target.meters:
        zones = scene.examined.rapl.moved if scene.examined.rapl else ()
        remedy = "Name a meter in fde_meters, or have answers for the processor alone."
        yield warned(f"There is no meter. {not_counted(zones)}", remedy)
        return
    if not watts:
        yield not_made("No meter was heard.")
        return
    at_system = [m.name for m in scene.target.meters if "system" in m.channels.values()]
    if len(at_system) > 1:
        yield failed(
            f"{', '.join(at_system)} each have a channel system: each may be only a part of it.",
            "Keep system for the meter of the whole machine; call those at supplies psu1, psu2.",
            meters=at_system,
        )
        return
    system_w = watts.get("system")
    if system_w is None:
        sentence = "No channel is called system: the whole machine's energy is not measured."
        remedy = "Call the channel that feeds the machine system."
        yield warned(sentence, remedy, watts=watts)
    elif watts.get("drive", 0.0) > system_w:
        yield failed(
            f"The drive would draw {watts['drive']:.3g} W and the whole machine {system_w:.3g} W.",
            "Swap system and drive in the meter's channels, or its wires.",
            watts=watts,
        )
    elif system_w < coverage.table().categories["machine"].least_w:
        sentence = f"The channel system shows {system_w:.3g} W: no machine hangs on it."
        yield failed(sentence, "Look at the wiring.", watts=watts)
    else:
        yield passed("The channels are plausible.", watts=watts)
    if over := ", ".join(name for name, probe in probes.items() if probe.over_range):
        remedy = "Set a larger range, by a ranging run."
        yield failed(f"{over} was beyond its range meanwhile.", remedy)


def naming(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that meters have names that survive replugging."""
    numbered = [meter for meter in scene.target.meters if _NUMBERED.fullmatch(meter.port)]
    for meter in numbered:
        yield warned(
            f"{meter.name} is named by a number that changes when it is replugged.",
            "Name it by usb, usb:VVVV:PPPP:SERIAL or a path below /dev/serial/by-path.",
        )
    if not numbered and scene.target.meters:
        yield passed("Meters have names that survive replugging.")


def accuracy(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that the meter has fixed ranges."""
    for meter in scene.target.meters:
        chosen = {name for name, value in (meter.settings or {}).items() if value}
        setting_names = {field.name for field in fields(registry.load(meter.kind).Settings)}
        if setting_names >= _RANGES and not chosen >= _RANGES:
            remedy = "Make a ranging run (docs/meters.md) and set what it prints."
            sentence = f"{meter.name} chooses its ranges, and its accuracy changes with them."
            yield warned(sentence, remedy)
        else:
            yield passed(f"{meter.name} has fixed ranges.")
