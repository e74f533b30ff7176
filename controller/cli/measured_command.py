"""The command `fde measure -- COMMAND`, which measures any command on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controller.cli.options import AnyInventory, output_file

if TYPE_CHECKING:
    from contract.plan import MeterEntry

commands = typer.Typer()


@commands.command(rich_help_panel="Measure", context_settings={"allow_interspersed_args": False})
def measure(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", show_default=False)],
    *,
    runs: Annotated[int, typer.Option("--runs", "-r", min=1, help="Runs of each command.")] = 10,
    warmup: Annotated[
        int, typer.Option("--warmup", "-w", min=0, help="Runs of each before, not measured.")
    ] = 0,
    rest: Annotated[
        float, typer.Option(min=0, max=86_400, help="Seconds of rest before each run.")
    ] = 2.0,
    prepare: Annotated[
        list[str] | None,
        typer.Option(
            "--prepare", "-p", help="Command line before each run; once for all, or once for each."
        ),
    ] = None,
    command_name: Annotated[
        list[str] | None,
        typer.Option("--command-name", "-n", help="Name of a command in results; once for each."),
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            metavar="null|pipe|FILE|inherit",
            help="Where the commands write: to a pipe that is drained, /dev/null (where grep and "
            "tar do less), a file, or standard error.",
        ),
    ] = "pipe",
    ignore_failure: Annotated[
        bool, typer.Option("--ignore-failure", help="Continue if a command fails.")
    ] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the order in blocks.")] = None,
    component: Annotated[
        str | None, typer.Option(help="Component to compare. Default: that of most of the machine.")
    ] = None,
    meter: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A meter of the inventory, recorded here as well."),
    ] = None,
    inventory: AnyInventory = None,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the meter's raw recording.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    export_json: Annotated[
        Path | None,
        typer.Option(metavar="FILE", parser=output_file, help="Also write the result there."),
    ] = None,
    export_markdown: Annotated[
        Path | None,
        typer.Option(metavar="FILE", parser=output_file, help="Write a table in Markdown."),
    ] = None,
) -> int:
    """Measure COMMAND on this machine: joules, watts and seconds with 95 % intervals.

    `fde measure -- gzip -9 file` takes the words as one command. If all words contain blanks, each
    is a separate command line, run by /bin/sh and compared with the first: `fde measure -- 'gzip -1
    file' 'gzip -9 file'`.
    """
    from controller.measured_command.measure import run
    from controller.measured_command.options import (
        MeasureOptions,
        command_from_words,
        rename,
        shell_commands,
    )

    if keep and not meter:
        raise typer.BadParameter("--keep: it keeps a meter's recording; name one by --meter.")
    options = MeasureOptions(
        runs=runs,
        warmup=warmup,
        rest_s=rest,
        prepare=shell_commands(prepare or ()),
        seed=seed,
        ignore_failure=ignore_failure,
        output="inherit" if output == "-" else output,
        component=component,
        meters=_meters_of(inventory, meter) if meter else (),
        keep=keep,
        json=as_json,
        export_json=export_json,
        export_markdown=export_markdown,
    )
    are_lines = all(any(letter.isspace() for letter in word) for word in command)
    commands = shell_commands(command) if are_lines else [command_from_words(command)]
    return run(rename(commands, command_name or ()), options)


def _meters_of(inventory: Path | None, names: list[str]) -> list[MeterEntry]:
    """Return the meters of an inventory by name. Raises ControllerError."""
    from controller.planning.known_names import require_known
    from controller.planning.plan_folders import Options
    from controller.session import group

    targets = group.targets_of(Options(inventory=inventory))
    meters = {entry.name: entry for target in targets for entry in target.meters}
    require_known("meter", names, meters)
    return [meters[name] for name in names]
