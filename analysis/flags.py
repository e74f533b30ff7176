"""What flags on joules mean: the one place that makes sentences of them, for suites and commands.

Free of numpy and Polars, so that a command's result needs neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from contract.measured_command import Note


@dataclass(frozen=True)
class Flag:
    """What a flag means. `reserves`: a suite's conclusions are given with a reservation for it."""

    meaning: str
    reserves: bool = False


FLAGS = {
    # Of a meter's records over time. A suite has a reservation of its own for what they leave out.
    "gap-filled": Flag("samples are missing; filled in with the mean power beside the gap"),
    "gap-by-counter": Flag(
        "samples are missing; the meter's own energy counter gives what they held"
    ),
    "delay-beyond-limit": Flag(
        "records came later than the meter's limit allows, or by a clock that is off by more than "
        "2 %; the whole delay is in doubt, and the intervals are wider for it",
        True,
    ),
    "period-not-nominal": Flag(
        "records follow each other by another period than the one that the meter was set to; what "
        "its windows hold is not certain: check its settings",
        True,
    ),
    "duplicate-record": Flag("a record came twice; the second one counts for nothing"),
    "stuck": Flag(
        "the readings did not change for longer than this meter's do at that power", True
    ),
    "zero-power": Flag(
        "the meter showed 0 W while the machine worked: it shows no small loads, or does not carry "
        "the whole machine",
        True,
    ),
    "negative-power": Flag(
        "the meter showed less than 0 W of a whole machine: its clamp or leads are the wrong way "
        "round, or it marks a missing reading so; below 0 J in all there is no figure",
        True,
    ),
    "lone-reading": Flag(
        "single readings of more than 20 times the power of those beside them hold more than 1 % "
        "of the joules: a meter that marks a missing reading so, or glanced",
        True,
    ),
    "slower-than-declared": Flag(
        "the readings follow the load over another time than the window that the meter was "
        "declared to have; the intervals are wider for it: correct its period, or set the meter",
        True,
    ),
    "readings-held": Flag(
        "the meter repeats its readings, at a steady rate or until the power has moved by some "
        "watts; the intervals are wider for it",
        True,
    ),
    "coarse-readings": Flag(
        "the meter's readings around its ends leave more than 4 % of the joules open, which the "
        "scatter of runs need not show: let the command last longer, or rest longer"
    ),
    "counter-contradicted": Flag(
        "the meter's own energy counter contradicts its power by more than both may err; it fills "
        "no gap, and one of the two is wrong",
        True,
    ),
    "shorter-than-window": Flag(
        "the time is shorter than what one reading is the mean of, or than the time between two "
        "updates of the counter: no figure, unless rests on both sides give one"
    ),
    "no-samples": Flag("the meter has no sample there: no figure"),
    "no-clock": Flag("no clock reading for that boot of the target: the meter cannot be placed"),
    # Of counters.
    "wrap-corrected": Flag("the counter went round once and was corrected"),
    "possible-double-wrap": Flag("the counter may have gone round more often than can be seen"),
    "read-failed": Flag("the counter could not be read: no figure", True),
    "unknown-range": Flag("the counter's range is unknown: a wrap could not be corrected"),
    "beyond-power-bound": Flag(
        "more energy than the zone can draw in that time; a fall gives no figure", True
    ),
    "counter-reopened": Flag("the counter was gone for a while; what it missed is unknown", True),
    "coarse-updates": Flag(
        "updates or steps of the counter are far apart for so short a time; the uncertainty holds "
        "them"
    ),
    "coarser-than-the-run": Flag("one step of the counter is too much of so few joules: no figure"),
    "mirror": Flag("the counter shows another die's a second time: it is in no sum"),
    "pyrapl-wrapped": Flag(
        "the counter went round, which pyRAPL does not follow: no figure by pyRAPL"
    ),
    "pyrapl-differs": Flag(
        "pyRAPL's figure lies outside what our reader saw around it: its unit or its zone is not "
        "the one it should be"
    ),
    "pyrapl-unchecked": Flag(
        "our reader has no figure to hold pyRAPL's against: a counter that went round would not "
        "show"
    ),
    # Of what is no measure of anything; a sentence of its own says what was seen.
    "stands-still": Flag("the counter or channel stood still while the machine worked: no figure"),
    "did-not-move": Flag("the counter did not move: no figure"),
    "one-value": Flag("the sensor gave one value throughout: no figure"),
    "below-its-part": Flag("less than what lies within it: no figure"),
    "contradicts-its-gauge": Flag(
        "a battery's power and its gauge contradict each other: no figure"
    ),
    # What a meter reports of its own readings.
    "over-range": Flag("the meter was beyond its range; the stated accuracy does not hold", True),
    "auto-range": Flag("the meter chose its range; the stated accuracy is that of its widest one"),
    "range-changed": Flag("the meter's range changed, and so did its accuracy", True),
    "doubtful": Flag("in some record the meter's power is not its voltage times its current", True),
    "late": Flag("the meter was asked late; its window may have ended earlier than is assumed"),
    "device-error": Flag("the meter reported an error of its own beside the reading", True),
    "off": Flag("the meter's output was switched off", True),
    "tripped": Flag("a protection of the meter's output had tripped", True),
    "incomplete": Flag("a phase has no figure, so the run has no sum"),
}
"""By code. A meter's driver may set others (its `flag_words`)."""


DOUBTS = {
    "skewed": (
        "blocks scatter further to one side than a normal distribution; the interval is widened "
        "for it."
    ),
    "blocks-follow": (
        "neighbouring blocks resemble each other, though blocks are taken as independent: the "
        "interval may be too narrow."
    ),
    "two-levels": (
        "runs are on more than one level, so that nothing is called equivalent, and the mean is "
        "that of a mixture."
    ),
    "meter-decides": "the meter's own error is larger than the scatter between blocks.",
    "voids": (
        "tries were void more often under one configuration than under the others: what remained "
        "is a selection."
    ),
}
"""What speaks against an assumption of a ratio, by code."""


def doubt(code: str) -> str:
    """Return what a doubt on a ratio means."""
    return DOUBTS[code]


def meaning(code: str) -> str:
    """Return what a flag means, as far as it is one of ours."""
    return FLAGS[code].meaning if code in FLAGS else "see the driver that sets it"


def reserves(code: str) -> bool:
    """Whether conclusions are given with a reservation for it; an unknown flag counts as such."""
    return code not in FLAGS or FLAGS[code].reserves


def flag_note(
    code: str, flagged: int, total: int, what: str, components: Sequence[str], **facts: Any
) -> Note:
    """Build the note on one flag: on so many of all `what` ("runs of X"), in which components.

    `coverage` among the facts is the share that was measured of the one with most missing.
    """
    where = ", ".join(components)
    sentence = f"{flagged} of {total} {what} flagged {code} in {where}: {meaning(code)}."
    covered = facts.get("coverage", 1.0)
    if covered < 1:
        sentence += f" At worst, {100 * covered:.0f} % were measured."
    facts = {"flagged": flagged, "of": total, "components": tuple(components), **facts}
    return Note(code, facts, sentence)
