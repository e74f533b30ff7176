"""`fde measure`: measures commands in blocks of random order, each run after a rest."""

from __future__ import annotations

import os
import random
import secrets
import signal
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
from controller.measured_command.execute import Execution, describe_failure, execute, open_output
from controller.measured_command.meters import Meters, record_meters
from controller.measured_command.options import NULL, Command, MeasureOptions
from instrumentation.clock import monotonic_ns
from instrumentation.sources import standing
from instrumentation.sources.local import LocalSources, Used
from instrumentation.sources.standing import Objection

STOPPED = "Blocks left out because fde was stopped during them (Ctrl-Z): {}."


def run(
    commands: Sequence[Command],
    options: MeasureOptions,
    open_sources: Callable[[], LocalSources] = LocalSources.open,
) -> int:
    """Measure the commands and show the result; return the exit code.

    Raises ControllerError if there is no source, or a command fails, after showing and writing the
    complete blocks before it. Raises OSError for a file of `options`.
    """
    options.check(commands)
    for path in filter(None, (options.export_json, options.export_markdown)):
        exports.require_writable(path, 1 << 20)  # more than any result needs
    with closing(open_sources()) as sources:
        if not sources.opened and not options.meters:
            raise choice.no_source_error(sources)
        with term_interrupts(*ENDING), record_meters(options.meters, options.keep) as meters:
            measurement = Measurement(commands, options, sources, meters)
            try:
                return measurement.run()
            except BaseException as error:
                if measurement.is_shown:
                    error.add_note(exports.SHOWN)
                raise


class Measurement:
    """A measurement in blocks: each has every command once, in an order drawn from the seed."""

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
        self._labels = {name: part.label for name, part in self._components.items()}
        self._main_component({})  # raises ControllerError for an unknown one
        self._seed = secrets.randbits(32) if options.seed is None else options.seed
        self._random = random.Random(self._seed)
        self._started_wall = datetime.now(UTC).isoformat(timespec="seconds")
        self.trials: list[RawTrial] = []  # of complete blocks only
        self._stops: Sequence[int] = ()  # a signal for each time that this process was stopped
        self._left_out = 0  # blocks during which it was
        self.is_shown = False

    def run(self) -> int:
        """Measure and show the complete blocks, also after an error; return the exit code."""
        error: Exception | KeyboardInterrupt | None = None
        signals = heard(*ENDING)
        with noted_signals(*signals):  # a signal while the result is shown loses no figure
            try:
                with term_interrupts(*signals), noted_signals(signal.SIGCONT) as self._stops:
                    self._measure()
            except (Exception, KeyboardInterrupt) as caught:  # noqa: BLE001 (raised again)
                error = caught
            show.progress("")
            is_interrupt = isinstance(error, KeyboardInterrupt)
            if self.trials:
                document = self._document("interrupted" if is_interrupt else str(error or ""))
                self.is_shown = True
                self._show(document)
        if error is not None:
            raise error
        return 0

    def _measure(self) -> None:
        """Run the warm-up and all blocks."""
        for number in range(self._options.warmup):
            for index in self._order():
                run = f"warm-up {number + 1}/{self._options.warmup}"
                show.progress(run)
                self._prepare(index, run)
                with open_output(self._options.output) as output:
                    self._execute(index, run, output)
        while len(self.trials) < self._options.runs * len(self._commands):
            self.measure_block()
            if len(self.trials) == len(self._commands):  # fail early if a counter stands still
                self._main_component(self._objections(self.trials))

    def measure_block(self) -> None:
        """Measure each command once, unless this process is stopped meanwhile (Ctrl-Z).

        Raises ControllerError if a command fails.
        """
        block: list[RawTrial] = []
        stops = len(self._stops)
        sources, rest_s = self._sources, self._options.rest_s
        number = len(self.trials) // len(self._commands)
        for place, index in enumerate(self._order()):
            if self._meters.recorders:
                self._meters.recorders.tend()
            run = f"block {number + 1}/{self._options.runs}, run {place + 1}"
            show.progress(run)
            self._prepare(index, run)
            # Closed after the last read, because a process that is left running delays it.
            with open_output(self._options.output) as output:
                _, start = sources.edges()
                rest_ns, rest_readings = monotonic_ns(), dict[str, Used]()
                if rest_s:
                    _, rest_readings, start = sources.during(lambda: time.sleep(rest_s), start)
                work = partial(self._execute, index, run, output)
                execution, readings, _ = sources.during(work, start)
            # Only our own reads are between rest and run, so they share an edge.
            rest_span = (rest_ns, execution.t_start_ns) if rest_s else None
            block.append(
                RawTrial(index, number, place, execution, rest_span, readings, rest_readings)
            )
        if len(self._stops) == stops:
            self.trials += block
        else:
            self._left_out += 1

    def _order(self) -> list[int]:
        return self._random.sample(range(len(self._commands)), len(self._commands))

    def _prepare(self, index: int, run: str) -> None:
        if commands := self._options.prepare:
            command = commands[index if len(commands) > 1 else 0]
            with open_output(NULL) as output:
                _require_success("prepare-failed", command, execute(command, output), run)

    def _execute(self, index: int, run: str, output: int) -> Execution:
        execution = execute(self._commands[index], output)
        if not self._options.ignore_failure:
            _require_success("command-failed", self._commands[index], execution, run)
        return execution

    def _main_component(self, objections: Mapping[str, Objection]) -> str:
        requested, unread = self._options.component, list(self._sources.unread())
        return choice.main_component(self._components, requested, objections, unread)

    def _objections(self, trials: Sequence[RawTrial]) -> dict[str, Objection]:
        """Return the objections to components, judged by all rests and runs."""
        stretches = evaluate.stretches(trials)
        busy_s = sum(raw.execution.user_s + raw.execution.system_s for raw in trials)
        objections = self._sources.objections(stretches, busy_s)
        for name in self._meters.components.keys() & stretches:
            shown = self._meters.only_w.get(name), stretches[name], busy_s
            objection = standing.object_to_sensor(
                self._labels[name], *shown, standing.OTHERS_PATIENCE_S
            )
            objections |= {name: objection} if objection else {}
        named = {name: (part.label, part.source) for name, part in self._components.items()}
        covers = {n: choice.category(n, self._components) for n in stretches.keys() - objections}
        categories = {name: category for name, category in covers.items() if category}
        rested = [n for n, c in categories.items() if c.never_zero and self._options.rest_s]
        for name in rested:
            fall = standing.object_to_fall(self._labels[name], stretches[name], busy_s)
            objections |= {name: fall} if fall else {}
        late_s = self._meters.late_s if self._options.rest_s else None
        return objections | standing.below_parts(named, categories, stretches, late_s)

    def _document(self, message: str) -> CommandDocument:
        """Build the result; `message` is the reason of a measurement that is not complete."""
        metered = self._meters.energies(self.trials)
        raws = [raw.with_meters(metered) for raw in self.trials]
        objections = self._objections(raws)
        objections |= evaluate.find_silent(raws, self._labels, objections)
        component = self._main_component(objections)
        trials = [(raw.command, raw.trial(objections)) for raw in raws]
        stretches = evaluate.stretches(raws)
        results = [
            evaluate.result(command, [t for n, t in trials if n == number], self._options.rest_s)
            for number, command in enumerate(self._commands)
        ]
        only_w = {**self._meters.only_w, **self._sources.only_w}.get(component)
        shortest_s = min(trial.seconds for _, trial in trials)
        held_s = self._sources.held_s(component)
        remarks = (
            *self._sources.unread(),
            *self._meters.incidents,
            *standing.memory_remarks(stretches),
            *standing.rise_remarks(
                self._labels, stretches if self._options.rest_s else {}, component
            ),
            *([STOPPED.format(self._left_out)] if self._left_out else []),
        )
        modelled = any(part.origin == "modelled" for part in self._components.values())
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
            blocks=len(self.trials) // len(self._commands),
            warmup=self._options.warmup,
            rest_s=self._options.rest_s,
            output=self._options.output,
            commands=tuple(results),
            comparisons=evaluate.comparisons(
                results, component, self._meters.terms.get(component, ())
            ),
            notes=(
                *choice.coverage_notes(component, self._components, objections, only_w),
                *choice.short_notes(component, self._components, shortest_s, held_s),
                *evaluate.notes(results, component, self._labels, objections),
                *(Note("remark", {}, printable(sentence)) for sentence in remarks),
            ),
        )

    def _show(self, result: CommandDocument) -> None:
        """Show the result and write it to files; raises OSError."""
        options = self._options
        document = f"{printable_json(strict_json.dumps(asdict(result)))}\n"
        # Names of commands may contain control sequences of the terminal.
        text = document if options.json else f"{printable(show.text(result))}\n"
        files = [(options.export_json, document), (options.export_markdown, show.markdown(result))]
        # Another program reads an export to standard output.
        is_taken = any(exports.is_stdout(path) for path, _ in files)
        try:
            exports.show(text, sys.stderr if is_taken else sys.stdout)
        except OSError as error:
            exports.show(text, sys.stderr)
            error.filename = "standard output"
            raise
        finally:
            for path, content in files:
                if path is not None:
                    exports.export(path, [as_utf8(content).encode()])


def _require_success(code: str, command: Command, execution: Execution, run: str) -> None:
    if execution.exit_code:
        ended = describe_failure(execution.exit_code)
        raise ControllerError(code, command=printable(command.name), ended=ended, run=run)
