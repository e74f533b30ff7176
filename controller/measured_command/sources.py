"""The components that sources measure on this machine, and the one that is compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from agent.system.virtual_lab import SIMULATED_RAPL, lab_word
from contract.errors import ControllerError
from contract.measured_command import Component, Origin
from contract.notes import Note
from controller.planning.known_names import require_known
from instrumentation.sources import coverage, registry, standing
from instrumentation.sources.local import LocalSources
from instrumentation.sources.powercap import on_x86
from instrumentation.sources.standing import Objection

LEAST_X86_W = 1.5  # of a whole machine with such a processor; boards with others take less


def components_of(sources: LocalSources) -> dict[str, Component]:
    """Return the components of the sources by name; in the virtual lab they are modelled."""
    lab = lab_word("fde.machine", Path("/proc/cmdline").read_text()) is not None
    origin: Origin = "modelled" if lab or SIMULATED_RAPL.exists() else "measured"
    return {n: Component(s, sources.label(n), origin) for n, s in sources.source_of.items()}


def category(name: str, components: Mapping[str, Component]) -> coverage.Category | None:
    """Return what a component covers, or None if that is unknown."""
    covers = coverage.table().category(name, components, components[name].source)
    if covers and covers.name == "machine" and on_x86():
        return replace(covers, least_w=LEAST_X86_W)
    return covers


def main_component(
    components: Mapping[str, Component],
    requested: str | None,
    objections: Mapping[str, Objection] = MappingProxyType({}),
    unread: Sequence[str] = (),
) -> str:
    """Return the component to compare: the requested one, or the one that covers most.

    A component with an objection has no joules; one that only did not move yet is used if there is
    no other. `unread` are sentences on sources that could not be read. Raises ControllerError for
    an unknown or refused component, if none is usable, and if several of equal coverage may each be
    a part.
    """
    refused = {name for name, o in objections.items() if o.code != standing.DID_NOT_MOVE}
    sentences = standing.sentences(o for o in objections.values() if o.label)
    reasons = "".join(f" {sentence}" for sentence in (*sentences, *unread))
    if requested is not None:
        require_known("component", [requested], components)
        if requested in refused:
            raise ControllerError("component-refused", component=requested, reasons=reasons)
        return requested
    refused_labels = {components[name].label for name in refused}  # a sum may have one part only
    usable = [name for name, part in components.items() if part.label not in refused_labels]
    covers = {name: category(name, components) for name in usable}
    if ranks := {n: (n in objections, c.rank) for n, c in covers.items() if c and c.rank}:
        best = min(ranks, key=lambda name: ranks[name])
        equals = [name for name in ranks if _may_be_parts(name, best, components)]
        equals = [name for name in equals if covers[name] == covers[best]]
        if len(equals) > 1:
            raise ControllerError("components-equal", components=", ".join(equals))
        return best
    if others := [name for name in covers if name not in objections]:
        raise ControllerError("components-unknown", reasons=reasons, others=", ".join(others))
    raise ControllerError("no-component", reasons=reasons)


def _may_be_parts(name: str, best: str, components: Mapping[str, Component]) -> bool:
    """Return whether two components of one category may each be a part of it.

    Two meters may each be at one of two supplies, and so may two quantities of one source. Those of
    two sources read the same part of the machine, and so do a battery's power and its gauge.
    """
    source, best_source = components[name].source, components[best].source
    meters = source.startswith("meter ") and best_source.startswith("meter ")
    return name == best or meters or (source == best_source != "battery")


def coverage_notes(
    component: str,
    components: Mapping[str, Component],
    objections: Mapping[str, Objection],
    only_w: float | None,
) -> Iterator[Note]:
    """Yield notes on what a component does not include, on one without a check, and a constant one.

    `only_w` is the power if it was the same in all readings.
    """
    covers, source = category(component, components), components[component].source
    if covers and covers.leaves_out:
        yield Note("not-counted", {"component": component}, covers.leaves_out)
    others = {n for n in components.keys() - objections if components[n].source != source}
    parts = [category(name, components) for name in others]
    checks = [c for c in parts if c and covers and (c == covers or c.name in covers.holds)]
    if not checks and (covers is None or covers.rank == 1):
        sentence = (
            f"No other source confirms {components[component].label}: one of two supplies would "
            "look the same, and without voltage and current so would another unit or an overflow. "
            "Compare it once with another meter, or with the processor's counters."
        )
        yield Note("unconfirmed", {"component": component}, sentence)
    if only_w is not None and source != "battery":
        sentence = (
            f"{component} showed {only_w:.6g} W in every reading: the commands gave the processor "
            "too little work to show whether it follows a load."
        )
        yield Note("one-power", {"component": component, "power_w": only_w}, sentence)


def short_notes(
    component: str, components: Mapping[str, Component], shortest_s: float, held_s: float | None
) -> Iterator[Note]:
    """Yield a note if a run was shorter than a polled power stays the same.

    `held_s` is how long it did at most; None of a counter.
    """
    source = components[component].source
    renewed_s = 0.0 if held_s is None else max(standing.patience_s(source), held_s)
    if shortest_s < renewed_s:
        sentence = (
            f"A run of {shortest_s:.3g} s is short for {source}, which may show one power for "
            f"{renewed_s:.3g} s. Let the command repeat its work."
        )
        yield Note("short-runs", {"component": component, "seconds": shortest_s}, sentence)


def no_source_error(sources: LocalSources) -> ControllerError:
    """Build the error of a machine without a readable source, with its remedy."""
    names = ", ".join(registry.names())
    if reasons := " ".join(sources.unread()):
        return ControllerError("sources-unread", sources=names, reasons=reasons)
    driver = "Load RAPL's driver with `sudo modprobe intel_rapl_msr`. " if on_x86() else ""
    return ControllerError("no-source", sources=names, driver=driver)
