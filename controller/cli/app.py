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
import logging
import os
import re
import signal
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import Abort, TyperException

from analysis.rounding import POLARS_WARNING
from contract import exports, installation, names, places
from contract.errors import AgentError, ControllerError
from contract.interrupts import term_interrupts
from controller.cli import here, measured_command, meters, results, suites, targets
from controller.cli.options import Command, Group, Request
from controller.cli.output import complain, show_document, unwritten
from controller.cli.password import ask_password
from controller.planning.known_names import suite_names
from controller.sharing import sandbox

NO_READER = 128 + signal.SIGPIPE
MISSING_LIBRARY = re.compile(r"(lib[^ :/]+)\.so\.(\d+)(?=: cannot open shared object file)")
# Texts of a RuntimeError of CPython, and of a panic of Polars, which is no Exception.
NO_THREAD = ("can't start new thread", "could not spawn threads")
# Variables that are ignored with any other value. With fewer columns Rich prints nothing, with many
# it fills them; Polars panics without threads, Matplotlib fails at a text.
SIZES = {
    "COLUMNS": range(10, 1001),
    "LINES": range(10, 1001),
    "POLARS_MAX_THREADS": range(1, 1025),
    "SOURCE_DATE_EPOCH": range(2**40),
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
    for name, sizes in SIZES.items():
        size = os.environ.get(name, "")
        if size and not (size.isdecimal() and int(size[:20]) in sizes):
            del os.environ[name]
    os.environ.pop("MPLBACKEND", None)  # of a notebook; Matplotlib refuses one that it lacks
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # no words on its cache's folder
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if argv[:1] == ["help"]:
        argv = [*argv[1:], "--help"]
    unwritten.clear()
    request = Request("--json" in argv)
    return _settle_output(guarded(lambda: _dispatch(argv, request), request))


def _dispatch(argv: Sequence[str], request: Request) -> int | bool | None:
    try:
        Path.cwd()
    except OSError as error:
        raise ControllerError("current-folder-gone", reason=error.strerror) from error
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
        status = _command()(argv, prog_name="fde", standalone_mode=False, obj=request)
    except SystemExit as error:  # of Typer or Rich, if the reader of their output is gone
        if isinstance(error.code, str):  # of a module of the user's
            raise
        return NO_READER if error.code else 0  # after a completion
    if request.interrupt:
        raise request.interrupt
    return status


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


def guarded(work: Callable[[], int | bool | None], request: Request | None = None) -> int:
    """Call `work` and return its exit status (0 for True and None), or that of its error.

    An error is printed as a sentence on standard error, and also as a document if `request` is for
    JSON; its status is 1, 2 or 130.
    """
    try:
        status = work()
        return int(not status) if isinstance(status, bool) else status or 0
    except BaseException as error:  # noqa: BLE001 (raised again)
        if isinstance(error, BrokenPipeError) and exports.is_abandoned(sys.stdout):
            return NO_READER
        failure = _failure(error)
        if request and request.json and exports.SHOWN not in getattr(error, "__notes__", ()):
            from contract.command_results import Failure

            show_document(Failure(False, failure.problems))
    for problem in failure.problems:
        if str(problem):
            complain(str(problem))
    return failure.exit_status


def _failure(error: BaseException) -> AgentError:
    """Return an error as problems with an exit status; raise one that is a fault of ours."""
    match error:
        case AgentError():
            return error
        case TyperException():
            message = _usage(error)
            is_missing = message.startswith("Missing option '--inventory'")
            failure = ControllerError("no-inventory" if is_missing else "usage", message=message)
            failure.exit_status = getattr(error, "exit_code", 1)
        case Abort():  # of Typer, for the end of the input at a question
            failure = ControllerError("not-answered")
        case OSError():
            code = "file-error" if error.filename else "system-error"
            failure = ControllerError(code, path=error.filename, reason=error.strerror)
        case KeyboardInterrupt():
            command = str(error)
            code = "interrupted-resumable" if command else "interrupted"
            failure = ControllerError(code, command=command)
            failure.exit_status = 128 + signal.SIGINT
        case _:
            return _unexpected(error)
    return failure


def _usage(error: TyperException) -> str:
    """Return the sentence on a wrong command line."""
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    if message.startswith("No such command") and "Did you mean" not in message:
        return f"{message} `fde --help` lists the commands and suites."
    return message


def _unexpected(error: BaseException) -> ControllerError:
    """Return the error of a library, a limit or a foreign bundle; raise any other."""
    reason = f"{type(error).__name__}: {str(error)[:200]}"
    if isinstance(error, RuntimeWarning) and str(error).startswith(POLARS_WARNING):
        features = str(error).partition("not detected:\n")[2].partition("\n")[0].strip()
        remedy = installation.install("polars[rtcompat]")
        return ControllerError("processor-too-old", features=features, remedy=remedy)
    if isinstance(error, ImportError) or re.match("(partially initialized )?module '", str(error)):
        while error.__cause__:  # NumPy's own text is a page of advice
            error = error.__cause__
        if missing := MISSING_LIBRARY.match(str(error)):
            package = f"{missing[1].replace('_', '-')}{missing[2]}"  # as Debian names it
            return ControllerError("library-missing", library=missing[0], package=package)
        return ControllerError("library-not-loaded", reason=f"{type(error).__name__}: {error}")
    if any(text in str(error) for text in NO_THREAD):
        return ControllerError("memory-refused", reason=reason)
    if isinstance(error, Exception) and os.environ.get(sandbox.IS_BOUNDED) == "1":
        return ControllerError("bundle-unreadable", reason=reason)
    if isinstance(error, MemoryError):
        return ControllerError("memory-refused", reason=reason)
    raise error


if __name__ == "__main__":
    sys.exit(main())
