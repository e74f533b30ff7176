"""The command that lists the kinds of meters and the ports of this machine."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

import typer

from controller.cli.output import say, with_json

if TYPE_CHECKING:
    from contract.command_results import MetersResult

commands = typer.Typer()


@commands.command(rich_help_panel="Prepare a target")
@with_json
def meters() -> MetersResult:
    """List the kinds of meters with their settings, and the ports of this machine; opens none."""
    from contract.command_results import MeterKind, MeterPort, MeterSetting, MetersResult
    from instrumentation import ports
    from instrumentation.meters import registry

    drivers = {kind: registry.load(kind) for kind in registry.kinds()}
    kinds = []
    for kind, driver in drivers.items():
        settings = tuple(
            MeterSetting(field.name, None if field.default is MISSING else field.default)
            for field in fields(driver.Settings)
        )
        kinds.append(MeterKind(kind, driver.name, driver.own_channels, driver.usb_ids, settings))
        say(f"{kind}: {driver.name}")
        say(f"  channels: {', '.join(driver.own_channels) or 'those that its settings name'}")
        if driver.usb_ids:
            say(f"  USB: {', '.join(driver.usb_ids)}")
        for line in _describe_settings(driver.Settings):
            say(line)
    say("\nports of this machine (none was opened):")
    port_results = []
    for port in ports.all_ports():
        candidates = tuple(k for k, driver in drivers.items() if port.usb_id in driver.usb_ids)
        port_results.append(MeterPort(port.name, port.device, port.description, candidates))
        perhaps = f", perhaps a {' or '.join(candidates)}" if candidates else ""
        say(f"  {port.label}{perhaps}")
    if not port_results:
        say("  none")
    return MetersResult(True, tuple(kinds), tuple(port_results))


def _describe_settings(settings: type[Any]) -> Iterator[str]:
    """Yield lines with the settings of an inventory's entry as they are typed there."""
    required, optional, defaults = [], [], []
    for field in fields(settings):
        if field.default is MISSING and field.default_factory is MISSING:
            required.append(field.name)
        elif field.default in (None, "", MISSING):
            optional.append(field.name)
        else:
            defaults.append(f"{field.name}: {json.dumps(field.default)}")
    for title, names in (("needs", required), ("may have", optional), ("defaults", defaults)):
        if names:
            text = f"{title}: {', '.join(names)}"
            yield textwrap.fill(text, 80, initial_indent="  ", subsequent_indent="    ")
