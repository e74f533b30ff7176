"""Records, means, intervals and verdicts of measured runs, by the statistics of suites."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean

from analysis.flags import FLAGS, flag_note
from analysis.report import words
from contract.estimates import NORMAL, Estimate
from contract.measured_command import CommandResult, ComponentEnergy, Trial
from contract.names import as_utf8
from contract.notes import ContrastResult, Note
from controller.measured_command.execute import Execution
from controller.measured_command.options import Command
from instrumentation.accuracy import ErrorTerm
from instrumentation.sources.local import Used
from instrumentation.sources.standing import STANDING, Objection, Stretch, sentences

Span = tuple[int, int]  # start and end in ns of the monotonic clock


@dataclass(frozen=True)
class RawTrial:
    """A measured run; `rest_span` is that of the rest before it, or None."""

    command: int
    block: int
    place: int
    execution: Execution
    rest_span: Span | None
    readings: Mapping[str, Used]
    rest_readings: Mapping[str, Used]

    @property
    def span(self) -> Span:
        """Start and end of the run."""
        return self.execution.t_start_ns, self.execution.t_end_ns

    def with_meters(self, metered: Mapping[Span, Mapping[str, Used]]) -> RawTrial:
        """Add the readings of meters, which are by span, to those of the run."""
        readings = {**metered.get(self.span, {}), **self.readings}
        before = metered.get(self.rest_span, {}) if self.rest_span else {}
        return replace(self, readings=readings, rest_readings={**before, **self.rest_readings})

    def trial(self, objections: Mapping[str, Objection]) -> Trial:
        """Build the record of the run; components with an objection have no joules."""

        def apply_objections(readings: Mapping[str, Used]) -> dict[str, Used]:
            return {
                name: reading
                if name not in objections or reading.energy_j is None
                else replace(reading, energy_j=None, flags=(objections[name].code,))
                for name, reading in readings.items()
            }

        readings = apply_objections(self.readings)
        rests = apply_objections(self.rest_readings)
        return Trial(
            block=self.block,
            place=self.place,
            seconds=(self.span[1] - self.span[0]) * 1e-9,
            **asdict(self.execution),
            energy_j={name: r.energy_j for name, r in readings.items()},
            statistical_j={name: r.error_j for name, r in readings.items()},
            window_s={name: r.seconds for name, r in readings.items()},
            rest_power_w={
                name: None if rest.energy_j is None else rest.energy_j / rest.seconds
                for name, rest in rests.items()
            },
            flags={name: r.flags for name, r in readings.items() if r.flags},
            errors={name: r.errors for name, r in readings.items() if r.errors},
            coverage={name: r.coverage for name, r in readings.items() if r.coverage < 1},
        )


def stretches(trials: Sequence[RawTrial]) -> dict[str, list[Stretch]]:
    """Return seconds and joules of all rests and runs, in turn, by component."""
    by_component: dict[str, list[Stretch]] = {}
    for raw in trials:
        for name, reading in (*raw.rest_readings.items(), *raw.readings.items()):
            by_component.setdefault(name, []).append(Stretch(reading.seconds, reading.energy_j))
    return by_component


def find_silent(
    trials: Sequence[RawTrial], labels: Mapping[str, str], excluded: Collection[str]
) -> dict[str, Objection]:
    """Return objections to components without joules in any run, except `excluded` ones."""
    objections = {}
    for name in trials[0].readings.keys() - excluded:
        readings = [raw.readings[name] for raw in trials]
        if all(reading.energy_j is None for reading in readings):
            reasons = dict.fromkeys(w for r in readings for w in (*r.flags, *r.errors))
            texts = [FLAGS.get(reason, reason).removesuffix(": no figure") for reason in reasons]
            objections[name] = Objection("no-joules", labels[name], ", ".join(texts))
    return objections


def result(command: Command, trials: Sequence[Trial], rest_s: float) -> CommandResult:
    """Compute the result of a command from its runs."""
    seconds = [trial.seconds for trial in trials]
    argv = tuple(map(as_utf8, command.argv))
    components = {name: _component_energy(name, trials, rest_s) for name in trials[0].energy_j}
    return CommandResult(as_utf8(command.name), argv, _interval(seconds), components, tuple(trials))


def _component_energy(name: str, trials: Sequence[Trial], rest_s: float) -> ComponentEnergy:
    """Compute the means over the runs with joules.

    The intervals include the error from a counter's steps and updates, because the scatter does not
    show it if updates are in step with the command.
    """
    measured = [(t, joules) for t in trials if (joules := t.energy_j.get(name)) is not None]
    rests = {t.block: w for t in trials if (w := t.rest_power_w.get(name)) is not None}
    if not measured:
        return ComponentEnergy(None, None, _interval(list(rests.values())), None)
    error_j = NORMAL * fmean(t.statistical_j[name] for t, _ in measured)
    mean_s = fmean(t.window_s[name] for t, _ in measured)
    rest_error_w = error_j / rest_s if rest_s else 0.0  # at most
    above = [j - rests[t.block] * t.window_s[name] for t, j in measured if t.block in rests]
    return ComponentEnergy(
        _interval([joules for _, joules in measured], error_j),
        _interval([joules / t.window_s[name] for t, joules in measured], error_j / mean_s),
        _interval(list(rests.values()), rest_error_w),
        _interval(above, math.hypot(error_j, rest_error_w * mean_s)),
    )


def _interval(values: Sequence[float], error: float = 0.0) -> Estimate | None:
    """Estimate the mean; `error` is a half-width that the scatter does not include."""
    if len(values) < 2:
        return Estimate(values[0], n=1) if values else None
    from analysis.stats.stats import estimate  # NumPy is slow to import

    mean = estimate(values)
    half_width = math.hypot(mean.half_width or 0.0, error)
    return replace(mean, low=mean.mean - half_width, high=mean.mean + half_width)


def comparisons(
    results: Sequence[CommandResult], component: str, terms: Sequence[ErrorTerm]
) -> tuple[ContrastResult, ...]:
    """Compare each command with the first, within blocks, as one family.

    `terms` are a meter's errors. The intervals include those that do not cancel in a ratio, and the
    error from a counter's steps, because the scatter of runs does not show them.
    """
    if len(results) < 2:
        return ()
    from analysis.stats.budget import instrument_error
    from analysis.stats.comparison import compare, judge_comparisons
    from contract.plan import DeclaredAnalysis

    by_block = [{t.block: t for t in r.trials if t.energy_j.get(component)} for r in results]
    computed = []
    for result, trials in zip(results[1:], by_block[1:], strict=True):
        blocks = sorted(by_block[0].keys() & trials)
        sides = [[side[block] for block in blocks] for side in (by_block[0], trials)]
        joules = [[t.energy_j[component] or 0.0 for t in side] for side in sides]
        seconds = [[t.window_s[component] for t in side] for side in sides]
        watts = [
            [j / s for j, s in zip(*side, strict=True)]
            for side in zip(joules, seconds, strict=True)
        ]
        energy, time, power = (
            compare(base, other, DeclaredAnalysis.margin)
            for base, other in (joules, seconds, watts)
        )
        if energy is not None and time is not None and power is not None:
            mean_j, mean_s = (list(map(fmean, pair)) for pair in (joules, seconds))
            error_j = [fmean(t.statistical_j[component] for t in side) for side in sides]
            pair = (mean_j[0], mean_s[0]), (mean_j[1], mean_s[1])
            shares = error_j[0] / mean_j[0], error_j[1] / mean_j[1]
            error = math.hypot(instrument_error(terms, [pair]), *shares)
            energy, power = (replace(c, systematic=error) for c in (energy, power))
            computed.append((result.command, energy, power, time))
    family = judge_comparisons([energy for _, energy, *_ in computed])
    return tuple(
        ContrastResult(
            *(results[0].command, name, False, (), c.n, c.ratio, c.low, c.high),
            verdict=str(words.verdict_of(c, modes=False)),
            time=replace(time.estimate, n=time.n),
            power=replace(power.estimate, n=power.n),
        )
        for (name, _, power, time), c in zip(computed, family, strict=True)
    )


def notes(
    results: Sequence[CommandResult],
    component: str,
    labels: Mapping[str, str],
    objections: Mapping[str, Objection],
) -> Iterator[Note]:
    """Yield the notes on objections, failed runs, missing joules and flags."""
    for code in dict.fromkeys(objection.code for objection in objections.values()):
        same = {n: o for n, o in objections.items() if o.code == code}
        for sentence in sentences(o for o in same.values() if o.label):
            yield Note(code, {"components": [*same]}, sentence)
    for result in results:
        command, runs = result.command, len(result.trials)
        facts = {"command": command, "of": runs}
        if failed := sum(bool(trial.exit_code) for trial in result.trials):
            sentence = f"{command} failed in {failed} of {runs} runs."
            yield Note("failed-runs", {**facts, "runs": failed}, sentence)
        if lost := sum(trial.energy_j[component] is None for trial in result.trials):
            sentence = f"{command}: {lost} of {runs} runs have no joules."
            yield Note("no-joules", {**facts, "runs": lost, "component": component}, sentence)
        flagged: dict[str, list[tuple[str, Trial]]] = {}
        for trial in result.trials:
            for name, flags in trial.flags.items():
                for flag in sorted(set(flags) - STANDING):
                    flagged.setdefault(flag, []).append((name, trial))
        for flag, pairs in flagged.items():
            share = min(trial.coverage.get(name, 1.0) for name, trial in pairs)
            flagged_labels = list(dict.fromkeys(labels[name] for name, _ in pairs))
            count, noun = len({trial.block for _, trial in pairs}), f"runs of {command}"
            yield flag_note(
                flag, count, runs, noun, flagged_labels, command=command, coverage=share
            )
