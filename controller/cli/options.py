"""Options that several commands share, and the format of their help."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from contract.errors import ControllerError
from contract.places import suites_folder

Json = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON document; text goes to stderr.")
]
_INVENTORY = typer.Option(
    "--inventory", "-i", envvar="FDE_INVENTORY", metavar="PATH", help="Folder of the inventory."
)
Inventory = Annotated[Path, _INVENTORY]
AnyInventory = Annotated[Path | None, _INVENTORY]
Scale = Annotated[str | None, typer.Option(help="A scale of the suite, such as lab.")]
Blocks = Annotated[int | None, typer.Option(min=1, help="Number of blocks instead of the suite's.")]
Hours = Annotated[
    float | None, typer.Option(min=0, max=8760, help="Plan as many blocks as end within this time.")
]
Until = Annotated[
    datetime | None,
    typer.Option(
        formats=["%H:%M"],
        metavar="HH:MM",
        help="Begin no run that would not end by then; `resume` continues.",
    ),
]
# A resolved target instead of the inventory's: a group's session of one host.
Target = Annotated[Path | None, typer.Option(hidden=True)]
SuiteDir = Annotated[
    Path | None, typer.Argument(metavar="SUITE_DIR", help="Folder of a suite. Default: the newest.")
]
SuiteDirs = Annotated[
    list[Path] | None,
    typer.Argument(metavar="SUITE_DIR", help="Folders or bundles of suites. Default: the newest."),
]


# How people call the types of Typer.
TYPES = {"int": "whole number", "float": "number"}


class PlainHelp:
    """Mixin for commands that name values instead of Python's types."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # of the command class
        for parameter in parameters:
            parameter.type = copy(parameter.type)
            name = parameter.type.name.removesuffix(" range")
            parameter.type.name = TYPES.get(name, name)
            is_argument = isinstance(parameter, TyperArgument)
            if is_argument:
                word = f"{parameter.metavar}{'...' if parameter.nargs < 0 else ''}"
                pieces = [word if parameter.required else f"[{word}]"]
                parameter.get_usage_pieces = lambda ctx, pieces=pieces: pieces  # noqa: ARG005
                parameter.type.get_metavar = lambda param, ctx: ""  # noqa: ARG005
            elif not parameter.is_flag:
                parameter.metavar = parameter.metavar or parameter.name.upper()
        return parameters


@dataclass
class Request:
    """Whether a JSON document is due, and the interrupt that ended the command.

    Until the options are parsed, `json` is whether --json is a word of the command line.
    """

    json: bool
    interrupt: KeyboardInterrupt | None = None


class Command(PlainHelp, TyperCommand):
    """A command of `fde`, which takes a `Request` as the object of its context."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options: list[Any] = self.make_parser(ctx).parse_args([*args])[2]
        for option in options:
            single = not (isinstance(option, TyperArgument) or option.multiple or option.is_flag)
            if single and options.count(option) > 1:
                raise typer.BadParameter("It is given twice.", ctx, option)
        rest = super().parse_args(ctx, args)
        for option in self.params:
            value = ctx.params.get(option.name or "")
            if value != value:  # noqa: PLR0124 - NaN, which is neither below nor above a limit
                raise typer.BadParameter(f"{value} is not a number.", ctx, option)
        if ctx.obj:
            ctx.obj.json = ctx.params.get("as_json", False)
        return rest

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            if ctx.obj:
                ctx.obj.interrupt = interrupt  # Typer makes a mere status of it
            raise


class Group(PlainHelp, TyperGroup):
    """The commands of `fde`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args[1:] and args[0].endswith("-completion"):  # which Typer would pass over
            raise typer.BadParameter(f"{args[0]} takes no word, but is for the shell it runs in.")
        return super().parse_args(ctx, args)


def list_suites() -> list[Path]:
    """List the folders of suites and groups in the default folder of suites; it may hold others."""
    files = ("plan.json", "group.json")
    folders = [file.parent for name in files for file in suites_folder().glob(f"*/{name}")]
    return [path for path in folders if not path.name.startswith(".")]


def newest() -> Path:
    """Return the suite or group that was planned last; a copy of a folder has any time.

    Raises ControllerError if there are no suites.
    """
    folders = list_suites()
    if not folders:
        raise ControllerError("no-suite", folder=suites_folder())
    return max(folders, key=_planned)


def _planned(folder: Path) -> tuple[str, bool]:
    """Return when a suite or group was planned; a group counts as later than its suites."""
    from analysis.suite import group  # not for --help
    from contract import strict_json
    from contract.plan import PlanHead

    suites = group.members(folder) if group.is_group(folder) else [folder]
    heads = (strict_json.load(PlanHead, suite / "plan.json") for suite in suites)
    return max((head.created_wall for head in heads if head), default=""), suites != [folder]


def words(texts: Sequence[str] | None) -> list[str]:
    """Split the values of a repeated option at commas and spaces outside quotes.

    Raises BadParameter for a quote that is not closed.
    """
    parts: list[str] = []
    for text in texts or ():
        reader = shlex.shlex(text, posix=True, punctuation_chars=False)
        reader.whitespace += ","
        reader.whitespace_split, reader.commenters = True, ""
        try:
            parts += reader
        except ValueError:
            raise typer.BadParameter(f"A quote in {text!r} is not closed.") from None
    return parts


def output_file(word: str) -> Path:
    """Return the path of an output file; `-` is standard output, as in other programs."""
    return Path("/dev/stdout" if word == "-" else word)


def suites() -> list[str]:
    """List the names of suites for the shell's completion."""
    from controller.planning.known_names import suite_names

    return suite_names()
