"""From runs to records, means, intervals and verdicts, by the statistics of the suites."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean

from analysis.flags import flag_note
from analysis.report import words
from analysis.stats.budget import NORMAL, instrument_error
from analysis.stats.comparison import compare, judge_comparisons
from analysis.stats.stats import estimate
from contract.estimates import Estimate
from contract.measured_command import CommandResult, ComponentEnergy, Trial
from contract.names import as_utf8
from contract.notes import ContrastResult, Note
from contract.plan import DeclaredAnalysis
from controller.measured_command.execute import Execution
from controller.measured_command.options import Command
from instrumentation.accuracy import ErrorTerm
from instrumentation.sources.local import Used
from instrumentation.sources.standing import STANDING, Objection, Stretch, sentences

Span = tuple[int, int]  # start and end in ns of the monotonic clock


@dataclass(frozen=True)
class RawTrial:
    """One run as it was measured; `rest` is the span before it, None without rest."""

    command: int
    block: int
    place: int
    execution: Execution
    rest: Span | None
    used: Mapping[str, Used]
    rest_used: Mapping[str, Used]

    @property
    def span(self) -> Span:
        return self.execution.t_start_ns, self.execution.t_end_ns

    def with_meters(self, metered: Mapping[Span, Mapping[str, Used]]) -> RawTrial:
        """Return the run with the joules of its meters, by span."""
        used, rest = (metered.get(span, {}) if span else {} for span in (self.span, self.rest))
        return replace(self, used={**used, **self.used}, rest_used={**rest, **self.rest_used})

    def trial(self, objections: Mapping[str, Objection]) -> Trial:
        """Return its record; components with an objection have no joules."""

        def kept(name: str, used: Used) -> Used:
            if name not in objections or used.energy_j is None:
                return used
            return replace(used, energy_j=None, flags=(objections[name].code,))

        used = {name: kept(name, each) for name, each in self.used.items()}
        rests = {name: kept(name, each) for name, each in self.rest_used.items()}
        return Trial(
            block=self.block,
            place=self.place,
            seconds=(self.span[1] - self.span[0]) * 1e-9,
            **asdict(self.execution),
            energy_j={name: each.energy_j for name, each in used.items()},
            statistical_j={name: each.error_j for name, each in used.items()},
            window_s={name: each.seconds for name, each in used.items()},
            rest_power_w={
                name: None if each.energy_j is None else each.energy_j / each.seconds
                for name, each in rests.items()
            },
            flags={name: each.flags for name, each in used.items() if each.flags},
            errors={name: each.errors for name, each in used.items() if each.errors},
            coverage={name: each.coverage for name, each in used.items() if each.coverage < 1},
        )


def stretches(trials: Sequence[RawTrial]) -> dict[str, list[Stretch]]:
    """By component, all rests and runs with the joules that it showed."""
    by_component: dict[str, list[Stretch]] = {}
    for used in (used for raw in trials for used in (raw.rest_used, raw.used)):
        for name, each in used.items():
            by_component.setdefault(name, []).append(Stretch(each.seconds, each.energy_j))
    return by_component


def silent(
    trials: Sequence[RawTrial], labels: Mapping[str, str], but: Collection[str]
) -> dict[str, Objection]:
    """Return objections to components, `but` some, that have no joules in any run."""
    objections = {}
    for name in trials[0].used.keys() - but:
        every = [raw.used[name] for raw in trials]
        if all(each.energy_j is None for each in every):
            reasons = dict.fromkeys(w for each in every for w in (*each.flags, *each.errors))
            objections[name] = Objection("no-joules", labels[name], ", ".join(reasons))
    return objections


def result(command: Command, trials: Sequence[Trial], rest_s: float) -> CommandResult:
    """All runs of one command."""
    seconds = [trial.seconds for trial in trials]
    argv = tuple(map(as_utf8, command.argv))
    components = {name: _component(name, trials, rest_s) for name in trials[0].energy_j}
    return CommandResult(as_utf8(command.name), argv, _interval(seconds), components, tuple(trials))


def _component(name: str, trials: Sequence[Trial], rest_s: float) -> ComponentEnergy:
    """Means over the runs with a figure.

    What a counter's steps and updates leave open in each is in the interval, for the scatter does
    not show it where updates keep step with the command.
    """
    known = [(t, joules) for t in trials if (joules := t.energy_j.get(name)) is not None]
    rests = {t.block: w for t in trials if (w := t.rest_power_w.get(name)) is not None}
    if not known:
        return ComponentEnergy(None, None, _interval(list(rests.values())), None)
    open_j = NORMAL * fmean(t.statistical_j[name] for t, _ in known)
    mean_s = fmean(t.window_s[name] for t, _ in known)
    open_w = open_j / rest_s if rest_s else 0.0  # of a rest at most
    above = [j - rests[t.block] * t.window_s[name] for t, j in known if t.block in rests]
    return ComponentEnergy(
        _interval([joules for _, joules in known], open_j),
        _interval([joules / t.window_s[name] for t, joules in known], open_j / mean_s),
        _interval(list(rests.values()), open_w),
        _interval(above, math.hypot(open_j, open_w * mean_s)),
    )


def _interval(values: Sequence[float], open_by: float = 0.0) -> Estimate | None:
    """Return the mean with its interval, joined with a half-width that the scatter lacks."""
    if not values:
        return None
    mean = estimate(values)
    if mean.half_width is None:
        return mean
    half_width = math.hypot(mean.half_width, open_by)
    return replace(mean, low=mean.mean - half_width, high=mean.mean + half_width)


def comparisons(
    results: Sequence[CommandResult], component: str, terms: Sequence[ErrorTerm]
) -> tuple[ContrastResult, ...]:
    """Compare each other command with the first within blocks; one family.

    `terms` are of a meter's error. What of them does not cancel in a ratio, and what a counter
    leaves open, is in its interval: the scatter of runs shows nothing of a coarse digit.
    """
    by_block = [{t.block: t for t in r.trials if t.energy_j.get(component)} for r in results]
    known = []
    for other, trials in zip(results[1:], by_block[1:], strict=True):
        blocks = sorted(by_block[0].keys() & trials)
        sides = [[side[block] for block in blocks] for side in (by_block[0], trials)]
        joules = [[t.energy_j[component] or 0.0 for t in side] for side in sides]
        if (comparison := compare(joules[0], joules[1], DeclaredAnalysis.margin)) is not None:
            mean_j = list(map(fmean, joules))
            mean_s = [fmean(t.window_s[component] for t in side) for side in sides]
            opened = [fmean(t.statistical_j[component] for t in side) for side in sides]
            pair = (mean_j[0], mean_s[0]), (mean_j[1], mean_s[1])
            shares = opened[0] / mean_j[0], opened[1] / mean_j[1]
            error = math.hypot(instrument_error(terms, [pair]), *shares)
            known.append((other.command, replace(comparison, systematic=error)))
    family = judge_comparisons([comparison for _, comparison in known])
    return tuple(
        ContrastResult(
            *(results[0].command, name, False, (), each.n, each.ratio, each.low, each.high),
            verdict=str(words.verdict_of(each, modes=False)),
        )
        for (name, _), each in zip(known, family, strict=True)
    )


def notes(
    results: Sequence[CommandResult],
    component: str,
    labels: Mapping[str, str],
    objections: Mapping[str, Objection],
) -> Iterator[Note]:
    """Yield what the reader of the figures has to know, beyond what their intervals hold."""
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
            where = list(dict.fromkeys(labels[name] for name, _ in pairs))
            count, what = len({trial.block for _, trial in pairs}), f"runs of {command}"
            yield flag_note(flag, count, runs, what, where, command=command, coverage=share)
