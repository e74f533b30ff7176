"""Commands that plan suites, run them and watch them."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contract.errors import AgentError, ControllerError
from contract.places import command_line
from controller.cli.options import (
    AnyInventory,
    Blocks,
    Hours,
    Scale,
    SuiteDir,
    Target,
    Until,
    newest,
    suites,
    words,
)
from controller.cli.output import say, with_json

if TYPE_CHECKING:
    from contract.command_results import SuiteResult
    from controller.planning.plan_folders import Options

commands = typer.Typer()
MEASURE = "Measure"

Suite = Annotated[str | None, typer.Option(help="Suite to plan.", autocompletion=suites)]
Running = Annotated[Path | None, typer.Argument(metavar="SUITE_DIR", help="Default: running ones.")]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Folder of suites. Default: data/suites in a checkout, else fde-suites."
    ),
]
Seed = Annotated[
    int | None, typer.Option(help="Seed of the shuffle. Default: random, stored in the plan.")
]
Skip = Annotated[list[str] | None, typer.Option(help="Entries to leave out if they cannot run.")]
Configurations = Annotated[
    list[str] | None,
    typer.Option("--configurations", "-c", help="Configurations instead of the suite's."),
]
Report = Annotated[bool, typer.Option(help="Make the report and verify the suite once sealed.")]
Confirm = Annotated[
    list[str] | None,
    typer.Option(metavar="SERIAL", help="A disk whose preconditioning may take much of its life."),
]


@commands.command(rich_help_panel=MEASURE)
@with_json
def plan(
    *,
    suite: Suite,
    inventory: AnyInventory = None,
    target: Target = None,
    out: Out = None,
    seed: Seed = None,
    scale: Scale = None,
    blocks: Blocks = None,
    hours: Hours = None,
    configurations: Configurations = None,
    skip: Skip = None,
    confirm: Confirm = None,
) -> SuiteResult:
    """Freeze a plan for each host and print its folder."""
    folder = _plan(*_options(**locals()))
    from contract.command_results import SuiteResult

    say(str(folder))
    return SuiteResult(True, str(folder))


@commands.command(rich_help_panel=MEASURE)
@with_json
def run(
    suite_dir: Annotated[
        Path | None, typer.Argument(metavar="SUITE_DIR", help="Folder of a planned suite.")
    ] = None,
    *,
    suite: Suite = None,
    inventory: AnyInventory = None,
    target: Target = None,
    out: Out = None,
    scale: Scale = None,
    blocks: Blocks = None,
    hours: Hours = None,
    configurations: Configurations = None,
    skip: Skip = None,
    confirm: Confirm = None,
    until: Until = None,
    report: Report = True,
) -> SuiteResult:
    """Run a planned suite, or plan one (--suite) and run it, on every host at once."""
    arguments = dict(locals())

    # Ansible's, SSH's, the drivers' modules: not for --help
    from controller.session import suite_folder
    from controller.targets import fitness

    if (suite_dir is None) == (suite is None):
        raise ControllerError("folder-and-suite")
    _require_tables()
    options, is_group = _options(**arguments)
    if options.suite_dir is not None:
        return _measure(options, is_group)
    fitness.require_ready(options.targets, options.out, say)
    options.suite_dir = _plan(options, is_group)
    try:
        return _measure(options, is_group)
    except AgentError:
        if not is_group and suite_folder.remove_unused(options.suite_dir):
            say(f"removed {options.suite_dir}: nothing was recorded in it")
        raise


@commands.command(rich_help_panel=MEASURE)
@with_json
def resume(
    suite_dir: SuiteDir = None,
    *,
    inventory: AnyInventory = None,
    target: Target = None,
    confirm: Confirm = None,
    until: Until = None,
    report: Report = True,
) -> SuiteResult:
    """Continue with an interrupted suite."""
    arguments = dict(locals())
    _require_tables()
    return _measure(*_options(**{**arguments, "suite_dir": suite_dir or newest()}))


@commands.command(rich_help_panel=MEASURE)
def watch(suite_dir: Running = None) -> bool:
    """Show a running suite of this machine; also in status/status.json."""
    from controller.session import watch as watching

    try:
        return watching.run(suite_dir, say)
    except KeyboardInterrupt:  # the suite itself continues
        return True


@commands.command(rich_help_panel=MEASURE)
def stop(
    suite_dir: Running = None,
    *,
    at_once: Annotated[bool, typer.Option("--now", help="Interrupt the run like Ctrl-C.")] = False,
) -> None:
    """End a running suite of this machine after its current run; `resume` continues with it."""
    from controller.session import watch as watching

    watching.stop(suite_dir, say, at_once=at_once)


@commands.command(rich_help_panel=MEASURE)
def seal(suite_dir: SuiteDir = None) -> None:
    """Seal the results of an interrupted suite that is not to be resumed."""
    from contract import plan as plans
    from controller.session import seal as sealing
    from controller.session import suite_folder

    folder = suite_dir or newest()
    with suite_folder.locked(folder):
        plans.load(folder / "plan.json")
        say(f"sealed: {sealing.seal(folder)}")


def _require_tables() -> None:
    """Import what seals a suite, so that a processor without it is refused before the first run."""
    from instrumentation import decode  # noqa: F401


def _options(**arguments: Any) -> tuple[Options, bool]:
    """Return a command's options with the targets resolved, and whether they are for a group."""
    from controller.planning.plan_folders import Options
    from controller.session import group

    planning = ("scale", "blocks", "hours", "configurations", "skip", "out")
    chosen = ", ".join(f"--{name}" for name in planning if arguments.get(name) is not None)
    if "--blocks, --hours" in chosen:
        raise typer.BadParameter(f"{chosen}: give one of --blocks and --hours.")
    if chosen and arguments.get("suite_dir"):
        raise typer.BadParameter(f"{chosen}: the suite in SUITE_DIR is planned already.")
    for name in ("configurations", "skip", "confirm"):
        arguments[name] = words(arguments.get(name))
    options = Options(**{name: value for name, value in arguments.items() if value is not None})
    return options, group.several(options)


def _plan(options: Options, is_group: bool) -> Path:
    from controller.planning import plan_folders
    from controller.session import group

    if is_group:
        return group.plan(options, partial(plan_folders.freeze, say=say))
    return plan_folders.write(options, say)


def _measure(options: Options, is_group: bool) -> SuiteResult:
    from contract.command_results import SuiteResult
    from controller.planning.plan_folders import target_of
    from controller.session import group, session, suite_folder
    from instrumentation.clock import ClockError

    folder = options.suite_dir
    assert folder is not None
    if options.inventory is None:
        raise ControllerError("no-inventory")
    try:
        if is_group:
            return SuiteResult(group.run(options), str(folder))
        target = target_of(options)
        suite_folder.require_plain(folder)
        try:
            manifest = session.run(
                folder,
                target,
                options.inventory,
                say,
                options.until,
                report=options.report,
                confirm=options.confirm,
            )
            command = command_line("resume", folder, inventory=options.inventory)
            say(f"sealed: {manifest}" if manifest else f"continue with {command}")
        finally:
            _print_timing(folder)
    except ClockError as error:
        raise ControllerError(error) from error
    except KeyboardInterrupt:
        raise KeyboardInterrupt(command_line("resume", folder)) from None
    return SuiteResult(True, str(folder))


def _print_timing(suite_dir: Path) -> None:
    """Print the table of timing.json, also of an interrupted suite, if any session ran."""
    from contract import plan as plans
    from controller.session import timing

    with suppress(AgentError, OSError, ValueError):
        plans.load(suite_dir / "plan.json")  # its names are safe then
        for line in timing.table(timing.read_suite(suite_dir)):
            say(line)
