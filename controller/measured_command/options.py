"""The commands to measure and the options of `fde measure`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from contract.errors import ControllerError

if TYPE_CHECKING:
    from contract.plan import MeterEntry

# Destinations of the commands' output; any other text is the path of a file.
PIPE, NULL, INHERIT = "pipe", "null", "inherit"
NOT_EXECUTABLE, NOT_FOUND = 126, 127  # exit status of a shell (POSIX.1-2024, XCU 2.8.2)


class NotRunError(ControllerError):
    """A command that did not run; the exit status is the one of a shell."""

    def __init__(self, exit_status: int, code: str, **facts: object) -> None:
        super().__init__(code, **facts)
        self.exit_status = exit_status


@dataclass(frozen=True)
class Command:
    """A command: its name in the results and its argv."""

    name: str
    argv: tuple[str, ...]


def shell_commands(texts: Sequence[str]) -> list[Command]:
    """Build a command from each line for the shell."""
    return [Command(text, ("/bin/sh", "-c", text)) for text in texts]


def command_from_words(words: Sequence[str]) -> Command:
    """Build a command from its words, without a shell."""
    return Command(shlex.join(words), tuple(words))


def rename(commands: Sequence[Command], names: Sequence[str]) -> Sequence[Command]:
    """Replace the names of the commands by `names`, if any; raises ControllerError."""
    _require_count("--command-name", names or commands, commands)
    pairs = zip(names or [command.name for command in commands], commands, strict=True)
    return [Command(name, command.argv) for name, command in pairs]


def _require_count(option: str, values: Sequence[object], commands: Sequence[Command]) -> None:
    if len(values) != len(commands):
        raise ControllerError("option-count", option=option, count=len(values), of=len(commands))


@dataclass(frozen=True)
class MeasureOptions:
    """The options of a measurement.

    `output` is PIPE (drained), NULL, INHERIT (to standard error) or a file, which each run
    overwrites. `prepare` has one command for all or one for each. `meters` are entries of an
    inventory, `keep` is the folder for their raw recordings.
    """

    runs: int = 10
    warmup: int = 0
    rest_s: float = 2.0
    prepare: Sequence[Command] = ()
    seed: int | None = None
    ignore_failure: bool = False
    output: str = PIPE
    component: str | None = None
    meters: Sequence[MeterEntry | Mapping[str, object]] = ()
    keep: Path | None = None
    json: bool = False
    export_json: Path | None = None
    export_markdown: Path | None = None

    def check(self, commands: Sequence[Command]) -> None:
        """Raise ControllerError if an option is invalid."""
        names = [command.name for command in commands]
        if not all(name.strip("' ") for name in names):
            raise NotRunError(NOT_FOUND, "command-empty")
        if duplicate := next((name for name in names if names.count(name) > 1), None):
            raise ControllerError("command-twice", command=duplicate)
        paths = [path.resolve() for path in (self.export_json, self.export_markdown) if path]
        if len(set(paths)) < len(paths):
            raise ControllerError("exports-alike", path=self.export_json)
        if len(self.prepare) > 1:
            _require_count("--prepare", self.prepare, commands)
