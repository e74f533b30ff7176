"""What all commands share: options, lines for people, a result as JSON for programs."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout, suppress
from dataclasses import asdict
from typing import Any, Protocol

from contract import exports, names, strict_json
from controller.cli.options import Json


class Result(Protocol):
    """A document of `contract.command_results`."""

    @property
    def ok(self) -> bool: ...


def finished(as_json: bool, work: Callable[[], Result]) -> bool | int:
    """Do the work and, with --json, print its result alone on standard output.

    Return whether the result is ok, or its exit status.
    """
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        result = work()
    if as_json:
        document: Any = result
        show(f"{names.printable_json(strict_json.dumps(asdict(document)))}\n")
    return result.ok or int(getattr(result, "exit_status", 1))


def with_json(work: Callable[..., Result]) -> Callable[..., bool | int]:
    """Make a command with the parameters of `work` and --json as the last: see `finished`."""
    signature = inspect.signature(work, eval_str=True)
    last = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False)

    @functools.wraps(work)
    def command(*, as_json: bool, **options: Any) -> bool | int:
        return finished(as_json, lambda: work(**options))

    parameters = [*signature.parameters.values(), last.replace(annotation=Json)]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


unwritten: list[OSError] = []
"""Why standard output could not be written: a command goes on to its end, and then fails."""


def say(line: str) -> None:
    """Words of a suite or a target are not to be obeyed by the terminal."""
    show(f"{names.printable(line)}\n")


def show(text: str) -> None:
    """Write to standard output, and note where that fails."""
    try:
        exports.show(text, sys.stdout)
    except OSError as error:
        unwritten.append(error)


def complain(sentence: str) -> None:
    """Print a problem on standard error, if that is open."""
    with suppress(OSError):
        exports.show(f"fde: {names.sentence(sentence)}\n", sys.stderr)
