"""Diagnoses of the meters: named rightly, opened, heard, at the rate and on the channels meant."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator

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
from controller.target.doctor.probe import Probe
from instrumentation.sources.zones import not_counted

# Between what the driver expects and what came.
RATE_LIMIT = 0.1
# Below this no machine that is switched on runs.
LEAST_SYSTEM_W = 0.2
_NUMBERED = re.compile(r"/dev/tty(USB|ACM)\d+")


def _each(judge: Callable[[str, Probe], Finding]) -> Judge:
    """What is found of one meter, for every meter by its name."""

    def judge_all(scene: Scene) -> Iterator[Finding]:
        if not scene.probes:
            yield not_made("No meter is named.")
        yield from (judge(name, probe) for name, probe in scene.probes.items())

    return judge_all


@_each
def settings(name: str, probe: Probe) -> Finding:
    if probe.stage == "settings":
        return failed(*split(probe.error), {"meter": name})
    return passed(f"The entry of {name} is whole.", meter=name)


@_each
def port(name: str, probe: Probe) -> Finding:
    if probe.stage == "settings":
        return not_made(f"{name} was not opened: its entry is wrong.")
    if probe.stage != "port":
        return passed(f"{name} opens.", meter=name, device=probe.device)
    what, way = split(probe.error)
    if probe.errno in (errno.EACCES, errno.EPERM):
        way += " Or fde doctor --udev-rule prints a rule that lets you in."
    return failed(what, way, {"meter": name, "errno": probe.errno})


@_each
def heard(name: str, probe: Probe) -> Finding:
    if probe.stage == "heard":
        return failed(*split(probe.error), {"meter": name})
    if probe.stage != "done":
        return not_made(f"{name} was not heard.")
    watts = ", ".join(f"{channel} {w:.3g} W" for channel, w in probe.watts.items())
    return passed(f"{name} says {watts}.", meter=name, watts=probe.watts)


@_each
def moves(name: str, probe: Probe) -> Finding:
    """Whether a channel stands still: of one that is listened to at rest, 0 W alone tells."""
    if probe.stage != "done":
        return not_made(f"{name} was not heard.")
    facts = {"meter": name, "only_w": probe.only_w, "records": probe.records}
    shown = ", ".join(f"{channel} {w:.6g} W" for channel, w in probe.only_w.items())
    if probe.only_w.get("system") == 0:
        return failed(
            f"{name} showed {shown} in each of {probe.records} records: it measures nothing.",
            "Look at its wires and channels, and restart it.",
            facts,
        )
    if probe.only_w:
        return not_made(
            f"{name} showed {shown} in each of {probe.records} records.",
            "fde doctor --noise loads the machine, and tells whether it follows.",
        )
    return passed(f"The readings of {name} change.", **facts)


@_each
def rate(name: str, probe: Probe) -> Finding:
    if probe.stage != "done":
        return not_made(f"{name} was not heard.")
    facts = {"meter": name, "period_s": probe.period_s, "due_s": probe.due_s, "gaps": probe.gaps}
    now = f"a record each {probe.period_s * 1000:.4g} ms"
    if abs(probe.period_s / probe.due_s - 1) > RATE_LIMIT:
        return failed(
            f"{name} gives {now}; its settings say each {probe.due_s * 1000:.4g} ms.",
            "Set the interval at the meter, or in the inventory's settings what is set there.",
            facts,
        )
    if probe.gaps:
        sentence = f"{name} gives {now}, but {probe.gaps} gaps came in a few seconds."
        return warned(sentence, "Look at its cable and hub.", facts)
    return passed(f"{name} gives {now}, as set.", **facts)


def channels(scene: Scene) -> Iterator[Finding]:
    """What no machine can do: a disk's rail that draws more than the machine around it."""
    probes = {n: p for n, p in scene.probes.items() if p.stage == "done"}
    watts = {channel: w for probe in probes.values() for channel, w in probe.watts.items()}
    if not scene.target["meters"]:
        zones = (scene.part("rapl") or {}).get("moved", ())
        yield warned(
            f"There is no meter. {not_counted(zones)}",
            "Name a meter in fde_meters, or have answers for the processor alone.",
        )
        return
    if not watts:
        yield not_made("No meter was heard.")
        return
    system, drive = watts.get("system"), watts.get("drive")
    facts = {"watts": watts}
    if system is None:
        yield warned(
            "No channel is called system: the whole machine's energy is not measured.",
            "Call the channel that feeds the machine system.",
            facts,
        )
    elif drive is not None and drive > system:
        yield failed(
            f"The drive would draw {drive:.3g} W and the whole machine {system:.3g} W.",
            "Swap system and drive in the meter's channels, or its wires.",
            facts,
        )
    elif system < LEAST_SYSTEM_W:
        sentence = f"The channel system shows {system:.3g} W: no machine hangs on it."
        yield failed(sentence, "Look at the wiring.", facts)
    else:
        yield passed("The channels can be what they are called.", **facts)
    if over := [name for name, probe in probes.items() if probe.over_range]:
        sentence = f"{', '.join(over)} was beyond its range while we listened."
        yield failed(sentence, "Set a larger range, by a ranging run.")


def naming(scene: Scene) -> Iterator[Finding]:
    bad = [m for m in scene.target["meters"] if _NUMBERED.fullmatch(m["port"])]
    for meter in bad:
        yield warned(
            f"{meter['name']} is named by a number that changes when it is replugged.",
            "Name it by usb, usb:VVVV:PPPP:SERIAL or a path below /dev/serial/by-path.",
        )
    if not bad and scene.target["meters"]:
        yield passed("Meters are named so that they are found again.")


def accuracy(scene: Scene) -> Iterator[Finding]:
    """Terms of error that nobody states, and ranges that the meter may choose."""
    for meter in scene.target["meters"]:
        chosen = meter.get("settings") or {}
        if meter["kind"] in ("wt310", "wt210") and not (
            chosen.get("voltage_range_v") and chosen.get("current_range_a")
        ):
            yield warned(
                f"{meter['name']} chooses its ranges, and its accuracy changes with them.",
                "Make a ranging run (docs/hardware.md) and set what it prints.",
            )
        else:
            yield passed(f"{meter['name']} has no range that changes by itself.")
