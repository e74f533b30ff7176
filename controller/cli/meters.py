"""The command that lists kinds of meters, and what is plugged in."""

from __future__ import annotations

from dataclasses import MISSING, fields

import typer

from contract.command_results import MeterKind, MeterPort, MeterSetting, MetersResult
from controller.cli.output import say, with_json

commands = typer.Typer()


@commands.command(rich_help_panel="Prepare a target")
@with_json
def meters() -> MetersResult:
    """List the kinds of meters with their settings, and the ports of this machine; opens none."""
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
    plugged = [
        MeterPort(
            port.name,
            port.device,
            port.description,
            tuple(kind for kind, driver in drivers.items() if port.usb_id in driver.usb_ids),
        )
        for port in ports.all_ports()
    ]
    result = MetersResult(True, tuple(kinds), tuple(plugged))
    _print(result)
    return result


def _print(result: MetersResult) -> None:
    for kind in result.kinds:
        say(f"{kind.kind}: {kind.about}")
        say(f"  channels: {', '.join(kind.channels) or 'those that its settings name'}")
        if kind.usb_ids:
            say(f"  USB: {', '.join(kind.usb_ids)}")
        for setting in kind.settings:
            say(f"  {setting.name} = {setting.default!r}")
    say("\nports of this machine (none was opened):")
    for port in result.ports:
        perhaps = f", perhaps a {' or '.join(port.kinds)}" if port.kinds else ""
        say(f"  {port.port}: {port.device} {port.description}{perhaps}".rstrip())
    if not result.ports:
        say("  none")
