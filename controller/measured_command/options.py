"""Commands to measure and how often, checked before anything runs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from contract.errors import ControllerError

if TYPE_CHECKING:
    from contract.plan import MeterEntry

SHELL = "/bin/sh"
MOST_REST_S = 86_400
# Where the commands' output goes; anything else is the path of a file.
PIPE, NULL, INHERIT = "pipe", "null", "inherit"
NOT_EXECUTABLE, NOT_FOUND = 126, 127  # exit status of a shell (POSIX.1-2024, XCU 2.8.2)


class NotRunError(ControllerError):
    """A command did not run at all; the exit status is a shell's."""

    def __init__(self, exit_status: int, code: str, **facts: object) -> None:
        super().__init__(code, **facts)
        self.exit_status = exit_status


@dataclass(frozen=True)
class Command:
    """A command: its name in the results, and its argv."""

    name: str
    argv: tuple[str, ...]


def of_strings(texts: Sequence[str], shell: str | None = SHELL) -> list[Command]:
    """Make a command of each text, executed by the shell, or without one split as a shell would.

    Raises ControllerError where it cannot be split.
    """
    if shell is not None:
        words = _split(shell)
        if not words:
            raise ControllerError("no-shell")
        return [Command(text, (*words, "-c", text)) for text in texts]
    return [Command(text, _split(text)) for text in texts]


def _split(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ControllerError("not-words", text=text, error=error) from None


def of_words(words: Sequence[str], shell: str | None = None) -> Command:
    """Make one command of its words, as after `--`; with a shell they are joined."""
    if shell is not None:
        return of_strings([" ".join(words)], shell)[0]
    return Command(shlex.join(words), tuple(words))


@dataclass(frozen=True)
class MeasureOptions:
    """How to measure.

    `precision` is the half width of the 95 % interval as a share of the mean, to be reached by as
    many runs as that takes, up to `most_runs`; without it there are `runs` of them. `output` is
    PIPE (drained), NULL, INHERIT (to standard error) or a file, which each run overwrites.
    `prepare` has one command for all or one for each.
    """

    runs: int = 10
    precision: float | None = None
    most_runs: int = 1000
    warmup: int = 0
    rest_s: float = 2.0
    prepare: Sequence[Command] = ()
    cleanup: Sequence[Command] = ()
    seed: int | None = None
    margin: float = 0.02  # as of a suite: a change that is too small to matter
    ignore_failure: bool = False
    output: str = PIPE
    input: Path | None = None
    component: str | None = None
    meters: Sequence[MeterEntry | Mapping[str, object]] = ()  # mappings as an inventory has them
    keep: Path | None = None  # the folder for the meters' raw recordings
    json: bool = False
    export_json: Path | None = None
    export_markdown: Path | None = None

    def check(self, commands: Sequence[Command]) -> None:
        """Raise ControllerError where an option is invalid."""
        if any(c.argv and not (c.argv[0] and c.name.strip()) for c in commands):
            raise NotRunError(NOT_FOUND, "command-empty")
        if fault := next(self._faults(commands), None):
            raise fault

    def _faults(self, commands: Sequence[Command]) -> Iterator[ControllerError]:
        if not commands or any(not command.argv for command in commands):
            yield ControllerError("no-command")
        names = [command.name for command in commands]
        if again := next((name for name in names if names.count(name) > 1), None):
            yield ControllerError("command-twice", command=again)
        if self.runs < 1 or self.most_runs < 1 or self.warmup < 0:
            yield ControllerError("invalid-runs")
        if self.precision is not None and not 0 < self.precision < 1:
            yield ControllerError("invalid-precision")
        if not 0 < self.margin < 1:
            yield ControllerError("invalid-margin")
        if not 0 <= self.rest_s <= MOST_REST_S:
            yield ControllerError("invalid-rest", most_s=MOST_REST_S)
        for name, auxiliary in (("--prepare", self.prepare), ("--cleanup", self.cleanup)):
            if len(auxiliary) not in (0, 1, len(commands)):
                yield ControllerError("auxiliary-count", option=name)
        if self.input is not None and not os.access(self.input, os.R_OK):
            yield ControllerError("input-unread", path=self.input)
        output = None if self.output in (PIPE, NULL, INHERIT) else Path(self.output)
        for path in (output, self.export_json, self.export_markdown):
            if path is not None and not path.absolute().parent.is_dir():
                folder = path.absolute().parent
                yield ControllerError("no-folder", folder=folder, file=path.name)
        files = [self.input, output, self.export_json, self.export_markdown]
        real = [path.resolve() for path in files if path and (path.is_file() or not path.exists())]
        if twice := next((path for path in real if real.count(path) > 1), None):
            yield ControllerError("file-twice", path=twice)
