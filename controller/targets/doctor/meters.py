"""Checks of the meters: named rightly, opened, heard, at the rate and on the channels meant."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator
from dataclasses import fields

from contract.command_results import CheckOutcome
from controller.targets.doctor.diagnosis import Judge, Scene, failed, not_made, passed, warned
from controller.targets.doctor.probe import Probe
from instrumentation.meters import registry
from instrumentation.sources.zones import not_counted

# Between what the driver expects and what came.
RATE_LIMIT = 0.1
# Below this no machine that is switched on runs.
LEAST_SYSTEM_W = 0.2
_NUMBERED = re.compile(r"/dev/tty(USB|ACM)\d+")
_RANGES = {"voltage_range_v", "current_range_a"}


def _each(judge: Callable[[str, Probe], CheckOutcome]) -> Judge:
    """Return a judge of every meter by its name."""

    def judge_all(scene: Scene) -> Iterator[CheckOutcome]:
        if not scene.probes:
            yield not_made("no-meter-named")
        yield from (judge(name, probe) for name, probe in scene.probes.items())

    return judge_all


@_each
def settings(name: str, probe: Probe) -> CheckOutcome:
    """Check the meter's entry."""
    if probe.stage == "settings":
        return failed("meter-entry-wrong", {"meter": name}, error=probe.error)
    return passed("meter-entry", {"meter": name})


@_each
def port(name: str, probe: Probe) -> CheckOutcome:
    """Check that the meter's port opens."""
    if probe.stage == "settings":
        return not_made("meter-not-opened", meter=name)
    if probe.stage != "port":
        return passed("meter-opens", {"meter": name, "device": probe.device})
    denied = probe.errno in (errno.EACCES, errno.EPERM)
    facts = {"meter": name, "errno": probe.errno}
    return failed("meter-denied" if denied else "meter-closed", facts, error=probe.error)


@_each
def heard(name: str, probe: Probe) -> CheckOutcome:
    """Check that the meter sends records of its kind."""
    if probe.stage == "heard":
        return failed("meter-silent", {"meter": name}, error=probe.error)
    if probe.stage != "done":
        return not_made("meter-not-heard", meter=name)
    shown = ", ".join(f"{channel} {w:.3g} W" for channel, w in probe.watts.items())
    return passed("meter-reads", {"meter": name, "watts": probe.watts}, shown=shown)


@_each
def moves(name: str, probe: Probe) -> CheckOutcome:
    """Check that no channel stands still; at rest only 0 W proves that one does."""
    if probe.stage != "done":
        return not_made("meter-not-heard", meter=name)
    facts = {"meter": name, "only_w": probe.only_w, "records": probe.records}
    shown = ", ".join(f"{channel} {w:.6g} W" for channel, w in probe.only_w.items())
    if probe.only_w.get("system") == 0:
        return failed("meter-still", facts, shown=shown)
    if probe.only_w:
        return not_made("meter-even", **facts, shown=shown)
    return passed("meter-moves", facts)


@_each
def rate(name: str, probe: Probe) -> CheckOutcome:
    """Check that records come as often as the settings state."""
    if probe.stage != "done":
        return not_made("meter-not-heard", meter=name)
    facts = {"meter": name, "period_s": probe.period_s, "due_s": probe.due_s, "gaps": probe.gaps}
    words = {"period_ms": probe.period_s * 1000, "due_ms": probe.due_s * 1000}
    if abs(probe.period_s / probe.due_s - 1) > RATE_LIMIT:
        return failed("meter-rate-wrong", facts, **words)
    if probe.gaps:
        return warned("meter-gaps", facts, **words)
    return passed("meter-rate", facts, **words)


def channels(scene: Scene) -> Iterator[CheckOutcome]:
    """Check for what no machine can do: a disk that draws more than the machine around it."""
    probes = {name: probe for name, probe in scene.probes.items() if probe.stage == "done"}
    watts = {channel: w for probe in probes.values() for channel, w in probe.watts.items()}
    if not scene.target.meters:
        zones = scene.examined.rapl.moved if scene.examined.rapl else ()
        yield warned("no-meter", not_counted=not_counted(zones))
        return
    if not watts:
        yield not_made("no-meter-heard")
        return
    facts = {"watts": watts}
    if "system" not in watts:
        yield warned("channels-no-system", facts)
    elif "drive" in watts and watts["drive"] > watts["system"]:
        yield failed("channels-swapped", facts, drive=watts["drive"], system=watts["system"])
    elif watts["system"] < LEAST_SYSTEM_W:
        yield failed("channels-dead", facts, system=watts["system"])
    else:
        yield passed("channels", facts)
    if over := [name for name, probe in probes.items() if probe.over_range]:
        yield failed("over-range", meters=", ".join(over))


def naming(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that meters have names that survive replugging."""
    numbered = [meter for meter in scene.target.meters if _NUMBERED.fullmatch(meter.port)]
    for meter in numbered:
        yield warned("meter-numbered", meter=meter.name)
    if not numbered and scene.target.meters:
        yield passed("meter-named")


def accuracy(scene: Scene) -> Iterator[CheckOutcome]:
    """Check for ranges that the meter may choose."""
    for meter in scene.target.meters:
        chosen = {name for name, value in (meter.settings or {}).items() if value}
        known = {field.name for field in fields(registry.load(meter.kind).Settings)}
        if known >= _RANGES and not chosen >= _RANGES:
            yield warned("ranges-chosen", meter=meter.name)
        else:
            yield passed("ranges-fixed", meter=meter.name)
