"""`fde measure`: runs in blocks of random order, each after a rest, and what becomes of them."""

from __future__ import annotations

import os
import random
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial

from contract import exports, strict_json
from contract.errors import ControllerError
from contract.interrupts import ENDING, heard, noted_signals, term_interrupts
from contract.journal import boot_id
from contract.measured_command import CommandDocument
from contract.names import as_utf8, printable, printable_json
from contract.notes import Note
from controller.measured_command import evaluate, show
from controller.measured_command import sources as choice
from controller.measured_command.evaluate import RawTrial
from controller.measured_command.execute import Execution, ended, execute, opened
from controller.measured_command.meters import Meters, recorded
from controller.measured_command.options import NULL, Command, MeasureOptions
from instrumentation.clock import monotonic_ns
from instrumentation.sources import standing
from instrumentation.sources.local import LocalSources, Used
from instrumentation.sources.standing import Objection


def run(
    commands: Sequence[Command],
    options: MeasureOptions,
    open_sources: Callable[[], LocalSources] = LocalSources.open,
) -> int:
    """Measure the commands and show the result; the exit code.

    Raises ControllerError where nothing can be measured, or a command fails; then what was measured
    in whole blocks before it has been shown and written. Raises OSError for a file of `options`.
    """
    options.check(commands)
    for path in filter(None, (options.export_json, options.export_markdown)):
        exports.require_writable(path, 1 << 20)  # what a result takes, generously
    with closing(open_sources()) as sources:
        if not sources.opened and not options.meters:
            raise choice.nothing_found(sources)
        with term_interrupts(*ENDING), recorded(options.meters, options.keep) as meters:
            return Measurement(commands, options, sources, meters).run()


class Measurement:
    """Measures block by block. A block is every command once, in an order drawn from the seed."""

    def __init__(
        self,
        commands: Sequence[Command],
        options: MeasureOptions,
        sources: LocalSources,
        meters: Meters,
    ) -> None:
        self._commands, self._options = commands, options
        self._sources, self._meters = sources, meters
        self._components = {**meters.components, **choice.components_of(sources)}
        self._labels = {name: each.label for name, each in self._components.items()}
        self._choose({})
        self._seed = secrets.randbits(32) if options.seed is None else options.seed
        self._random = random.Random(self._seed)
        self._started_wall = datetime.now(UTC).isoformat(timespec="seconds")
        self.done: list[RawTrial] = []  # of whole blocks only

    def run(self) -> int:
        """Measure, and print what was measured, whatever ended it; the exit code."""
        error: Exception | KeyboardInterrupt | None = None
        signals = heard(*ENDING)
        with noted_signals(*signals):  # outside of the work none loses a figure
            try:
                with term_interrupts(*signals):
                    self._measure()
            except (Exception, KeyboardInterrupt) as caught:  # noqa: BLE001 (raised again)
                error = caught
            show.progress("")
            is_interrupt = isinstance(error, KeyboardInterrupt)
            if self.done:
                self._tell(self._document("interrupted" if is_interrupt else str(error or "")))
        if error is not None and not is_interrupt:
            raise error
        return 130 if is_interrupt else 0  # as a shell has it for Ctrl-C

    def _measure(self) -> None:
        for number in range(self._options.warmup):
            for index in self._order():
                show.progress(f"warm-up {number + 1}/{self._options.warmup}")
                self._prepare(index)
                self._execute(index)
        self.measure_block()
        self._choose(self._objections(self.done))  # what stands still shows it soon
        while len(self.done) < self._options.runs * len(self._commands):
            self.measure_block()

    def measure_block(self) -> None:
        """Measure each command once. Raises ControllerError where one fails."""
        block: list[RawTrial] = []
        sources, rest_s = self._sources, self._options.rest_s
        number = len(self.done) // len(self._commands)
        for place, index in enumerate(self._order()):
            self._meters.recorders.tend()
            show.progress(f"block {number + 1}/{self._options.runs}, run {place + 1}")
            self._prepare(index)
            _, start = sources.edges()
            rest_ns, rest_used = monotonic_ns(), dict[str, Used]()
            if rest_s:
                _, rest_used, start = sources.during(lambda: time.sleep(rest_s), start)
            execution, used, _ = sources.during(partial(self._execute, index), start)
            # One edge: nothing but our own reads lies between rest and run.
            rest = (rest_ns, execution.t_start_ns) if rest_s else None
            block.append(RawTrial(index, number, place, execution, rest, used, rest_used))
        self.done += block

    def _order(self) -> list[int]:
        return self._random.sample(range(len(self._commands)), len(self._commands))

    def _prepare(self, index: int) -> None:
        if commands := self._options.prepare:
            command = commands[index if len(commands) > 1 else 0]
            with opened(NULL) as output:
                _require_success("prepare-failed", command, execute(command, output))

    def _execute(self, index: int) -> Execution:
        with opened(self._options.output) as output:
            execution = execute(self._commands[index], output)
        if not self._options.ignore_failure:
            _require_success("command-failed", self._commands[index], execution)
        return execution

    def _choose(self, objections: Mapping[str, Objection]) -> str:
        return choice.main_component(self._components, self._options.component, objections)

    def _objections(self, trials: Sequence[RawTrial]) -> dict[str, Objection]:
        """Return the objections to components by all that was measured."""
        stretches = evaluate.stretches(trials)
        busy_s = sum(raw.execution.user_s + raw.execution.system_s for raw in trials)
        objections = self._sources.objections(stretches, busy_s)
        for name in self._meters.components.keys() & stretches:
            shown = self._meters.only_w.get(name), stretches[name], busy_s
            objection = standing.object_to_sensor(
                self._labels[name], *shown, standing.OTHERS_PATIENCE_S
            )
            objections |= {name: objection} if objection else {}
        named = {name: (each.label, each.source) for name, each in self._components.items()}
        covers = {n: choice.category(n, self._components) for n in stretches.keys() - objections}
        known = {name: category for name, category in covers.items() if category}
        return objections | standing.below_parts(named, known, stretches)

    def _document(self, message: str) -> CommandDocument:
        metered = self._meters.energies(self.done)
        raws = [raw.with_meters(metered) for raw in self.done]
        objections = self._objections(raws)
        objections |= evaluate.silent(raws, self._labels, objections)
        component = self._choose(objections)
        trials = [(raw.command, raw.trial(objections)) for raw in raws]
        results = [
            evaluate.result(command, [t for n, t in trials if n == number], self._options.rest_s)
            for number, command in enumerate(self._commands)
        ]
        only_w = {**self._meters.only_w, **self._sources.only_w}.get(component)
        polls = self._sources.polls(component)
        short_s = min(trial.seconds for _, trial in trials) if polls else None
        remarks = (*self._sources.unread(), *self._meters.incidents)
        modelled = any(each.origin == "modelled" for each in self._components.values())
        return CommandDocument(
            format="fde-command/1",
            started_wall=self._started_wall,
            host=os.uname().nodename,
            boot_id=boot_id(),
            origin="modelled" if modelled else "measured",
            component=component,
            components=self._components,
            ok=not message,
            message=message,
            seed=self._seed,
            blocks=len(self.done) // len(self._commands),
            warmup=self._options.warmup,
            rest_s=self._options.rest_s,
            output=self._options.output,
            commands=tuple(results),
            comparisons=evaluate.comparisons(
                results, component, self._meters.terms.get(component, ())
            ),
            notes=(
                *choice.coverage_notes(component, self._components, only_w, short_s),
                *evaluate.notes(results, component, self._labels, objections),
                *(Note("remark", {}, printable(sentence)) for sentence in remarks),
            ),
        )

    def _tell(self, result: CommandDocument) -> None:
        """Write the result to files and show it. Raises OSError."""
        options = self._options
        document = f"{printable_json(strict_json.dumps(asdict(result)))}\n"
        # Names of commands may hold what a terminal would obey.
        text = document if options.json else f"{printable(show.text(result))}\n"
        files = [(options.export_json, document), (options.export_markdown, show.markdown(result))]
        # An export to standard output is for the program that reads it.
        is_taken = any(exports.is_stdout(path) for path, _ in files)
        try:
            exports.show(text, sys.stderr if is_taken else sys.stdout)
        except OSError:
            exports.show(text, sys.stderr)
            raise
        finally:
            for path, content in files:
                if path is not None:
                    exports.export(path, [as_utf8(content).encode()])


def _require_success(code: str, command: Command, execution: Execution) -> None:
    if execution.exit_code:
        why = ended(execution.exit_code)
        raise ControllerError(code, command=printable(command.name), ended=why)
