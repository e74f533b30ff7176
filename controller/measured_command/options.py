"""Commands to measure and how often, checked before anything runs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from contract.errors import ControllerError
from contract.plan import MeterEntry

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


def of_strings(texts: Sequence[str]) -> list[Command]:
    """Make a command of each line for the shell."""
    return [Command(text, ("/bin/sh", "-c", text)) for text in texts]


def of_words(words: Sequence[str]) -> Command:
    """Make one command of its words, which no shell reads."""
    return Command(shlex.join(words), tuple(words))


def named(commands: Sequence[Command], names: Sequence[str]) -> Sequence[Command]:
    """Give the commands other names in the results, where there are any."""
    _require_count("--command-name", names or commands, commands)
    pairs = zip(names or [command.name for command in commands], commands, strict=True)
    return [Command(name, command.argv) for name, command in pairs]


def _require_count(option: str, values: Sequence[object], commands: Sequence[Command]) -> None:
    if len(values) != len(commands):
        raise ControllerError("option-count", option=option, count=len(values), of=len(commands))


@dataclass(frozen=True)
class MeasureOptions:
    """How to measure.

    `output` is PIPE (drained), NULL, INHERIT (to standard error) or a file, which each run
    overwrites. `prepare` has one command for all or one for each. `keep` is the folder for the
    meters' raw recordings, which are entries of an inventory.
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
        """Raise ControllerError where an option is invalid."""
        names = [command.name for command in commands]
        if not all(name.strip("' ") for name in names):
            raise NotRunError(NOT_FOUND, "command-empty")
        if again := next((name for name in names if names.count(name) > 1), None):
            raise ControllerError("command-twice", command=again)
        if len(self.prepare) > 1:
            _require_count("--prepare", self.prepare, commands)
