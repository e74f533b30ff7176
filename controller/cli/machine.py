"""Commands that prepare a target's disks, prove them, and put them back."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from contract.command_results import CheckResult, PlayFailure, PlayResult, ProveResult
from controller.cli.output import Inventory, Json, Target, finished, say, suites, words

commands = typer.Typer()
PREPARE, RESTORE = "Prepare a target", "Put it back"


@commands.command(rich_help_panel=PREPARE)
def check(
    *,
    inventory: Inventory,
    suite: Annotated[
        str | None,
        typer.Option(
            help="Say what its preconditioning would cost each disk.",
            autocompletion=suites,
        ),
    ] = None,
    scale: Annotated[str | None, typer.Option(help="One of the suite's scales, as lab.")] = None,
    as_json: Json = False,
) -> bool:
    """Say what would happen to each disk of a target; nothing is touched."""
    from controller import check as checking

    def work() -> CheckResult:
        return checking.run(inventory, say, suite=suite, scale=scale)

    return finished(as_json, work)


@commands.command(rich_help_panel=PREPARE)
def provision(
    *,
    inventory: Inventory,
    confirm: Annotated[
        list[str] | None,
        typer.Option(metavar="SERIAL", help="A disk that may be written for the first time."),
    ] = None,
    as_json: Json = False,
) -> bool:
    """Bring the disks to what the configurations need; asks before a disk is first written."""
    from controller import confirm as confirming

    ask = confirming.at_terminal if sys.stdin.isatty() else None
    given = words(confirm)
    serials = confirming.run(inventory, given, ask) if ask else given
    return _play("site.yml", inventory, {"fde_confirm": serials}, as_json)


@commands.command(rich_help_panel=PREPARE)
def assets(
    *,
    inventory: Inventory,
    kernel: Annotated[
        Path | None, typer.Option(exists=True, help="Archive of Linux' source to take.")
    ] = None,
    clip: Annotated[Path | None, typer.Option(exists=True, help="Clip to take.")] = None,
    as_json: Json = False,
) -> bool:
    """Make on the target the archives and the clip that the workloads read."""
    given = {"assets_kernel": kernel, "assets_clip": clip}
    variables = {name: str(path.absolute()) for name, path in given.items() if path}
    return _play("assets.yml", inventory, variables, as_json)


@commands.command(rich_help_panel=PREPARE)
def prove(
    configurations: Annotated[
        list[str] | None, typer.Argument(metavar="CONFIGURATION", help="Default: all.")
    ] = None,
    *,
    inventory: Annotated[
        Path | None,
        typer.Option("--inventory", "-i", envvar="FDE_INVENTORY", help="Every host of it."),
    ] = None,
    target: Target = None,
    as_json: Json = False,
) -> bool:
    """Enter, prove and leave each configuration; a table of it."""
    from controller import many
    from controller import prove as proving
    from controller.planning import Options, target_of

    def work() -> ProveResult:
        options = Options(inventory=inventory, target=target)
        several = many.several(options)
        targets = options.targets if several else [target_of(options)]
        proven = tuple(proving.run(each, configurations or [], say) for each in targets)
        return ProveResult(all(each.ok for each in proven), proven)

    return finished(as_json, work)


@commands.command(rich_help_panel=RESTORE)
def teardown(
    *,
    inventory: Inventory,
    psid_revert: Annotated[
        str | None,
        typer.Option(
            metavar="SERIAL", help="Revert this drive by its PSID; ALL ON IT IS DESTROYED."
        ),
    ] = None,
    as_json: Json = False,
) -> bool:
    """Put the disks back: mappings closed, drive reverted, marks and secrets removed."""
    variables = {"fde_psid_revert": psid_revert} if psid_revert else {}
    return _play("teardown.yml", inventory, variables, as_json)


def _play(name: str, inventory: Path, variables: Mapping[str, Any], as_json: bool) -> bool:
    from controller import playbook

    def work() -> PlayResult:
        play = playbook.run(name, inventory, variables, sys.stderr if as_json else None)
        failures = (
            PlayFailure(each["host"], each["task"], tuple(each["reasons"]))
            for each in play.failures
        )
        return PlayResult(play.code == 0, play.counts, tuple(failures))

    return finished(as_json, work)
