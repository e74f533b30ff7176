"""What the reader of a command's figures has to know, beyond what their intervals hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any

from analysis.flags import flag_note
from analysis.report.words import count, listed, number, percent
from contract.measured_command import CommandResult, Component, Note, Trial
from contract.problem import Problem, wordings_of
from instrumentation.sources.accuracy import UPDATE_S
from instrumentation.sources.standing import STANDING

# Processor time of a command and of us that a pipe takes beyond /dev/null, by the byte: measured
# with `head` and `cat`, 0.1 to 0.2 s a GB. Above this share of a run it is worth a note.
PIPE_S_PER_BYTE = 0.2e-9
MUCH = 0.01
# Shorter than so many updates of its source, a run's figure is mostly the source's step.
FEW_UPDATES = 100
FEW_POLLS = 10
WORDINGS = wordings_of("controller/measured_command")


def flag_notes(result: CommandResult, components: Mapping[str, Component]) -> Iterator[Note]:
    """Yield a note on each flag of a command's runs, and of the rests before them.

    Sources that stand still have a separate note.
    """
    for what in ("runs of", "rests before"):
        flagged: dict[str, dict[str, list[Trial]]] = {}
        for trial in result.trials:
            by_component = trial.flags if what == "runs of" else trial.rest_flags
            for name, flags in by_component.items():
                for flag in sorted(set(flags) - STANDING):
                    flagged.setdefault(flag, {}).setdefault(name, []).append(trial)
        for flag, bearing in flagged.items():
            labels = list(dict.fromkeys(components[name].label for name in bearing))
            facts: dict[str, str | float] = {"command": result.command, "rest": what != "runs of"}
            if not facts["rest"]:
                shares = (
                    t.coverage.get(name, 1.0) for name, trials in bearing.items() for t in trials
                )
                facts["coverage"] = min(shares)
            number_flagged = len({trial.block for trials in bearing.values() for trial in trials})
            what_all = f"{what} {result.command}"
            yield flag_note(flag, number_flagged, len(result.trials), what_all, labels, **facts)


def note(code: str, facts: Mapping[str, Any], wording: str = "", **words: object) -> Note:
    """Build the note on a code, worded as `wording` (or the code) with facts and more words."""
    worded = Problem.from_wording(WORDINGS, wording or code, {**facts, **words})
    return Note(code, facts, str(worded))


def lost_note(result: CommandResult, component: str) -> Iterator[Note]:
    """Yield a note where some runs have no joules of the component that is compared."""
    lost = [trial for trial in result.trials if trial.energy_j[component] is None]
    if not lost:
        return
    flags, errors = (
        tuple(dict.fromkeys(word for t in lost for word in by_component(t).get(component, ())))
        for by_component in (attrgetter("flags"), attrgetter("errors"))
    )
    facts = {"command": result.command, "component": component, "runs": len(lost)}
    facts |= {"of": len(result.trials), "flags": flags}
    why = f" ({', '.join([*flags, *errors])})" if flags else ""
    runs = f"{len(lost)} of {count(len(result.trials), 'run')}"
    yield note("no-joules", facts, lost=runs, why=why)


def repetition_notes(result: CommandResult, component: str) -> Iterator[Note]:
    """Yield a note on each sign that the runs of a command are no repetitions of one quantity."""
    joules = [energy for t in result.trials if (energy := t.energy_j[component]) is not None]
    if len(joules) < 2:
        return
    from analysis.stats.repetition import signs

    places = [t.block + 1 for t in result.trials if t.energy_j[component] is not None]
    for sign in signs(joules):
        facts = {"command": result.command, "component": component, "share": sign.share}
        facts |= {"p_value": sign.p_value, "runs": tuple(places[at] for at in sign.runs)}
        off, runs = percent(1 + sign.share), [str(places[at]) for at in sign.runs]
        named = f"run{'s' * (len(runs) > 1)} {listed(runs)} of {len(places)}"
        farthest = f"{off} against the mean of the others{', at most' * (len(runs) > 1)}"
        correlation = number(sign.share, 2)
        words = {"off": off, "named": named, "farthest": farthest, "correlation": correlation}
        yield note(sign.code, facts, **words)


def output_notes(results: list[CommandResult], null: bool) -> Iterator[Note]:
    """Yield notes on what became of the commands' output, where that bears on their joules."""
    if null:
        yield note("output-null", {})
    for result in results:
        written = [t.output_bytes for t in result.trials if t.output_bytes is not None]
        if not written:
            continue
        mean = sum(written) / len(written)
        share = mean * PIPE_S_PER_BYTE / max(result.seconds.mean, 1e-9)
        if share > MUCH:
            facts = {"command": result.command, "bytes": mean, "share": share}
            words = {"megabytes": number(mean / 1e6, 0), "percent": f"{100 * share:.0f}"}
            yield note("output-piped", facts, **words)


def short_notes(source: str, seconds: float, poll_s: float | None) -> Iterator[Note]:
    """Yield a note where a run is short for its source.

    `poll_s`: between the powers of which its figure is the sum; None for a counter.
    """
    facts = {"source": source, "seconds": seconds}
    if source == "RAPL" and seconds < FEW_UPDATES * UPDATE_S:
        off = 2 * UPDATE_S / seconds
        yield note("short-runs", facts, milliseconds=seconds * 1e3, off=off)
    if source != "battery" and poll_s and seconds < FEW_POLLS * poll_s:
        yield note("short-runs", facts, "short-polls", poll_ms=poll_s * 1e3)
