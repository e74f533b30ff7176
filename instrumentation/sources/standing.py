"""Judge by a whole recording, at rest and under load, whether a source's figures are credible.

A counter that did not move, a sensor that showed one value throughout and a total below its part
have no joules. The recording is judged, not a moment: a counter may rest for less than its update
interval, and a sensor that is read only at rest may well show one value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from contract.problem import Fact
from instrumentation.sources.coverage import Category
from instrumentation.sources.zones import kind_of

CPU = "cpu"  # the sum of all packages
# Flags and codes, as they appear in tables and in `Trial.flags`.
STANDS_STILL = "stands-still"
DID_NOT_MOVE = "did-not-move"
ONE_VALUE = "one-value"
BELOW_PART, ABOVE_TOTAL = "below-its-part", "above-its-total"
CONTRADICTED = "contradicts-its-gauge"
TOO_LITTLE, TOO_MUCH = "too-little", "too-much"
IGNORES_LOAD = "ignores-load"
_STILL = STANDS_STILL, DID_NOT_MOVE, ONE_VALUE, IGNORES_LOAD
STANDING = frozenset({*_STILL, BELOW_PART, ABOVE_TOTAL, CONTRADICTED, TOO_LITTLE, TOO_MUCH})

# A source that stood still in a larger share of the stretches has no joules in the others either,
# for it may have stopped within them.
SHARE = 0.1
# How long a source may show the same count, in s: published or observed update intervals + margin.
# RAPL changes about each ms, on some platforms each 100 ms; NVIDIA's counter each 20 to 100 ms; a
# battery's gauge up to each 30 s; drivers of hwmon read their chips once a second.
PATIENCE_S: Mapping[str, float] = {"RAPL": 0.5, "nvml": 2.0, "battery": 120.0}
OTHERS_PATIENCE_S = 5.0
# Update interval of a counter when a total and its part are compared.
UPDATE_S = 0.2
# Seconds of the processor's work by second, from which on the power of a machine must have changed.
BUSY = 0.25
# Number and total time of stretches: a late total is not less than its part in all of them.
SOME, SOME_S = 4, 2.0
ALIKE = 0.002  # of a mean power: a poll is some hundred µs late
# A gauge follows late and in steps; a figure in a wrong unit is off by ten or a thousand. A power
# that stood still for most of the time has no such excuse.
MOST_APART, HELD_APART, MOSTLY_HELD = 3.0, 1.25, 0.5
# Added to the name of a counter: the device's power, which checks it, and how late that may be.
POWER_TWIN, POWER_LATE_S = "/power", 1.0
# Ratio of two sockets' memory from which on one of them may count in another unit.
UNLIKE = 10.0
ROUNDING = 0.05  # of a part, by which a total may seem less than it
LEAST_AT_WORK = 0.8  # of the power at rest, below which a machine at work cannot be
# Watts of a machine for each of its processor: supply, fans and memory take less than the first;
# beyond the second another device works.
FAR_MORE, OTHERS_WORK = 5.0, 20.0
CHECK_UNIT = "Check its unit and what it is wired to, or take another component."
CLEAR_RISE = 0.1  # of a total at rest, which its other parts do not take less meanwhile


@dataclass(frozen=True)
class Stretch:
    """A stretch of a recording: its seconds and joules; None if these are unknown."""

    seconds: float
    energy_j: float | None


@dataclass(frozen=True)
class Objection:
    """Why the joules of a source, called `label`, are not used.

    A code, clauses for people on the observation and the remedy, and the observed facts.
    """

    code: str
    label: str
    observation: str
    way: str = "Take another component."
    facts: Mapping[str, Fact] = field(default_factory=dict)


def sentences(objections: Iterable[Objection]) -> list[str]:
    """Return a sentence for each different observation, with the labels of all its sources."""
    labels_of: dict[tuple[str, str], dict[str, None]] = {}
    for objection in objections:
        labels_of.setdefault((objection.observation, objection.way), {})[objection.label] = None
    return [
        f"{', '.join(labels)} {'has' if len(labels) == 1 else 'have'} no joules: {shown}. {way}"
        for (shown, way), labels in labels_of.items()
    ]


def patience_s(source: str) -> float:
    """Return how long a source of this name may show one count, in s."""
    return PATIENCE_S.get(source, OTHERS_PATIENCE_S)


def time_and_energy(stretches: Iterable[Stretch]) -> tuple[float, float]:
    """Return the seconds of some stretches, and their joules as far as these are known."""
    pairs = [(stretch.seconds, stretch.energy_j or 0.0) for stretch in stretches]
    return math.fsum(seconds for seconds, _ in pairs), math.fsum(joules for _, joules in pairs)


def standstill_code(stretches: Sequence[Stretch], patience: float) -> str:
    """Return the code for a counter that stood still, by all its stretches; empty if it moved.

    It never moved, or it stood still in more than `SHARE` of the stretches that are long enough to
    show it, which is a third of `patience` if it moves in others. If most stretches are unknown
    they have another reason.
    """
    measured = [stretch for stretch in stretches if stretch.energy_j is not None]
    if 2 * len(measured) < len(stretches) or not measured:
        return ""
    total_s, _ = time_and_energy(measured)
    if not any(stretch.energy_j for stretch in measured):
        return STANDS_STILL if total_s >= patience else DID_NOT_MOVE
    long_ones = [stretch for stretch in measured if stretch.seconds >= patience / 3]
    still = sum(not stretch.energy_j for stretch in long_ones)
    rows = groupby(measured, key=lambda stretch: bool(stretch.energy_j))
    still_rows_s = [time_and_energy(row)[0] for moved, row in rows if not moved]
    still_s = math.fsum(seconds for seconds in still_rows_s if seconds >= patience)
    is_still = still > SHARE * len(long_ones) or still_s > SHARE * total_s
    return STANDS_STILL if is_still else ""


def longest_frozen_row(stretches: Sequence[Stretch], patience: float) -> tuple[float, float] | None:
    """Return seconds and joules of the longest row of stretches in which a sensor showed one power.

    None unless it lasts for `patience` and more than `SHARE` of the recording; rests and runs
    alternate.
    """
    rows: list[list[Stretch]] = [[]]
    for stretch in stretches:
        if stretch.energy_j is None or not stretch.seconds:
            continue
        # Equal mean powers, within the precision of the polls' times.
        powers = [(s.energy_j or 0.0) / s.seconds for s in (*rows[-1][-1:], stretch)]
        if not math.isclose(powers[0], powers[-1], rel_tol=ALIKE):
            rows.append([])
        rows[-1].append(stretch)
    longest = max((time_and_energy(row) for row in rows if len(row) >= SOME), default=(0.0, 0.0))
    return longest if longest[0] >= max(patience, SHARE * time_and_energy(stretches)[0]) else None


def object_to_counter(
    label: str, stretches: Sequence[Stretch], patience: float
) -> Objection | None:
    """Object to a counter that showed one count for longer than `patience` s; else None."""
    code = standstill_code(stretches, patience)
    if not code:
        return None
    seconds, energy_j = time_and_energy(stretches)
    still = sum(stretch.energy_j == 0 for stretch in stretches)
    facts = {"seconds": seconds, "stretches": len(stretches), "still": still}
    way = Objection.way
    if code == DID_NOT_MOVE:
        observation = f"no count changed in {seconds:.3g} s, which is too short for it"
        way = "Let the command repeat its work."
    elif energy_j:
        observation = f"the count stood still in {still} of {len(stretches)} rests and runs"
    else:
        observation = (
            f"no count changed over {seconds:.3g} s of rest and load, as in a virtual machine or "
            "where firmware feeds no counter"
        )
    return Objection(code, label, observation, way, facts)


def object_to_sensor(
    label: str, only_w: float | None, stretches: Sequence[Stretch], busy_s: float, patience: float
) -> Objection | None:
    """Object to a sensor that showed only one power (`only_w`), or one through many stretches.

    Commands kept the processor busy for `busy_s` of them. Without such work one power may be true,
    unless it is 0.
    """
    power_w, seconds = only_w, time_and_energy(stretches)[0]
    if power_w is None:
        row = longest_frozen_row(stretches, patience)
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


def mean_powers_w(stretches: Sequence[Stretch]) -> tuple[float, float] | None:
    """Return the mean power of the rests and of the runs, which alternate; None if too short."""
    rests, runs = (
        time_and_energy(s for s in stretches[k::2] if s.energy_j is not None) for k in (0, 1)
    )
    return None if min(rests[0], runs[0]) < SOME_S else (rests[1] / rests[0], runs[1] / runs[0])


def object_to_fall(label: str, stretches: Sequence[Stretch], busy_s: float) -> Objection | None:
    """Object to a power that falls from rests to runs in which the processor works for `busy_s`.

    So do figures of another unit above some power, that overflow, or of something else.
    """
    powers_w = mean_powers_w(stretches)
    if powers_w is None or busy_s < BUSY * time_and_energy(stretches[1::2])[0]:
        return None
    rest_w, run_w = powers_w
    if run_w >= LEAST_AT_WORK * rest_w:
        return None
    observation = f"it falls from {rest_w:.3g} W at rest to {run_w:.3g} W while the processor works"
    return Objection(
        IGNORES_LOAD, label, observation, CHECK_UNIT, {"rest_w": rest_w, "run_w": run_w}
    )


def object_to_rise(
    label: str, part_label: str, total: Sequence[Stretch], part: Sequence[Stretch], late_s: float
) -> Objection | None:
    """Object to a total that rises from rests to runs by less than its part; else None.

    So does a total of another machine, of one of two supplies, or that overflows. It may be twice
    as late as stated by `late_s`, so that short runs do not show its rise.
    """
    total_w, part_w = mean_powers_w(total), mean_powers_w(part)
    if total_w is None or part_w is None:
        return None
    rise_w, part_rise_w = total_w[1] - total_w[0], part_w[1] - part_w[0]
    run_s = time_and_energy(total[1::2])[0] / len(total[1::2])
    least_w = LEAST_AT_WORK * part_rise_w * max(0.0, 1 - 2 * late_s / run_s)
    if rise_w >= least_w or part_rise_w < CLEAR_RISE * total_w[0]:
        return None
    observation = (
        f"{label} rises by {rise_w:.3g} W from rest to run, less than its part {part_label} "
        f"({part_rise_w:.3g} W)"
    )
    facts: dict[str, Fact] = {"rise_w": rise_w, "part": part_label, "part_rise_w": part_rise_w}
    return Objection(IGNORES_LOAD, label, observation, CHECK_UNIT, facts)


def below_parts(
    named: Mapping[str, tuple[str, str]],
    covers: Mapping[str, Category],
    stretches: Mapping[str, Sequence[Stretch]],
    late_s: Mapping[str, float] | None,
    others_s: float | None = None,
) -> dict[str, Objection]:
    """Return objections to quantities below their parts, or outside the bounds of their category.

    `named` has label and source of each, `covers` what it covers if that is known. If total and
    part are of two sources, either may be wrong, so that the part's source has no joules either.
    Every other stretch is a rest before a run, unless `late_s`, the stated delays, is None.
    `others_s` is the most delay of a source that has none in `PATIENCE_S`.
    """
    powers = {n: object_to_power(named[n][0], c, stretches[n]) for n, c in covers.items()}
    objections = {name: objection for name, objection in powers.items() if objection}
    possible = {name: category for name, category in covers.items() if name not in objections}
    for name, category in possible.items():
        label, source = named[name]
        update_s = PATIENCE_S.get(source, others_s or OTHERS_PATIENCE_S)
        if source in ("RAPL", "nvml"):  # or less, as its counter moved in many stretches
            moved = sum(bool(stretch.energy_j) for stretch in stretches[name])
            update_s = min(UPDATE_S, time_and_energy(stretches[name])[0] / max(1, moved))
        for part in (n for n, within in possible.items() if within.name in category.holds):
            part_label, part_source = named[part]
            sides = stretches[name], stretches[part]
            objection = object_to_total(label, part_label, *sides, update_s)
            if objection is None and late_s is not None:
                objection = object_to_rise(label, part_label, *sides, late_s.get(name, update_s))
            if objection is None:
                continue
            unknown = f"{objection.observation}, and which of the two is wrong is unknown"
            objection = replace(objection, observation=unknown)
            if part_source != source:
                others = (n for n in stretches if named[n][1] == part_source)
                objections |= {
                    n: replace(objection, code=ABOVE_TOTAL, label=named[n][0]) for n in others
                }
            objections[name] = objection
            break
    return objections


def _known_pairs(
    total: Sequence[Stretch], part: Sequence[Stretch]
) -> list[tuple[float, float, float]]:
    """Return the seconds and both joules of each stretch in which both are known."""
    return [
        (stretch.seconds, stretch.energy_j, other.energy_j)
        for stretch, other in zip(total, part, strict=False)
        if stretch.seconds and stretch.energy_j is not None and other.energy_j is not None
    ]


def object_to_total(
    label: str, part_label: str, total: Sequence[Stretch], part: Sequence[Stretch], update_s: float
) -> Objection | None:
    """Object to a total that is less than its part; else None.

    They are compared over the stretches in which both are known. The total is less by more than
    late counts (each within `update_s`) explain, or in each of several stretches, at rest as under
    load.
    """
    pairs = _known_pairs(total, part)
    seconds, total_j, part_j = (math.fsum(pair[n] for pair in pairs) for n in range(3))
    if not total_j or not seconds:
        return None  # `object_to_counter` reports it
    always = all(pair[1] < pair[2] * (1 - ROUNDING) for pair in pairs)
    late_j = part_j / seconds * update_s * math.sqrt(len(pairs))
    is_long = len(pairs) >= SOME and seconds >= SOME_S
    if not (always and is_long) and total_j + late_j >= part_j * (1 - ROUNDING):
        return None
    return Objection(
        BELOW_PART,
        label,
        f"{label} counted {total_j:.3g} J, less than the {part_j:.3g} J of its part {part_label}",
        facts={"energy_j": total_j, "part": part_label, "part_j": part_j},
    )


def object_to_power(
    label: str, category: Category, stretches: Sequence[Stretch]
) -> Objection | None:
    """Object to a mean power that is negative, or outside the bounds of its category."""
    seconds, energy_j = time_and_energy(s for s in stretches if s.energy_j is not None)
    if seconds < SOME_S or category.least_w * seconds <= energy_j <= category.most_w * seconds:
        return None
    power_w, is_little = energy_j / seconds, energy_j < category.least_w * seconds
    bound = f"below {category.least_w:g} W, the least"
    if not is_little:
        bound = f"above {category.most_w:g} W, the most"
    return Objection(
        TOO_LITTLE if is_little else TOO_MUCH,
        label,
        f"{power_w:.3g} W over {seconds:.3g} s is {bound} that {category.name} can take",
        "Check its unit and the direction of its clamp, or take another component.",
        {"power_w": power_w, "least_w": category.least_w, "most_w": category.most_w},
    )


def memory_remarks(stretches: Mapping[str, Sequence[Stretch]]) -> Iterator[str]:
    """Yield sentences on RAPL's memory zones above their package, or far above another's.

    Both may be true: a socket may have all the memory.
    """
    totals = {name: time_and_energy(each) for name, each in stretches.items()}
    powers_w = {name: energy_j / s for name, (s, energy_j) in totals.items() if s}
    memory_w = {name: w for name, w in powers_w.items() if kind_of(name) == "dram" and w > 0}
    advice = "Check the unit of its counter, or take --component cpu."
    for name, power_w in memory_w.items():
        package = name.rpartition("/")[0] or "package-0"
        if power_w > powers_w.get(package, math.inf):
            share = f"more than its {package} ({powers_w[package]:.3g} W)"
            yield f"{name} took {power_w:.3g} W, {share}. {advice}"
    least, most = (pick(memory_w, key=lambda n: memory_w[n], default="") for pick in (min, max))
    if most and memory_w[most] > UNLIKE * memory_w[least]:
        yield (
            f"{most} took {memory_w[most]:.3g} W, {memory_w[most] / memory_w[least]:.0f} times as "
            f"much as {least}. {advice}"
        )


def rise_remarks(
    labels: Mapping[str, str], stretches: Mapping[str, Sequence[Stretch]], name: str
) -> Iterator[str]:
    """Yield a sentence if a quantity rises from rests to runs far more than the processor.

    Another device may do the work, or its figures are in tenths of a watt.
    """
    total_w, part_w = (mean_powers_w(stretches.get(n, ())) for n in (name, CPU))
    if total_w is None or part_w is None:
        return
    rise_w, part_rise_w = total_w[1] - total_w[0], part_w[1] - part_w[0]
    if FAR_MORE * part_rise_w < rise_w < OTHERS_WORK * part_rise_w:
        yield (
            f"{labels[name]} rises by {rise_w:.3g} W from rest to run, {rise_w / part_rise_w:.0f} "
            f"times as much as {labels[CPU]}. Check its unit, unless a graphics card or another "
            "device works."
        )


def object_to_twins(
    labels: Mapping[str, str], stretches: Mapping[str, Sequence[Stretch]]
) -> dict[str, Objection]:
    """Return objections to each counter and its device's power (`POWER_TWIN`) that contradict it.

    The power may be late by `POWER_LATE_S`.
    """
    objections: dict[str, Objection] = {}
    for name in stretches:
        twin = f"{name}{POWER_TWIN}"
        pairs = _known_pairs(stretches[name], stretches.get(twin, ()))
        seconds, counter_j, power_j = (math.fsum(pair[n] for pair in pairs) for n in range(3))
        if seconds < SOME_S:
            continue
        late_j = max(max(pair[1:]) / pair[0] for pair in pairs) * POWER_LATE_S
        pair_labels = labels[name], labels[twin]
        contradictions = object_to_pair(pair_labels, power_j, counter_j, HELD_APART, late_j)
        objections |= zip((name, twin), contradictions, strict=False)
    return objections


def object_to_gauge(
    labels: tuple[str, str], power_j: float, gauge_j: float, step_j: float, held_share: float
) -> list[Objection]:
    """Object to a battery's gauge and its power that contradict each other since the opening.

    A gauge is late and may be two steps off; a power that was the same for more than `MOSTLY_HELD`
    of the time has no such excuse.
    """
    apart = HELD_APART if held_share > MOSTLY_HELD else MOST_APART
    return object_to_pair(labels, power_j, gauge_j, apart, 2 * apart * step_j)


def object_to_pair(
    labels: tuple[str, str], power_j: float, counter_j: float, apart: float, late_j: float
) -> list[Objection]:
    """Object to counter and power of one thing if their joules differ by more than a factor.

    `labels` are those of counter and power, `late_j` what one may lag behind the other.
    """
    low_j, high_j = sorted((power_j, counter_j))
    if high_j - late_j <= apart * low_j:
        return []
    observation = (
        f"{labels[0]} counted {counter_j:.3g} J, and {labels[1]} shows {power_j:.3g} J of the same "
        "time: one of them stands still, has another unit, or covers more"
    )
    facts = {"power_j": power_j, "counter_j": counter_j}
    way = "Compare both with a meter."
    return [Objection(CONTRADICTED, label, observation, way, facts) for label in labels]
