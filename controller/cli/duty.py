"""The command that samples what a user's own machine does."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import typer

from contract.assumptions import HourlyWork
from contract.command_results import DutyResult
from controller.cli.output import say, with_json

commands = typer.Typer()


@commands.command(rich_help_panel="Prepare a target")
@with_json
def duty(
    action: Annotated[Literal["record"], typer.Argument()],  # noqa: ARG001 - the only one
    hours: Annotated[
        float, typer.Option(min=0.0001, max=1000, help="How long; Ctrl-C ends it earlier.")
    ] = 8.0,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Where what is kept goes, as YAML.")
    ] = Path("duty.yml"),
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before it is kept.")] = False,
) -> DutyResult:
    """Sample how much this machine reads, writes and rests, for hours on a battery.

    Only totals of /proc/stat and /proc/diskstats are read, at the start and the end. They are
    shown before they are kept.
    """
    from controller.planning.duty import read_totals, sampled_duty

    first = read_totals()
    say(f"Sampling for {hours:g} h; Ctrl-C ends it earlier.")
    with suppress(KeyboardInterrupt):
        time.sleep(hours * 3600)
    sampled = sampled_duty(first, read_totals())
    say("\n".join(sampled.lines))
    kept = yes or (sys.stdin.isatty() and typer.confirm(f"Keep this in {out}?", err=True))
    if kept:
        out.write_text("\n".join([*sampled.lines, ""]), encoding="utf-8")
    work: dict[HourlyWork, float] = {
        "read_gib": sampled.read_gib,
        "written_gib": sampled.written_gib,
    }
    return DutyResult(True, sampled.hours, sampled.idle_share, work, str(out) if kept else None)
