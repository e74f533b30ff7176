"""`fde run`: from the options to the result on the terminal and in files."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from contract import exports, strict_json
from contract.errors import ControllerError
from contract.files import write
from contract.interrupts import ENDING, heard, noted_signals, term_interrupts
from contract.journal import boot_id
from contract.measured_command import CommandDocument, CommandResult, Note
from contract.names import as_utf8, printable, printable_json
from contract.places import build_folder
from controller.measured_command import caveats, evaluate, show
from controller.measured_command.evaluate import Design
from controller.measured_command.execute import adopting
from controller.measured_command.meters import Meters
from controller.measured_command.options import Command, MeasureOptions
from controller.measured_command.sources import (
    RAPL_READERS,
    LocalSources,
    below_parts,
    category,
    main_component,
    nothing_found,
    sensor_objection,
)
from controller.measured_command.trials import Trials
from instrumentation.sources import registry
from instrumentation.sources.standing import (
    DID_NOT_MOVE,
    OTHERS_PATIENCE_S,
    STANDING,
    Objection,
    sentences,
)
from instrumentation.sources.zones import not_counted

INTERRUPTED = 130  # as a shell has it for Ctrl-C
# Of schedulers that warn a job before its time is up (Slurm, LSF, Grid Engine), and of limits.
OF_BATCHES = signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU
# What a result takes in a file, generously: by itself, and for a component in a run.
ROOM_BYTES, TRIAL_BYTES = 1 << 16, 512


def run(
    commands: Sequence[Command],
    options: MeasureOptions,
    open_sources: Callable[[], LocalSources] = LocalSources.open,
) -> int:
    """Measure the commands and show the result; the exit code.

    Raises ControllerError where nothing can be measured, or a command fails; then what was measured
    in whole blocks before it has been shown and written.
    """
    options.check(commands)
    sources = open_sources()
    try:
        if not sources.opened and not options.meters:
            raise nothing_found(sources.refused)
        with adopting(), Meters(options.meters, options.keep) as meters:
            return _Measurement(commands, options, sources, meters).run()
    finally:
        sources.close()


class _Measurement:
    def __init__(
        self,
        commands: Sequence[Command],
        options: MeasureOptions,
        sources: LocalSources,
        meters: Meters,
    ) -> None:
        self._commands = commands
        self._options = options
        self._sources = sources
        self._meters = meters
        self._components = {**meters.components, **sources.components}
        self._component = main_component(self._components, options.component, why=sources.omitted)
        self._objections: Mapping[str, Objection] = {}
        self._seed = secrets.randbits(32) if options.seed is None else options.seed
        self._started_wall = datetime.now(UTC).isoformat(timespec="seconds")
        self._trials = Trials(commands, options, sources, self._seed, self._begin_run)
        self._design = Design(options.margin, rest_s=options.rest_s)
        self._notes: list[Note] = []

    def run(self) -> int:
        """Measure, clean up, and print what was measured, whatever ended it; the exit code."""
        self._require_exports()
        # What evaluates the runs is loaded first: where that fails, nothing was measured yet.
        several = self._options.runs > 1 or self._options.precision is not None
        of_meters = evaluate.OF_METERS * bool(self._options.meters)
        for name in evaluate.STATISTICS * several + of_meters:
            import_module(name)
        error: Exception | KeyboardInterrupt | None = None
        problems: list[str] = []
        signals = heard(*ENDING, *OF_BATCHES)
        with noted_signals(*signals) as came:  # outside of the work no signal loses a figure
            for work in (self._trials.warm_up, self._measure, self._trials.clean_up):
                try:
                    if error is None or work == self._trials.clean_up:
                        with term_interrupts(*signals):
                            work()
                except (Exception, KeyboardInterrupt) as caught:  # noqa: BLE001 (raised again)
                    error = error or caught
                if came:
                    error = error or KeyboardInterrupt()
            show.progress("")
            if self._trials.done:
                interrupted = isinstance(error, KeyboardInterrupt)
                message = "interrupted" if interrupted else str(error or "")
                problems = self._tell(self._document(message))
        if isinstance(error, ControllerError):
            failure = ControllerError(error, *problems)
            failure.exit_status = error.exit_status
            raise failure
        if isinstance(error, Exception):
            raise error
        if problems and error is None:
            raise ControllerError(*problems)
        for problem in problems:
            with suppress(OSError):
                print(f"fde: {problem}", file=sys.stderr)
        return INTERRUPTED if error else 0

    def _begin_run(self, progress: str) -> None:
        self._meters.tend()
        show.progress(progress)

    def _require_exports(self) -> None:
        """Raise ControllerError where a result could not be written: then nothing is measured."""
        options = self._options
        runs = options.runs if options.precision is None else options.most_runs
        trials = runs * len(self._commands)
        room_bytes = ROOM_BYTES + trials * TRIAL_BYTES * (1 + len(self._components))
        for path in (options.export_json, options.export_markdown):
            try:
                if path is not None:
                    exports.require_writable(path, room_bytes)
            except OSError as error:
                raise ControllerError(
                    "results-unwritable", path=path, reason=error.strerror
                ) from None

    def _measure(self) -> None:
        options = self._options
        self._trials.extend(1)
        # A counter that stands still shows it soon, and the other blocks may take hours.
        objections = {n: o for n, o in self._judged({}).items() if o.code != DID_NOT_MOVE}
        reasons = _word_objections(objections)
        main_component(self._components, options.component, objections, reasons)
        if options.precision is None:
            self._trials.extend(options.runs)
            return
        from analysis.stats.planning import PILOT

        self._trials.extend(min(PILOT, options.most_runs))
        needed = evaluate.blocks_needed(
            self._results(), self._component, self._design, options.precision
        )
        wanted = f"±{100 * options.precision:g} %"
        if needed is None:
            raise ControllerError("runs-unknown", wanted=wanted, component=self._component)
        self._design = replace(self._design, pilot=self._trials.blocks)
        if needed > options.most_runs:
            facts = {"needed": needed, "most_runs": options.most_runs}
            self._notes.append(caveats.note("max-runs", facts, wanted=wanted))
        self._trials.extend(min(needed, options.most_runs))

    def _judged(self, metered: evaluate.Spans) -> Mapping[str, Objection]:
        """Objections to joules by component, by all that was measured."""
        done = self._trials.done
        stretches = evaluate.stretches(done, metered)
        busy_s = sum(raw.execution.user_s + raw.execution.system_s for raw in done)
        objections = self._sources.objections(stretches, busy_s)
        for name in self._meters.components:
            label, only_w = self._components[name].label, self._meters.only_w.get(name)
            shown = stretches.get(name, ())
            objection = sensor_objection(label, only_w, shown, busy_s, OTHERS_PATIENCE_S)
            if objection is not None:
                objections[name] = objection
        return objections | below_parts(self._components, stretches, objections)

    def _results(self) -> list[CommandResult]:
        """Return all runs, without the joules of components with an objection.

        It chooses the main component among the others.
        """
        done = self._trials.done
        rests = [raw.rest for raw in done if raw.rest]
        metered = self._meters.energies({raw.span: raw.command for raw in done}, rests)
        self._objections = self._judged(metered)
        terms = evaluate.count_terms(done)
        results = []
        for number, command in enumerate(self._commands):
            raws = [raw for raw in done if raw.command == number]
            trials = [evaluate.trial(raw, metered, self._objections) for raw in raws]
            results.append(evaluate.result(command, trials, self._design, terms))
        silent = self._silent(results)
        self._objections = {n: o for n, o in self._objections.items() if n not in silent}
        self._component = main_component(
            self._components,
            self._options.component,
            {*silent, *self._objections},
            [*dict.fromkeys(silent.values()), *_word_objections(self._objections)],
            [n for n, objection in self._objections.items() if objection.code == DID_NOT_MOVE],
        )
        return results

    def _silent(self, results: Sequence[CommandResult]) -> dict[str, str]:
        """Yield a note for each component whose joules no run has."""
        every = [trial for result in results for trial in result.trials]
        silent = {}
        for name, component in self._components.items():
            if all(trial.energy_j.get(name) is None for trial in every):
                flags = {f: None for t in every for f in t.flags.get(name, ()) if f not in STANDING}
                errors = dict.fromkeys(e for t in every for e in t.errors.get(name, ()))
                if why := ", ".join([*flags, *errors]):
                    silent[name] = f"{component.label} has no joules in any run ({why})."
        return silent

    def _document(self, message: str) -> CommandDocument:
        modelled = any(component.origin == "modelled" for component in self._components.values())
        results = self._results()
        terms = self._meters.terms(self._component) or evaluate.count_terms(self._trials.done).get(
            self._component, ()
        )
        compared = evaluate.comparisons(results, self._component, self._design, terms)
        return CommandDocument(
            format="fde-command/1",
            started_wall=self._started_wall,
            host=os.uname().nodename,
            boot_id=boot_id(),
            origin="modelled" if modelled else "measured",
            component=self._component,
            components=self._components,
            ok=not message,
            message=message,
            seed=self._seed,
            blocks=self._trials.blocks,
            warmup=self._options.warmup,
            rest_s=self._options.rest_s,
            output=self._options.output,
            precision=self._options.precision,
            pilot_blocks=self._design.pilot,
            commands=tuple(results),
            comparisons=tuple(comparison for comparison, _ in compared),
            notes=(*self._notes, *self._remarks(results)),
        )

    def _remarks(self, results: list[CommandResult]) -> Iterator[Note]:
        """Yield what the reader of the figures has to know."""
        source = self._components[self._component].source
        yield from self._coverage()
        yield from self._unused(results)
        only_w = {**self._meters.only_w, **self._sources.only_w}
        if source != "battery" and (power_w := only_w.get(self._component)) is not None:
            yield caveats.note("one-power", {"component": self._component, "power_w": power_w})
        shortest = min(result.seconds.mean for result in results)
        yield from caveats.short_notes(source, shortest, self._sources.poll_s(self._component))
        if source == "battery":
            for sentence in self._sources.limits():
                yield Note("source-limits", {"source": source}, sentence)
        for result in results:
            if failed := sum(bool(trial.exit_code) for trial in result.trials):
                facts = {"command": result.command, "runs": failed, "of": len(result.trials)}
                yield caveats.note("failed-runs", facts)
            yield from caveats.lost_note(result, self._component)
            yield from caveats.flag_notes(result, self._components)
            yield from caveats.repetition_notes(result, self._component)
        null = any(raw.output.is_null for raw in self._trials.done)
        yield from caveats.output_notes(results, null)
        for incident in self._meters.incidents:
            yield Note("recorder-ended", {}, f"{incident[:1].upper()}{printable(incident[1:])}.")
        if self._meters.components:
            yield caveats.note("recorded-here", {})

    def _coverage(self) -> Iterator[Note]:
        """Yield a note on what the main component leaves out."""
        name = self._component
        covers = category(name, self._components)
        left_out = covers.leaves_out if covers else ""
        if self._components[name].source == "RAPL" and not (covers and covers.name == "platform"):
            left_out = not_counted(self._sources.parts(name))
        if left_out:
            yield Note("not-counted", {"component": name}, left_out)

    def _unused(self, results: list[CommandResult]) -> Iterator[Note]:
        """Components and sources whose joules are not given, and why."""
        for code in dict.fromkeys(objection.code for objection in self._objections.values()):
            same = {name: o for name, o in self._objections.items() if o.code == code}
            for sentence in _word_objections(same):
                yield Note(code, {"components": [*same]}, sentence)
        for name, sentence in self._silent(results).items():
            if category(name, self._components) is not None:
                yield Note("no-joules", {"component": name}, sentence)
        for sentence in self._sources.omitted:
            yield Note("omitted", {}, sentence)
        for name, reason in self._sources.refused.items():
            rapl = name in RAPL_READERS and any(r in self._sources.opened for r in RAPL_READERS)
            if registry.is_present(name) and not rapl:
                yield Note("not-read", {"source": name}, f"Not read: {reason}")

    def _tell(self, result: CommandDocument) -> list[str]:
        """Show the result, then write it to files; return what failed, in sentences."""
        options = self._options
        document = f"{printable_json(strict_json.dumps(asdict(result)))}\n"
        # Names of commands may hold what a terminal would obey.
        text = document if options.json else f"{printable(show.text(result))}\n"
        files = [(options.export_json, document), (options.export_markdown, show.markdown(result))]
        streams = [sys.stdout, sys.stderr]
        if any(exports.is_stdout(path) for path, _ in files):
            streams = [sys.stderr]  # the export's alone, for the program that reads it
        problems: list[str] = []
        for stream in streams:
            try:
                exports.show(text, stream)
                break
            except (OSError, KeyboardInterrupt) as error:
                problems.append(f"The terminal or output cannot be written: {_why(error)}.")
        for path, content in files:
            try:
                if path is not None:
                    exports.export(path, [as_utf8(content).encode()])
            except (OSError, KeyboardInterrupt) as error:
                problems.append(f"{path} cannot be written: {_why(error)}.")
        return [*problems, *self._kept(document)] if problems else []

    def _kept(self, document: str) -> Iterator[str]:
        """Where the result is kept that could not be written where it was wanted."""
        name = f"fde-run-{self._started_wall[:19].replace(':', '')}-{os.getpid()}.json"
        for folder in (build_folder() / "runs", Path(tempfile.gettempdir())):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                write(folder / name, [document.encode()], 0o600)
            except OSError:
                continue
            yield f"The result is kept in {folder / name}."
            return


def _why(error: OSError | KeyboardInterrupt) -> str:
    return "interrupted" if isinstance(error, KeyboardInterrupt) else str(error.strerror)


def _word_objections(objections: Mapping[str, Objection]) -> list[str]:
    """Word the objections to components; a sum's is that of its part."""
    return sentences(objection for objection in objections.values() if objection.label)
