"""Judge by a whole recording, rest and load, whether a source can be the figure that it shows.

A counter that did not move, a sensor that gave one value throughout and a total below its part have
no joules. What is judged is the recording and not a moment: a counter may rest for less than its
update interval, and a sensor that is read at rest alone may well show one value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from contract.problem import Fact
from instrumentation.sources.coverage import Category

# Flags and codes: they are words in tables and in `Trial.flags`.
STANDS_STILL = "stands-still"
DID_NOT_MOVE = "did-not-move"
ONE_VALUE = "one-value"
BELOW_PART = "below-its-part"
CONTRADICTED = "contradicts-its-gauge"
TOO_LITTLE = "too-little"
STANDING = frozenset({STANDS_STILL, DID_NOT_MOVE, ONE_VALUE, BELOW_PART, CONTRADICTED, TOO_LITTLE})

# A source that stood still in more of the stretches than this is no figure in the others either:
# when it died in them is not known.
SHARE = 0.1
# So long, in s, a source may show the same count: update intervals as published or seen, with room.
# RAPL changes about each ms, on some platforms each 100 ms; NVIDIA's counter each 20 to 100 ms; a
# battery's gauge up to each 30 s; drivers of hwmon read their chips once a second.
PATIENCE_S: Mapping[str, float] = {"RAPL": 0.5, "nvml": 2.0, "battery": 120.0}
OTHERS_PATIENCE_S = 5.0
# Within so long a counter is brought up to date, as far as a total and its part are compared.
UPDATE_S = 0.2
# Seconds of the processor's work by second, from which on the power of a machine must have moved.
BUSY = 0.25
# So many stretches, so long together: a late total is not less than its part in all of them.
SOME, SOME_S = 4, 2.0
ALIKE = 0.002  # of a mean power: a poll is some hundred µs late
# A gauge follows late and in steps; a figure in another unit is off by ten or a thousand.
MOST_APART = 3.0
# No machine, and no processor with such a counter, takes less while it runs, in W: a smaller mean
# is in another unit. RAPL's packages sleep deeply, boards at an external meter are small.
LEAST_W: Mapping[str, float] = {"RAPL": 0.03, "hwmon": 0.5, "battery": 0.5}
OTHERS_LEAST_W = 0.3
ROUNDING = 0.05  # of a part, by which a total may seem less than it


@dataclass(frozen=True)
class Stretch:
    """A stretch of a recording: its seconds and joules; None where these are not known."""

    seconds: float
    energy_j: float | None


@dataclass(frozen=True)
class Objection:
    """Why the joules of a source, called `label`, are no figure.

    `code`, and clauses for people on what was seen and the remedy. `facts` are what was seen.
    """

    code: str
    label: str
    observation: str
    way: str = "Take another component."
    facts: Mapping[str, Fact] = field(default_factory=dict)


def sentences(objections: Iterable[Objection]) -> list[str]:
    """One for each thing that was seen, with all that it was seen of."""
    same: dict[tuple[str, str], list[str]] = {}
    for objection in objections:
        same.setdefault((objection.observation, objection.way), []).append(objection.label)
    return [
        f"{', '.join(labels)} {'has' if len(labels) == 1 else 'have'} no joules: {shown}. {way}"
        for (shown, way), labels in same.items()
    ]


def patience_s(source: str) -> float:
    """How long a source of this name may show one count."""
    return PATIENCE_S.get(source, OTHERS_PATIENCE_S)


def summed(stretches: Iterable[Stretch]) -> tuple[float, float]:
    """Return the seconds of some stretches, and their joules as far as these are known."""
    every = list(stretches)
    energy_j = math.fsum(stretch.energy_j or 0.0 for stretch in every)
    return math.fsum(stretch.seconds for stretch in every), energy_j


def stood_still(stretches: Sequence[Stretch], patience: float) -> str:
    """Whether a counter is no figure by all its stretches: a code, or empty.

    It never moved, or it stood still in more than `SHARE` of the stretches that are long enough to
    show it, a third of `patience` where it moves in others. Where most stretches are unknown they
    have another reason.
    """
    known = [stretch for stretch in stretches if stretch.energy_j is not None]
    if 2 * len(known) < len(stretches) or not known:
        return ""
    whole_s, _ = summed(known)
    if not any(stretch.energy_j for stretch in known):
        return STANDS_STILL if whole_s >= patience else DID_NOT_MOVE
    telling = [stretch for stretch in known if stretch.seconds >= patience / 3]
    still = sum(not stretch.energy_j for stretch in telling)
    rows = groupby(known, key=lambda stretch: bool(stretch.energy_j))
    in_a_row_s = [summed(row)[0] for moved, row in rows if not moved]
    still_s = math.fsum(seconds for seconds in in_a_row_s if seconds >= patience)
    many = still > SHARE * len(telling) or still_s > SHARE * whole_s
    return STANDS_STILL if many else ""


def frozen(stretches: Sequence[Stretch], patience: float) -> tuple[float, float] | None:
    """Return seconds and joules of the longest row of stretches in which a sensor showed one power.

    It must last for `patience` and more than `SHARE` of the whole; rests and runs take turns.
    """
    rows: list[list[Stretch]] = [[]]
    for stretch in stretches:
        if stretch.energy_j is None or not stretch.seconds:
            continue
        # Of one mean power, as far as the times of polls show.
        powers = [(s.energy_j or 0.0) / s.seconds for s in (*rows[-1][-1:], stretch)]
        if not math.isclose(powers[0], powers[-1], rel_tol=ALIKE):
            rows.append([])
        rows[-1].append(stretch)
    longest = max((summed(row) for row in rows if len(row) >= SOME), default=(0.0, 0.0))
    return longest if longest[0] >= max(patience, SHARE * summed(stretches)[0]) else None


def below(
    total: Sequence[Stretch], part: Sequence[Stretch], update_s: float
) -> tuple[float, float] | None:
    """Return the joules of a total and of its part, where the total is less; else None.

    They are over the stretches that both have. Less is what late counts (each within `update_s`) do
    not explain, or less in each of some stretches, at rest as under load.
    """
    both = [
        (stretch, other)
        for stretch, other in zip(total, part, strict=True)
        if stretch.energy_j is not None and other.energy_j is not None
    ]
    seconds, total_j = summed(stretch for stretch, _ in both)
    _, part_j = summed(other for _, other in both)
    if not total_j or not seconds:
        return None  # `of_counter` has it
    always = all(
        (stretch.energy_j or 0.0) < (other.energy_j or 0.0) * (1 - ROUNDING)
        for stretch, other in both
    )
    if always and len(both) >= SOME and seconds >= SOME_S:
        return total_j, part_j
    late_j = part_j / seconds * update_s * math.sqrt(len(both))
    return (total_j, part_j) if total_j + late_j < part_j * (1 - ROUNDING) else None


def update_of(stretches: Sequence[Stretch]) -> float:
    """Within how long a counter is brought up to date, in s.

    `UPDATE_S`, less where it moved in shorter stretches.
    """
    moved = sum(bool(stretch.energy_j) for stretch in stretches)
    return min(UPDATE_S, summed(stretches)[0] / max(1, moved))


def of_counter(label: str, stretches: Sequence[Stretch], patience: float) -> Objection | None:
    """Return the objection to a counter, which may show one count for `patience` s; else None."""
    code = stood_still(stretches, patience)
    if not code:
        return None
    seconds, energy_j = summed(stretches)
    still = sum(stretch.energy_j == 0 for stretch in stretches)
    facts = {"seconds": seconds, "stretches": len(stretches), "still": still}
    way = Objection.way
    if code == DID_NOT_MOVE:
        observation = f"no count changed in {seconds:.3g} s, which is too short for it"
        way = "Let the command repeat its work."
    elif energy_j:
        observation = (
            f"the count stood still in {still} of {len(stretches)} stretches of rest and load"
        )
    else:
        observation = (
            f"no count changed over {seconds:.3g} s of rest and load, as in a virtual machine or "
            "where firmware feeds no counter"
        )
    return Objection(code, label, observation, way, facts)


def of_sensor(
    label: str,
    only_w: float | None,
    stretches: Sequence[Stretch],
    busy_s: float,
    patience: float,
) -> Objection | None:
    """Object to a sensor that showed one power alone (`only_w`), or one through many stretches.

    Commands kept the processor busy for `busy_s` of them. Without work for a processor one power
    may be true, unless it is 0.
    """
    power_w, seconds = only_w, summed(stretches)[0]
    if power_w is None:
        row = frozen(stretches, patience)
        if row is None:
            return None
        busy_s *= row[0] / seconds
        seconds, power_w = row[0], row[1] / row[0]
    if power_w and (seconds < patience or busy_s < BUSY * seconds):
        return None
    work = f", {busy_s:.3g} s of work for the processor among them" if power_w else ""
    return Objection(
        ONE_VALUE,
        label,
        f"every reading over {seconds:.3g} s was {power_w:.6g} W{work}",
        "Look at the sensor and its driver, or take another component.",
        {"power_w": power_w, "seconds": seconds, "busy_s": busy_s},
    )


def below_parts(
    named: Mapping[str, tuple[str, str]],
    covers: Mapping[str, Category],
    stretches: Mapping[str, Sequence[Stretch]],
) -> dict[str, Objection]:
    """Return objections to quantities that are less than their parts, or than any machine.

    `named` has label and source of each, `covers` what it covers where that is known.
    """
    below: dict[str, Objection] = {}
    for name, category in covers.items():
        label, source = named[name]
        objection = of_little(label, source, stretches[name]) if category.never_zero else None
        update_s = patience_s(source)
        if source in ("RAPL", "nvml"):
            update_s = update_of(stretches[name])
        for part in (n for n, within in covers.items() if within.name in category.holds):
            of_part = named[part][0], stretches[part]
            objection = objection or of_total(label, stretches[name], *of_part, update_s)
        if objection is not None:
            below[name] = objection
    return below


def of_total(
    label: str,
    total: Sequence[Stretch],
    part_label: str,
    part: Sequence[Stretch],
    update_s: float,
) -> Objection | None:
    """Return the objection to a total that is less than its part; else None."""
    shortfall = below(total, part, update_s)
    if shortfall is None:
        return None
    total_j, part_j = shortfall
    return Objection(
        BELOW_PART,
        label,
        f"{total_j:.3g} J were counted, and {part_j:.3g} J by {part_label}, which is a part of it",
        facts={"energy_j": total_j, "part": part_label, "part_j": part_j},
    )


def of_little(label: str, source: str, stretches: Sequence[Stretch]) -> Objection | None:
    """Object to a machine or processor that took less than one can while it runs, or gave power."""
    least_w = LEAST_W.get(source, OTHERS_LEAST_W)
    known = [stretch for stretch in stretches if stretch.energy_j is not None]
    seconds, energy_j = summed(known)
    if seconds < SOME_S or energy_j / seconds >= least_w:
        return None
    return Objection(
        TOO_LITTLE,
        label,
        f"{energy_j / seconds:.3g} W over {seconds:.3g} s is less than the {least_w:g} W that it "
        "takes to run",
        "Check its unit and the direction of its clamp, or take another component.",
    )


def of_gauge(
    labels: tuple[str, str], power_j: float, gauge_j: float, step_j: float
) -> Objection | None:
    """Object to a power and the gauge of one supply that contradict each other.

    The joules of both, called `labels`, since they were opened differ by more than the factor
    `MOST_APART`; the gauge may be two steps off.
    """
    off_j = 2 * step_j
    if gauge_j - off_j <= MOST_APART * power_j and power_j <= MOST_APART * (gauge_j + off_j):
        return None
    observation = (
        f"{labels[0]} shows {power_j:.3g} J and {labels[1]} {gauge_j:.3g} J of the same time, so "
        "that one of them counts in another unit"
    )
    facts = {"power_j": power_j, "gauge_j": gauge_j}
    return Objection(CONTRADICTED, labels[0], observation, "Name a meter with --meter.", facts)
