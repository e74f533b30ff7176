"""What is measured on this machine, and which of it is compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


def components_of(sources: LocalSources) -> dict[str, Component]:
    """Return what the sources measure, by name; modelled wherever the lab provides it."""
    lab = lab_word("fde.machine", Path("/proc/cmdline").read_text()) is not None
    origin: Origin = "modelled" if lab or SIMULATED_RAPL.exists() else "measured"
    return {n: Component(s, sources.label(n), origin) for n, s in sources.source_of.items()}


def category(name: str, components: Mapping[str, Component]) -> coverage.Category | None:
    """Return what a component covers; None where that is unknown."""
    return coverage.table().category(name, components, components[name].source)


def main_component(
    components: Mapping[str, Component],
    wanted: str | None,
    objections: Mapping[str, Objection] = MappingProxyType({}),
) -> str:
    """Return the component to compare: the named one, else that which covers most of the machine.

    One with an objection has no joules. Where no other is left, one is taken that longer runs would
    give some. Raises ControllerError where there is none of that name, or none that has joules and
    covers a known part.
    """
    refused = {name for name, each in objections.items() if each.code != standing.DID_NOT_MOVE}
    every = standing.sentences(each for each in objections.values() if each.label)
    reasons = "".join(f" {sentence}" for sentence in every)
    if wanted is not None:
        require_known("component", [wanted], components)
        if wanted in refused:
            raise ControllerError("component-refused", component=wanted, reasons=reasons)
        return wanted
    covers = {name: category(name, components) for name in components if name not in refused}
    if ranks := {n: (n in objections, c.rank) for n, c in covers.items() if c and c.rank}:
        return min(ranks, key=lambda name: ranks[name])  # the first of equals
    if others := [name for name in covers if name not in objections]:
        raise ControllerError("components-unknown", reasons=reasons, others=", ".join(others))
    raise ControllerError("no-component", reasons=reasons)


def coverage_notes(
    component: str, components: Mapping[str, Component], only_w: float | None, short_s: float | None
) -> Iterator[Note]:
    """Yield what the joules of a component leave out, and how little it showed.

    It may have shown `only_w` in all readings. `short_s` are seconds of the shortest run, where it
    is a power that is polled.
    """
    covers, source = category(component, components), components[component].source
    if covers and covers.leaves_out:
        yield Note("not-counted", {"component": component}, covers.leaves_out)
    if short_s is not None and short_s < (renewed_s := standing.patience_s(source)):
        sentence = (
            f"A run of {short_s:.3g} s is short for {source}, which may show one power for "
            f"{renewed_s:g} s. Let the command repeat its work."
        )
        yield Note("short-runs", {"component": component, "seconds": short_s}, sentence)
    if only_w is not None and source != "battery":
        sentence = (
            f"{component} showed {only_w:.6g} W in every reading: the commands gave the processor "
            "too little work to show whether it follows a load."
        )
        yield Note("one-power", {"component": component, "power_w": only_w}, sentence)


def nothing_found(sources: LocalSources) -> ControllerError:
    """Build the error with the remedies: of what exists and cannot be read, or in general."""
    names = ", ".join(registry.names())
    if reasons := " ".join(sources.unread()):
        return ControllerError("sources-unread", sources=names, reasons=reasons)
    driver = "Load RAPL's driver with `sudo modprobe intel_rapl_msr`. " if on_x86() else ""
    return ControllerError("no-source", sources=names, driver=driver)
