"""The command `fde here`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contract.places import suites_folder
from controller.cli.output import say, with_json
from controller.cli.password import ask_password

if TYPE_CHECKING:
    from contract.command_results import HereResult

commands = typer.Typer()


@commands.command("here", rich_help_panel="Measure")
@with_json
def measure_here(
    context: typer.Context,
    *,
    minutes: Annotated[
        float, typer.Option(min=2, max=24 * 60, help="How long to measure, about.")
    ] = 10,
    folder: Annotated[
        Path, typer.Option(metavar="DIR", help="A folder on the disk to be measured.")
    ] = Path("/var/tmp"),
    hours: Annotated[
        float, typer.Option(min=0.01, max=24, help="Hours of such work in a day, for the payback.")
    ] = 1,
    meter: Annotated[
        list[str] | None,
        typer.Option(metavar="METER", help="A power meter, as in fde init; repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of suites, as in fde run.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask whether to measure.")] = False,
) -> HereResult:
    """Measure what dm-crypt costs on this machine, on a file, without a spare disk.

    The file is made in the folder and removed at the end; no disk, partition or volume is changed.
    Needs RAPL and sudo; a meter adds the whole machine.
    """
    from controller.here import measurement, survey
    from controller.here.answer import answer
    from controller.targets.meter_entries import MeterOptions

    machine = survey.survey(folder)
    meters = MeterOptions(tuple(meter or ()), (), machine.origin).parse()
    options = measurement.Options(minutes, (out or suites_folder()).absolute(), meters, hours)
    for line in survey.describe(machine, minutes, options.size_bytes):
        say(line)
    measurement.require_room(machine, options)
    at_terminal = sys.stdin.isatty()
    if not yes:
        measurement.require_consent(at_terminal)
    become = partial(ask_password, context, "Password of sudo: ") if at_terminal else None
    measurement.require_root(become)
    with measurement.exclusive() as base:
        suite = measurement.measure(base, machine, options, say)
    result = answer(suite, suite / "report.html", machine)
    for line in result.lines:
        say(line)
    return result
