"""Print the output of commands: lines for people, or a result as JSON for programs."""

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


def print_result(as_json: bool, work: Callable[[], Result]) -> bool | int:
    """Call `work` and, with --json, print nothing but its result on standard output.

    Return whether the result is ok, or its exit status.
    """
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        result = work()
    if as_json:
        show_document(result)
    return result.ok or int(getattr(result, "exit_status", 1))


def with_json(work: Callable[..., Result]) -> Callable[..., bool | int]:
    """Return a command with the parameters of `work` and --json; see `print_result`."""
    # Without the result, for which Typer would import all documents.
    annotations = {name: a for name, a in work.__annotations__.items() if name != "return"}
    work.__annotations__ = annotations
    signature = inspect.signature(work, eval_str=True)
    last = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False)

    @functools.wraps(work)
    def command(*, as_json: bool, **options: Any) -> bool | int:
        return print_result(as_json, lambda: work(**options))

    parameters = [*signature.parameters.values(), last.replace(annotation=Json)]
    command.__annotations__ = annotations
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


unwritten: list[OSError] = []
"""Errors of writing to standard output: the command completes, and fails only then."""


def say(line: str) -> None:
    """Print a line without control characters, which could come from a suite or a target."""
    show(f"{names.printable(line)}\n")


def show_document(document: Any) -> None:
    """Print a dataclass as one JSON document."""
    show(f"{names.printable_json(strict_json.dumps(asdict(document)))}\n")


def show(text: str) -> None:
    """Write to standard output; record an error in `unwritten`."""
    try:
        exports.show(text, sys.stdout)
    except OSError as error:
        unwritten.append(error)


def complain(sentence: str) -> None:
    """Print a problem on standard error, if it is open."""
    with suppress(OSError):
        exports.show(f"fde: {names.sentence(sentence)}\n", sys.stderr)
