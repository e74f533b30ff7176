"""Runs of the commands in blocks of random order: rest, run, and the counters at their edges."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from contract.errors import ControllerError
from contract.names import printable
from controller.measured_command.execute import (
    NOT_RUN,
    Execution,
    Output,
    auxiliary,
    ended,
    execute,
    opened,
)
from controller.measured_command.options import Command, MeasureOptions, NotRunError
from controller.measured_command.sources import Guard, LocalSources, Used
from instrumentation.clock import monotonic_ns
from instrumentation.sources.updates import carried


@dataclass(frozen=True)
class RawTrial:
    """One run as it was measured; `rest` is the span before it, empty without rest."""

    command: int
    block: int
    place: int
    execution: Execution
    output: Output
    rest: tuple[int, int] | None
    used: Mapping[str, Used]
    rest_used: Mapping[str, Used]

    @property
    def span(self) -> tuple[int, int]:
        return self.execution.t_start_ns, self.execution.t_end_ns


class Trials:
    """Measures block by block. A block is every command once, in an order drawn from the seed."""

    def __init__(
        self,
        commands: Sequence[Command],
        options: MeasureOptions,
        sources: LocalSources,
        seed: int,
        say: Callable[[str], None],
    ) -> None:
        self._commands = commands
        self._options = options
        self._sources = sources
        self._random = random.Random(seed)
        self._say = say
        self.done: list[RawTrial] = []  # of whole blocks only

    @property
    def blocks(self) -> int:
        return len(self.done) // len(self._commands)

    def warm_up(self) -> None:
        """Run each command so often without measuring it."""
        for number in range(self._options.warmup):
            for index in self._order():
                self._say(f"warm-up {number + 1}/{self._options.warmup}")
                self._prepare(index)
                with opened(self._options.output) as output:
                    self._execute(index, output)

    def extend(self, blocks: int) -> None:
        """Measure until there are so many blocks. Raises ControllerError where a command fails."""
        while self.blocks < blocks:
            block: list[RawTrial] = []
            for place, index in enumerate(self._order()):
                self._say(f"block {self.blocks + 1}/{blocks}, run {place + 1}")
                with opened(self._options.output) as output:
                    block.append(self._trial(index, place, output))
            self.done += block

    def clean_up(self) -> None:
        """Run the cleanup once after all runs of each command."""
        for command in self._options.cleanup:
            auxiliary(command, "The cleanup command")

    def _order(self) -> list[int]:
        return self._random.sample(range(len(self._commands)), len(self._commands))

    def _trial(self, index: int, place: int, output: Output) -> RawTrial:
        self._prepare(index)
        start = self._sources.read()
        if lines := self._sources.lines(start):
            start = carried(self._sources.read(), lines)
        rest = None
        rest_used: Mapping[str, Used] = {}
        if self._options.rest_s:
            before, rest_ns = start, monotonic_ns()
            with Guard(self._sources) as guard:
                time.sleep(self._options.rest_s)
            start = self._sources.read()
            rest = (rest_ns, monotonic_ns())
            lines = self._sources.lines(start)
            rest_used = self._sources.between([before, *guard.readings, carried(start, lines)])
            if lines:  # to wait for updates is no rest
                start = carried(self._sources.read(), lines)
        with Guard(self._sources) as guard:
            execution = self._execute(index, output)
        end = self._sources.read()
        end = carried(end, self._sources.lines(end))
        used = self._sources.between([start, *guard.readings, end])
        if rest:  # one edge: nothing but our own reads lies between
            rest = (rest[0], execution.t_start_ns)
        return RawTrial(index, self.blocks, place, execution, output, rest, used, rest_used)

    def _prepare(self, index: int) -> None:
        if commands := self._options.prepare:
            auxiliary(commands[index if len(commands) > 1 else 0], "The prepare command")

    def _execute(self, index: int, output: Output) -> Execution:
        command = self._commands[index]
        execution = execute(command, output, self._options.input)
        if why := NOT_RUN.get(execution.exit_code):
            raise NotRunError(
                execution.exit_code,
                "command-did-not-run",
                command=printable(command.name),
                reason=why,
                exit_code=execution.exit_code,
            )
        if execution.exit_code and not self._options.ignore_failure:
            raise ControllerError(
                "command-failed", command=printable(command.name), ended=ended(execution.exit_code)
            )
        return execution
