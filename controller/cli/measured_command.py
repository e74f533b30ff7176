"""`fde run -- COMMAND`: joules of any command on this machine.

`fde run` also runs a suite; `--` makes the difference. With it, what follows is a command to
measure, and the whole is `fde measure`, which has a help page and options.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from controller.cli.options import AnyInventory, PlainHelp, Target
from controller.cli.options import Command as Plain

if TYPE_CHECKING:
    from contract.plan import MeterEntry
    from controller.measured_command import Command

RUN = "run"
NAME = "measure"
PROGRAM = "fde"
DASHES = "--"
WORDS = "words"

commands = typer.Typer()


class Group(PlainHelp, TyperGroup):
    """The commands of `fde`, of which `run … -- …` is `measure`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if args[0] == RUN and DASHES in args:
            return RUN, self.get_command(ctx, NAME), args[1:]
        return super().resolve_command(ctx, args)


def _ask_for_dashes(ctx: Any, args: Sequence[str], message: str) -> None:
    """Fail with where `--` is missing, if a word is a program or command line; else return."""
    words = enumerate(args)
    at = next((n for n, word in words if " " in word.strip() or shutil.which(word)), None)
    if at is None or DASHES in args:
        return
    argv = [PROGRAM, RUN, *args[:at], DASHES, *args[at:]]
    stop = "" if message.endswith(".") else "."
    ctx.fail(f"{message}{stop} To measure a command, put -- before it: {shlex.join(argv)}")


class SuiteRun(Plain):
    """`fde run` of a suite, which knows a command to measure that lacks its `--`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = list(args)
        try:
            left = super().parse_args(ctx, args)
        except TyperException as error:
            _ask_for_dashes(ctx, words, error.format_message())
            raise
        folder = ctx.params.get("suite_dir")
        if folder is not None and not folder.is_dir():
            _ask_for_dashes(ctx, [str(folder)], f"There is no folder {str(folder)!r}.")
        return left


class Words(Plain):
    """Keeps what follows `--` unchanged: none of it is an option of ours."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        at = args.index(DASHES) if DASHES in args else len(args)
        words = args[at + 1 :]
        asks = words in (["--help"], ["-h"])
        ctx.meta[WORDS] = [] if asks else words
        try:
            return super().parse_args(ctx, [*args[:at], *(words if asks else ())])
        except TyperException as error:
            _ask_for_dashes(ctx, args, error.format_message())
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "-- COMMAND [ARGUMENT]..."]


@commands.command(NAME, cls=Words, rich_help_panel="Measure")
def measured(
    context: typer.Context,
    *,
    runs: Annotated[int, typer.Option("--runs", "-r", min=1, help="Runs of each command.")] = 10,
    precision: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Instead of --runs: as many as bring the 95 % interval to ± this share of the "
            "mean (0.01 is ±1 %), by a pilot of 10.",
        ),
    ] = None,
    max_runs: Annotated[
        int, typer.Option(min=1, help="The most that --precision may take.")
    ] = 1000,
    warmup: Annotated[
        int, typer.Option("--warmup", "-w", min=0, help="Runs of each before, not measured.")
    ] = 0,
    rest: Annotated[
        float,
        typer.Option(min=0, help="Seconds of rest before each run: the baseline. 0 for none."),
    ] = 2.0,
    prepare: Annotated[
        list[str] | None,
        typer.Option(
            "--prepare", "-p", help="Command line before each run; once for all, or once for each."
        ),
    ] = None,
    cleanup: Annotated[
        list[str] | None, typer.Option("--cleanup", help="Command line after all runs; the same.")
    ] = None,
    each: Annotated[
        bool, typer.Option("--each", help="Every word after -- is a separate command.")
    ] = False,
    shell: Annotated[
        str | None,
        typer.Option(
            "--shell", "-S", help="Shell for command lines. Default: /bin/sh for quoted ones."
        ),
    ] = None,
    no_shell: Annotated[
        bool, typer.Option("--no-shell", "-N", help="Run quoted command lines without a shell.")
    ] = False,
    input_file: Annotated[
        Path | None, typer.Option("--input", help="File for the standard input. Default: none.")
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            metavar="null|pipe|FILE|inherit",
            help="Where the commands write: to a pipe that is drained, /dev/null (where grep and "
            "tar do less), a file, or standard error.",
        ),
    ] = "pipe",
    show_output: Annotated[
        bool, typer.Option("--show-output", help="The same as --output inherit.")
    ] = False,
    ignore_failure: Annotated[
        bool,
        typer.Option("--ignore-failure", help="Go on where a command fails, if it ran at all."),
    ] = False,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the order within blocks. Default: random; shown.")
    ] = None,
    margin: Annotated[
        float, typer.Option(metavar="SHARE", help="A change too small to matter: 0.02 is ±2 %.")
    ] = 0.02,
    component: Annotated[
        str | None, typer.Option(help="What is compared. Default: what sees most of the machine.")
    ] = None,
    on_battery: Annotated[
        bool,
        typer.Option(
            "--on-battery", help="Nothing is plugged in, whatever a supply's `online` shows."
        ),
    ] = False,
    meter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A meter of the inventory, recorded here beside the counters."
        ),
    ] = None,
    inventory: AnyInventory = None,
    target: Target = None,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the meter's raw recording there.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON document.")
    ] = False,
    export_json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it there as well.")
    ] = None,
    export_markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a table in Markdown.")
    ] = None,
) -> int:
    """Measure COMMAND on this machine: joules, watts and seconds with 95 % intervals.

    `fde run -- gzip -9 file` takes the words after `--` as one command. Where each of them is
    quoted with blanks in it, each is a separate command line, run by a shell and compared with
    the first: `fde run -- 'gzip -1 file' 'gzip -9 file'`.
    """
    from functools import partial

    from controller.measured_command import MeasureOptions, of_strings, run
    from controller.measured_command.sources import LocalSources, registered

    one_shell = None if no_shell else (shell or "/bin/sh")
    options = MeasureOptions(
        runs=runs,
        precision=precision,
        most_runs=max_runs,
        warmup=warmup,
        rest_s=rest,
        prepare=of_strings(prepare or (), one_shell),
        cleanup=of_strings(cleanup or (), one_shell),
        seed=seed,
        margin=margin,
        ignore_failure=ignore_failure,
        output="inherit" if show_output else output,
        input=input_file,
        component=component,
        meters=_meters(meter or (), inventory, target),
        keep=keep,
        json=as_json,
        export_json=export_json,
        export_markdown=export_markdown,
    )
    opener = partial(LocalSources.open, registered(on_battery))
    return run(_commands(context.meta[WORDS], each, shell, no_shell), options, opener)


def _commands(words: Sequence[str], each: bool, shell: str | None, no_shell: bool) -> list[Command]:
    """Return the commands that the words after `--` name."""
    from controller.measured_command import of_strings, of_words

    if not words:
        return []
    if each or all(any(letter.isspace() for letter in word) for word in words):
        return of_strings(words, None if no_shell else (shell or "/bin/sh"))
    return [of_words(words, shell)]


def _meters(names: Sequence[str], inventory: Path | None, target: Path | None) -> list[MeterEntry]:
    """Return entries of the inventory or the resolved target by name; raises ControllerError."""
    if not names:
        return []
    from controller.planning.known_names import require_known
    from controller.planning.plan_folders import Options
    from controller.session import group

    targets = group.targets_of(Options(inventory=inventory, target=target))
    known = {entry.name: entry for each in targets for entry in each.meters}
    require_known("meter", names, known)
    return [known[name] for name in names]
