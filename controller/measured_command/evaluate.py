"""From runs to means, intervals and verdicts, by the statistics of the suites.

These take numpy and SciPy, and are imported where there are two runs at least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from analysis.report import words
from contract.measured_command import (
    CommandComparison,
    CommandResult,
    ComponentEnergy,
    Interval,
    Trial,
)
from contract.names import as_utf8
from controller.measured_command.options import Command
from controller.measured_command.sources import Used
from controller.measured_command.trials import RawTrial
from instrumentation.sources.standing import Objection, Stretch

if TYPE_CHECKING:
    from analysis.stats.comparison import Comparison
    from instrumentation.accuracy import ErrorTerm

# What evaluates two runs, and meters.
STATISTICS = (
    "analysis.stats.budget",
    "analysis.stats.comparison",
    "analysis.stats.planning",
    "analysis.stats.repetition",
)
OF_METERS = ("analysis.energy.metered", "analysis.suite.recordings")
Spans = Mapping[tuple[int, int], Mapping[str, Used]]


@dataclass(frozen=True)
class Design:
    """How the number of blocks was decided: fixed, or by a pilot (Stein's two stages).

    `rest_s` is the rest before each run.
    """

    margin: float
    pilot: int | None = None
    rest_s: float = 0.0

    def estimate(self, values: Sequence[tuple[int, float]]) -> Interval | None:
        """Mean of values by block, with the interval that the design allows."""
        every = [value for _, value in values]
        if len(every) < 2:
            return Interval(1, every[0], None, None) if every else None
        from analysis.stats.planning import two_stages
        from analysis.stats.stats import estimate

        if self.pilot is None:
            return Interval(**asdict(estimate(every)))
        first = [value for block, value in values if block < self.pilot]
        return Interval(**asdict(two_stages(first, every[len(first) :]))) if first else None

    def compare(self, base: Mapping[int, float], other: Mapping[int, float]) -> Comparison | None:
        """Return the ratio other / base within blocks that have both."""
        import numpy as np

        from analysis.stats.comparison import LogRatio, compare, of_mean

        blocks = sorted(set(base) & set(other))
        sides = [base[b] for b in blocks], [other[b] for b in blocks]
        comparison = compare(*sides, self.margin)
        if self.pilot is None or comparison is None:
            return comparison
        logs = np.log(np.asarray(sides[1]) / np.asarray(sides[0]))
        first = logs[: sum(block < self.pilot for block in blocks)]
        if len(first) < 2:
            return comparison
        pilot = LogRatio.of(first)
        error = pilot.error * math.sqrt(len(first) / len(logs))
        mean = LogRatio(np.mean(logs), error, pilot.df)
        return of_mean(mean, len(logs), self.margin, logs)


def stretches(done: Sequence[RawTrial], metered: Spans) -> dict[str, list[Stretch]]:
    """By component, all rests and runs with the joules that it showed."""
    by_component: dict[str, list[Stretch]] = {}
    for raw in done:
        for used in (_rests(raw, metered), _used(raw, metered)):
            for name, usage in used.items():
                by_component.setdefault(name, []).append(Stretch(usage.seconds, usage.energy_j))
    return by_component


def _used(raw: RawTrial, metered: Spans) -> Mapping[str, Used]:
    return {**metered.get(raw.span, {}), **raw.used}


def _rests(raw: RawTrial, metered: Spans) -> Mapping[str, Used]:
    return {**(metered.get(raw.rest, {}) if raw.rest else {}), **raw.rest_used}


def trial(raw: RawTrial, metered: Spans, objections: Mapping[str, Objection]) -> Trial:
    """Return a run as a document has it, with the readings of its meters.

    Components with an objection have no joules.
    """

    def sound(used: Mapping[str, Used]) -> Mapping[str, Used]:
        return {
            name: Used(None, 0.0, (objections[name].code,))
            if name in objections and usage.energy_j is not None
            else usage
            for name, usage in used.items()
        }

    used, rests = sound(_used(raw, metered)), sound(_rests(raw, metered))
    execution = raw.execution
    return Trial(
        block=raw.block,
        place=raw.place,
        t_start_ns=execution.t_start_ns,
        t_end_ns=execution.t_end_ns,
        seconds=(execution.t_end_ns - execution.t_start_ns) * 1e-9,
        user_s=execution.user_s,
        system_s=execution.system_s,
        exit_code=execution.exit_code,
        energy_j={name: energy.energy_j for name, energy in used.items()},
        window_s={name: energy.seconds for name, energy in used.items()},
        rest_power_w={
            name: None if rest.energy_j is None else rest.energy_j / rest.seconds
            for name, rest in rests.items()
        },
        flags={name: energy.flags for name, energy in used.items() if energy.flags},
        rest_flags={name: rest.flags for name, rest in rests.items() if rest.flags},
        errors={name: energy.errors for name, energy in used.items() if energy.errors},
        coverage={name: e.coverage for name, e in used.items() if e.coverage < 1},
        output_bytes=raw.output.bytes,
    )


Terms = Mapping[str, Sequence["ErrorTerm"]]


def count_terms(done: Sequence[RawTrial]) -> dict[str, list[ErrorTerm]]:
    """Return by component what its counter's step and updates leave open in each run's joules.

    The scatter of runs does not show it where updates keep step with the command, or where a step
    is larger than the scatter.
    """
    from instrumentation.accuracy import ErrorTerm

    source = "observed by this program"
    terms: dict[str, list[ErrorTerm]] = {}
    for name in done[0].used if done else ():
        coarse = [raw.used[name].coarse for raw in done]
        terms[name] = [
            ErrorTerm("count", max(each.step_j for each in coarse), source),
            ErrorTerm("update", max(each.update_s for each in coarse), source),
        ]
    return terms


def result(
    command: Command, trials: Sequence[Trial], design: Design, terms: Terms
) -> CommandResult:
    """All runs of one command."""

    def seconds(value: Callable[[Trial], float]) -> Interval:
        return design.estimate([(t.block, value(t)) for t in trials])  # type: ignore[return-value]

    return CommandResult(
        command=as_utf8(command.name),
        argv=tuple(map(as_utf8, command.argv)),
        seconds=seconds(lambda t: t.seconds),
        user_s=seconds(lambda t: t.user_s),
        system_s=seconds(lambda t: t.system_s),
        components={
            name: _component(name, trials, design, terms.get(name, ()))
            for name in trials[0].energy_j
        },
        trials=tuple(trials),
    )


def _component(
    name: str, trials: Sequence[Trial], design: Design, terms: Sequence[ErrorTerm]
) -> ComponentEnergy:
    joules: list[tuple[int, float]] = []
    power: list[tuple[int, float]] = []
    rest: list[tuple[int, float]] = []
    above: list[tuple[int, float]] = []
    for trial in trials:
        run_j, rest_w = trial.energy_j.get(name), trial.rest_power_w.get(name)
        if rest_w is not None:
            rest.append((trial.block, rest_w))
        if run_j is None:
            continue
        joules.append((trial.block, run_j))
        window_s = trial.window_s[name]
        power.append((trial.block, run_j / window_s))
        if rest_w is not None:
            above.append((trial.block, run_j - rest_w * window_s))
    energy_j, power_w, rest_power_w, above_j = map(design.estimate, (joules, power, rest, above))
    if energy_j is None or energy_j.low is None or not terms:
        return ComponentEnergy(energy_j, power_w, rest_power_w, above_j)
    seconds = sum(trial.window_s[name] for trial in trials) / len(trials)
    open_j = _open_j(terms, energy_j.mean, seconds)
    in_rest_w = 0.0
    if rest_power_w is not None and design.rest_s:
        rest_j = rest_power_w.mean * design.rest_s
        in_rest_w = _open_j(terms, rest_j, design.rest_s) / design.rest_s
    return ComponentEnergy(
        _widened(energy_j, open_j),
        _widened(power_w, open_j / seconds),
        _widened(rest_power_w, in_rest_w),
        _widened(above_j, math.hypot(open_j, in_rest_w * seconds)),
    )


def _open_j(terms: Sequence[ErrorTerm], energy_j: float, seconds: float) -> float:
    """Return the half-width of the 95 % interval that terms leave of joules (GUM 6)."""
    from analysis.stats.budget import NORMAL, Reading, of_terms

    rows = of_terms(terms, [Reading(energy_j, seconds, 1.0)])
    return NORMAL * math.hypot(*(row.contribution or 0.0 for row in rows))


def _widened(interval: Interval | None, by: float) -> Interval | None:
    """Join an interval with a half-width that is independent of its scatter."""
    if interval is None or interval.half_width is None:
        return interval
    half_width = math.hypot(interval.half_width, by)
    return replace(interval, low=interval.mean - half_width, high=interval.mean + half_width)


def comparisons(
    results: Sequence[CommandResult],
    component: str,
    design: Design,
    terms: Sequence[ErrorTerm] = (),
) -> list[tuple[CommandComparison, Comparison]]:
    """Compare each other command with the first; one family.

    `terms` are of the meter's error, of which a ratio holds what does not cancel: the scatter of
    runs shows nothing of a coarse digit.
    """
    base, *others = results
    if not others:
        return []
    from analysis.stats.budget import instrument_error
    from analysis.stats.comparison import judged, verdict

    known = []
    for other in others:
        comparison = design.compare(*(_by_block(r, component) for r in (base, other)))
        if comparison is not None:
            means = _mean(base, component), _mean(other, component)
            known.append((other, replace(comparison, systematic=instrument_error(terms, [means]))))
    family = judged([comparison for _, comparison in known])
    return [
        (
            CommandComparison(
                base=base.command,
                other=other.command,
                n=comparison.n,
                ratio=comparison.ratio,
                low=comparison.low,
                high=comparison.high,
                margin=comparison.margin,
                p_adjusted=comparison.p_adjusted,
                p_equivalence_adjusted=comparison.p_equivalence_adjusted,
                verdict=verdict(*comparison.deciding),
                verdict_words=str(
                    words.verdict(comparison.verdict, comparison.ratio, comparison.both)
                ),
            ),
            comparison,
        )
        for (other, _), comparison in zip(known, family, strict=True)
    ]


def _mean(result: CommandResult, component: str) -> tuple[float, float]:
    """Joules and seconds of the mean run."""
    energies = list(_by_block(result, component).values())
    seconds = [t.window_s[component] for t in result.trials if t.energy_j.get(component)]
    return math.fsum(energies) / len(energies), math.fsum(seconds) / max(1, len(seconds))


def _by_block(result: CommandResult, component: str) -> dict[int, float]:
    energies = ((trial.block, trial.energy_j.get(component)) for trial in result.trials)
    return {block: energy_j for block, energy_j in energies if energy_j is not None}


def blocks_needed(
    results: Sequence[CommandResult], component: str, design: Design, precision: float
) -> int | None:
    """Blocks for intervals of the joules, and of the ratios, within ±`precision`, by the pilot.

    None where fewer than two blocks have a figure. A mean's deviation counts
    as a share of it (Stein 1945, see analysis.stats.planning).
    """
    import numpy as np

    from analysis.stats.planning import blocks_for

    needed = []
    for result in results:
        values = list(_by_block(result, component).values())
        mean = float(np.mean(values)) if values else 0.0
        if len(values) < 2 or mean <= 0:
            return None
        needed.append(blocks_for(float(np.std(values, ddof=1)) / mean, len(values), precision))
    for _, comparison in comparisons(results, component, design):
        if comparison.sd_log is not None:
            needed.append(blocks_for(comparison.sd_log, comparison.n, precision))
    return max(needed)
