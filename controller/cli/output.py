"""What all commands share: options, lines for people, a result as JSON for programs."""

from __future__ import annotations

import functools
import inspect
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer
from typer.core import TyperArgument, TyperCommand

from contract import exports, names, strict_json
from contract.errors import ControllerError
from contract.places import suites_folder

Json = Annotated[
    bool,
    typer.Option("--json", help="Print the result as one JSON document; text goes to stderr."),
]
_INVENTORY = typer.Option(
    "--inventory", "-i", envvar="FDE_INVENTORY", metavar="PATH", help="Folder of the inventory."
)
Inventory = Annotated[Path, _INVENTORY]
AnyInventory = Annotated[Path | None, _INVENTORY]
Scale = Annotated[str | None, typer.Option(help="One of the suite's scales, as lab.")]
Blocks = Annotated[int | None, typer.Option(help="Instead of the suite's own number.")]
Hours = Annotated[float | None, typer.Option(help="As many blocks as end within so long.")]
Target = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A resolved target, instead of the inventory's.")
]
SuiteDir = Annotated[
    Path | None,
    typer.Argument(metavar="SUITE_DIR", help="Folder of a suite. Default: the newest."),
]
SuiteDirs = Annotated[
    list[Path] | None,
    typer.Argument(metavar="SUITE_DIR", help="Folders or bundles of suites. Default: the newest."),
]


class PlainHelp:
    """Part of a command or group whose help names values, not Python's types."""

    def get_params(self, ctx: Any) -> list[Any]:
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # of what it is part of
        for parameter in found:
            if isinstance(parameter, TyperArgument) or parameter.is_flag:
                parameter.display_type_rich = lambda ctx: None  # noqa: ARG005 - as it is called
            else:
                parameter.metavar = parameter.metavar or parameter.name.upper()
        return found


class Command(PlainHelp, TyperCommand):
    """Any command of `fde`."""


class Result(Protocol):
    """A document of `contract.command_results`."""

    @property
    def ok(self) -> bool: ...


def finished(as_json: bool, work: Callable[[], Result]) -> bool | int:
    """Do the work and, with --json, print its result alone on standard output; whether it is ok, or
    the exit status of its own that the result has."""
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        result = work()
    if as_json:
        document: Any = result
        show(f"{names.printable_json(strict_json.dumps(asdict(document)))}\n")
    return result.ok or int(getattr(result, "exit_status", 1))


def with_json(work: Callable[..., Result]) -> Callable[..., bool | int]:
    """A command with the parameters of `work`, and --json as the last: see `finished`."""
    signature = inspect.signature(work, eval_str=True)
    last = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False)

    @functools.wraps(work)
    def command(*, as_json: bool, **given: Any) -> bool | int:
        return finished(as_json, lambda: work(**given))

    parameters = [*signature.parameters.values(), last.replace(annotation=Json)]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


unwritten: list[str] = []
"""Why standard output could not be written: a command goes on to its end, and then fails."""


def say(line: str) -> None:
    """Words of a suite or a target are not to be obeyed by the terminal."""
    show(f"{names.printable(line)}\n")


def show(text: str) -> None:
    """Write to standard output, and note where that fails."""
    try:
        exports.show(text, sys.stdout)
    except OSError as error:
        unwritten.append(str(error.strerror))


def complain(sentence: str) -> None:
    """What is wrong, on standard error, if that is there."""
    with suppress(OSError):
        exports.show(f"fde: {names.sentence(sentence)}\n", sys.stderr)


def there() -> list[Path]:
    """The suites that there are."""
    return [path for path in suites_folder().glob("*/") if not path.name.startswith(".")]


def newest() -> Path:
    """The suite that was written to last. Raises ControllerError."""
    folders = there()
    if not folders:
        raise ControllerError(
            f"There is no suite in {suites_folder()}: `fde run` makes one; or name its folder."
        )
    return max(folders, key=lambda path: path.stat().st_mtime)


def words(given: Sequence[str] | None) -> list[str]:
    """Names from an option that is repeated, or has several with commas or spaces between them; one
    in quotes may have both in it. Raises BadParameter for a quote that is not closed."""
    found: list[str] = []
    for text in given or ():
        reader = shlex.shlex(text, posix=True, punctuation_chars=False)
        reader.whitespace += ","
        reader.whitespace_split, reader.commenters = True, ""
        try:
            found += reader
        except ValueError:
            raise typer.BadParameter(f"A quote in {text!r} is not closed.") from None
    return found


def suites() -> list[str]:
    """What completes the name of a suite."""
    from controller.names import suite_names

    return suite_names()
