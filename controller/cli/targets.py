"""Commands that prepare a target's disks, prove its configurations and restore it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contract.errors import ControllerError
from controller.cli.options import AnyInventory, Inventory, Scale, Target, suites, words
from controller.cli.output import say, with_json

if TYPE_CHECKING:
    from contract.command_results import CheckResult

commands = typer.Typer()
PREPARE, RESTORE = "Prepare a target", "Put it back"


@commands.command(rich_help_panel=PREPARE)
@with_json
def check(
    *,
    inventory: Inventory,
    suite: Annotated[
        str | None,
        typer.Option(
            help="Print what it and its preconditioning write to each disk.", autocompletion=suites
        ),
    ] = None,
    scale: Scale = None,
    noise: Annotated[
        bool,
        typer.Option(
            "--noise",
            help="Measure rest and load for two minutes each, and compute the changes that the "
            "suite (by default smoke) can detect.",
        ),
    ] = False,
) -> CheckResult:
    """Check a target, its meters and this machine, and print what would happen to each disk.

    Changes nothing.
    """
    from controller.targets import check as checking
    from controller.targets.fitness import noise as noises

    noise_s = noises.STRETCH_S if noise else 0.0
    return checking.run(inventory, say, suite=suite, scale=scale, noise_s=noise_s)


@commands.command(rich_help_panel=PREPARE)
def init(
    inventory: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of the inventory.")],
    *,
    host: Annotated[str | None, typer.Option(help="The target: [USER@]HOST[:PORT].")] = None,
    local: Annotated[
        bool, typer.Option("--local", help="The target is this machine; root's rights by sudo.")
    ] = False,
    disk: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SERIAL",
            help="A disk: plain=… without encryption, sed=… self-encrypting (Opal), or another "
            "name; repeated.",
        ),
    ] = None,
    give_up: Annotated[
        list[str] | None,
        typer.Option(metavar="SERIAL", help="A chosen disk whose contents may be lost."),
    ] = None,
    meter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METER",
            help="KIND@PORT=CHANNELS, as smartpower3@usb=0:system,1:drive, or http://ADDRESS of a "
            "plug, which is asked what it is; repeated.",
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(metavar="METER.NAME=VALUE", help="A setting of a meter, as meter0.rate_s=1."),
    ] = None,
    modelled: Annotated[
        bool, typer.Option("--modelled", help="Figures come from a model, as in a lab.")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite an inventory.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; fail if ambiguous.")] = False,
) -> None:
    """Examine a target and the meters of this machine, and write an inventory; change no disk."""
    from controller.targets import init as writing
    from controller.targets.meter_entries import MeterOptions

    if (host is not None) == local:
        raise ControllerError("no-target-named")
    ask = None if yes or not sys.stdin.isatty() else writing.at_terminal
    options = writing.Options(
        link=writing.parse_link(host) if host else None,
        roles=writing.named_disks(words(disk)),
        meters=MeterOptions(
            tuple(meter or ()), tuple(setting or ()), "modelled" if modelled else "measured"
        ),
        give_up=tuple(words(give_up)),
        replace=replace,
    )
    writing.run(inventory, options, ask, say)


@commands.command(rich_help_panel=PREPARE)
def provision(
    *,
    inventory: Inventory,
    confirm: Annotated[
        list[str] | None,
        typer.Option(metavar="SERIAL", help="A disk that may be written for the first time."),
    ] = None,
) -> bool:
    """Prepare the disks for the configurations; ask before a disk is first written."""
    from controller.targets import first_writes as confirming
    from controller.targets import playbook

    ask = confirming.at_terminal if sys.stdin.isatty() else None
    confirmed = words(confirm)
    serials = confirming.run(inventory, confirmed, ask) if ask else confirmed
    return playbook.run("site.yml", inventory, {"fde_confirm": serials})


@commands.command(rich_help_panel=PREPARE)
def assets(
    *,
    inventory: Inventory,
    kernel: Annotated[
        Path | None, typer.Option(exists=True, help="Archive of Linux's source to use.")
    ] = None,
    clip: Annotated[Path | None, typer.Option(exists=True, help="Clip to use.")] = None,
) -> bool:
    """Create the archives and the clip that the workloads read, on the target."""
    from controller.targets import playbook

    paths = {"assets_kernel": kernel, "assets_clip": clip}
    variables = {name: str(path.absolute()) for name, path in paths.items() if path}
    return playbook.run("assets.yml", inventory, variables)


@commands.command(rich_help_panel=PREPARE)
def prove(
    configurations: Annotated[
        list[str] | None, typer.Argument(metavar="CONFIGURATION", help="Default: all.")
    ] = None,
    *,
    inventory: AnyInventory = None,
    target: Target = None,
) -> bool:
    """Enter, prove and leave each configuration of every host, and print a table."""
    from controller.planning.plan_folders import Options
    from controller.session import group
    from controller.targets import prove as proving

    targets = group.targets_of(Options(inventory=inventory, target=target))
    unproven = [t.host for t in targets if not proving.run(t, configurations or [], say)]
    return not unproven


@commands.command(rich_help_panel=PREPARE)
def notify(*, inventory: AnyInventory = None, target: Target = None) -> bool:
    """Send a test message to each receiver of fde_notify, and print whether it was delivered."""
    from controller.planning.plan_folders import Options
    from controller.session import group, messenger

    problems = []
    for resolved in group.targets_of(Options(inventory=inventory, target=target)):
        for receiver, problem in messenger.send_tests(resolved):
            say(f"{resolved.host}, {receiver}: {problem or 'delivered'}")
            problems.append(problem)
    if not problems:
        raise ControllerError("no-receivers")
    return not any(problems)


@commands.command(rich_help_panel=RESTORE)
def teardown(
    *,
    inventory: Inventory,
    psid_revert: Annotated[
        str | None,
        typer.Option(metavar="SERIAL", help="Revert this drive by its PSID; ALL ON IT IS LOST."),
    ] = None,
) -> bool:
    """Restore the disks and remove what provisioning installed.

    Closes mappings and reverts the drive; removes marks, secrets, the agent and its packages.
    """
    from controller.targets import playbook

    variables = {"fde_psid_revert": psid_revert} if psid_revert else {}
    return playbook.run("teardown.yml", inventory, variables)
