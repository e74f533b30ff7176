"""Join the commands of `fde`, run one, and turn errors and interruptions into exit statuses.

A module of commands has a `Typer` named `commands`, prints its results by `output.with_json`,
raises errors that `guarded` turns into a sentence, and imports slow modules inside its functions:
`fde --help` loads all modules of commands.
"""

from __future__ import annotations

import ast
import functools
import inspect
import io
import os
import signal
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from analysis.rounding import POLARS_WARNING
from contract import exports, installation, names, places
from contract.errors import AgentError
from contract.interrupts import term_interrupts
from controller.cli import here, measured_command, meters, results, suites, targets
from controller.cli.options import Command, Group
from controller.cli.output import complain, unwritten
from controller.cli.password import ask_password
from controller.planning.known_names import suite_names
from controller.sharing import sandbox

NO_READER = 128 + signal.SIGPIPE
LIMITS_REMEDY = "Raise the limits (`ulimit -a`), or install the package again."
NO_THREAD = "can't start new thread"  # of CPython, a RuntimeError
LEAST_SIZE = (
    10  # of a terminal; Rich would take a smaller one of COLUMNS or LINES, and print nothing
)
# What a value must be, by the type of pydantic's error.
KINDS = {
    "int_parsing": "not a whole number",
    "int_from_float": "not a whole number",
    "float_parsing": "not a number",
    "greater_than_equal": "less than {ge}",
    "less_than_equal": "more than {le}",
}
HELP = Path(__file__).with_name("help.toml")
TABLES = tomllib.loads(HELP.read_text(encoding="utf-8"))
EPILOG = "\n\n".join(
    f"[bold]{title}[/]\n\n" + "\n".join(f"{key}: {text}" for key, text in entries.items())
    for title, entries in {**TABLES, "Suites": {"--suite": ", ".join(suite_names())}}.items()
)

app = typer.Typer(
    name="fde",
    cls=Group,
    help="Measure what full-disk encryption costs in joules: plain disk, self-encrypting (Opal) "
    "disk and dm-crypt, on a machine of yours or in the virtual lab.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"fde {places.version()} ({places.commit() or 'commit unknown'})")
        raise typer.Exit


def _ask_password(context: typer.Context, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        ask_password(context, "BECOME password: ")


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    ask_become_pass: Annotated[
        bool,
        typer.Option(
            "--ask-become-pass",
            "-K",
            callback=_ask_password,
            help="Ask for the password of sudo on the target.",
        ),
    ] = False,
) -> None:
    """Take the options before a command."""


def _docstring(function: Callable[..., object]) -> str:
    """Return a function's docstring, from its source if Python runs with -OO."""
    if text := inspect.getdoc(function):
        return text
    (definition,) = ast.parse(inspect.getsource(function)).body
    return ast.get_docstring(definition) or ""  # type: ignore[arg-type]


for module in (measured_command, here, targets, meters, suites, results):
    for command in module.commands.registered_commands:
        paragraphs = _docstring(command.callback).split("\n\n")
        command.help = "\n\n".join(" ".join(lines.split()) for lines in paragraphs)
        command.cls = Command
    app.add_typer(module.commands)


@term_interrupts(signal.SIGHUP, signal.SIGQUIT)
def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return 0, 1 (an error, in a sentence on stderr), 2 (usage) or 130 (Ctrl-C)."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):  # a letter that a terminal lacks ends no session
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.formatwarning = lambda message, *_, **__: f"fde: {names.sentence(str(message))}\n"
    for name in ("COLUMNS", "LINES"):
        size = os.environ.get(name, "")
        if size.isdecimal() and int(size) < LEAST_SIZE:
            del os.environ[name]
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if argv[:1] == ["help"]:
        argv = [*argv[1:], "--help"]
    try:
        Path.cwd()
    except OSError as error:
        return _report(f"The current folder is gone ({error.strerror}). Change to another.", 1)
    unwritten.clear()
    return _settle_output(guarded(lambda: _dispatch(argv)))


def _dispatch(argv: Sequence[str]) -> int | bool | None:
    sandbox.require_address_space(argv)
    if bundles := sandbox.bundles(argv):
        if sandbox.command_of(argv) != "notebook" or "--json" in argv:
            return _bounded(argv, bundles)
        # JupyterLab runs for long without limits, so its bundles are first read within limits.
        paths = [str(bundle.resolve()) for bundle in bundles]
        trial = sandbox.run(["controller", "summary", *paths], bundles, stdout=subprocess.DEVNULL)
        if trial.returncode:
            return trial.returncode
    try:
        return _command()(argv, prog_name="fde", standalone_mode=False)
    except SystemExit:  # of Typer or Rich, if the reader of their output is gone
        return NO_READER


def _settle_output(status: int) -> int:
    """Flush standard output; return the exit status, which is not 0 if that or a write failed.

    If its reader is gone (`fde … | head`), no sentence is printed, as in other programs.
    """
    no_reader = exports.is_abandoned(sys.stdout)
    try:
        sys.stdout.flush()
    except OSError as error:
        if not status:
            unwritten.append(error)
        null = os.open(os.devnull, os.O_WRONLY)  # else Python flushes again at its exit
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    if unwritten:
        status = status or (NO_READER if no_reader else 1)
    for why in () if no_reader else dict.fromkeys(error.strerror for error in unwritten):
        complain(f"Standard output cannot be written: {why}.")
    return status


def _open_closed_streams() -> None:
    """Open the null device in place of a closed standard stream, whose number no file may get.

    Standard output is opened for reading, so that writing to it fails and is reported.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            os.dup2(null, number)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def _bounded(argv: Sequence[str], bundles: Sequence[Path]) -> int:
    """Run a command on foreign bundles in a sandboxed process; return its exit status."""
    streams = {"stdout": sys.stdout, "stderr": sys.stderr}
    pipes = {
        name: None if sandbox.is_inherited(stream) else subprocess.PIPE
        for name, stream in streams.items()
    }
    completed = sandbox.run(["controller", *argv], bundles, **pipes)
    for text, stream in ((completed.stdout, sys.stdout), (completed.stderr, sys.stderr)):
        if text:
            print(text, end="", file=stream)
    return completed.returncode


@functools.cache
def _command() -> Callable[..., int | bool | None]:
    """Build the parser from the signatures of all commands, which takes long, only once."""
    return typer.main.get_command(app).main


def guarded(work: Callable[[], int | bool | None]) -> int:
    """Call `work` and return its exit status (0 for True and None), or that of its error.

    An error is printed as a sentence on standard error; its status is 1, 2 or 130.
    """
    try:
        status = work()
        return int(not status) if isinstance(status, bool) else status or 0
    except TyperException as error:
        return _report(_usage(error), getattr(error, "exit_code", 1))
    except AgentError as error:
        return _report(str(error), error.exit_status)
    except OSError as error:
        name = f" {error.filename}" if error.filename else ""
        no_reader = isinstance(error, BrokenPipeError) and exports.is_abandoned(sys.stdout)
        message = "" if no_reader else f"Cannot write or read{name}: {error.strerror}."
        return _report(message, NO_READER if no_reader else 1)
    except Exception as error:  # noqa: BLE001 (raised again)
        return _report(_unexpected(error), 1)
    except KeyboardInterrupt as interrupt:
        hint = f"; continue with {interrupt}" if str(interrupt) else ""
        return _report(f"interrupted, what was measured is kept{hint}.", 130)


def _usage(error: TyperException) -> str:
    """Return the sentence on a wrong command line; a wrong value is quoted with its fault."""
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    if message.startswith("No such command") and "Did you mean" not in message:
        return f"{message} `fde --help` lists the commands and suites."
    faults = getattr(error.__cause__, "errors", None)  # of pydantic, which Typer uses
    if faults is None:
        return message
    fault, option = faults()[0], message.partition(": ")[0]
    metavar = getattr(getattr(error, "param", None), "metavar", None)
    words = KINDS.get(fault["type"], f"not {metavar}" if fault["type"] == "value_error" else "")
    if str(fault["input"]).lower() == "nan":  # it is neither less nor more than a limit
        words = KINDS["float_parsing"]
    shown = names.printable(repr(fault["input"]))
    return f"{option}: {shown} is {words.format(**fault.get('ctx', {}))}." if words else message


def _unexpected(error: Exception) -> str:
    """Return a sentence on an error of libraries, limits or a foreign bundle; raise any other."""
    reason = f"{type(error).__name__}: {str(error)[:200]}"
    if isinstance(error, RuntimeWarning) and str(error).startswith(POLARS_WARNING):
        features = str(error).partition("not detected:\n")[2].partition("\n")[0].strip()
        remedy = installation.install("polars[rtcompat]")
        return (
            f"This processor lacks what Polars requires: {features}. For another build, {remedy}."
        )
    if isinstance(error, ImportError):
        return f"A library cannot be loaded ({reason}). {LIMITS_REMEDY}"
    if os.environ.get(sandbox.IS_BOUNDED) == "1":
        return f"What the bundle holds cannot be read ({reason}): get it again."
    if isinstance(error, MemoryError) or str(error) == NO_THREAD:
        return f"Memory or a thread was refused ({reason}). {LIMITS_REMEDY}"
    raise error


def _report(message: str, status: int) -> int:
    if message:
        complain(message)
    return status


if __name__ == "__main__":
    sys.exit(main())
