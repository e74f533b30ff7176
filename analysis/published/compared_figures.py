"""Compare published figures with a suite's, in the paper's unit, and judge their agreement."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import polars as pl

from analysis.published.conditions import MEDIA, Compared, differences
from analysis.published.counterparts import (
    RATES,
    Counterpart,
    OurRuns,
    combined,
    counterparts,
    for_joules,
    in_paper_unit,
    medium_of,
    plain_unit,
)
from analysis.published.reference import Published, configurations
from analysis.stats.comparison import Comparison
from analysis.stats.summary import BlockValues, compare_pairs, estimate_of
from analysis.suite import records
from analysis.suite.records import SYSTEM, Suite
from contract.estimates import Estimate

PLAIN = ("plain", "none")


@dataclass(frozen=True)
class ComparedFigure:
    """A published figure and ours, in the paper's unit.

    `entry` and `configuration` are the suite's. The ratios within a group of comparable figures
    are to its reference, `against`: the figure without encryption if there is one, else the first
    that both have. They are None on the reference itself. `joules` are ours for a unit
    (`joules_per`) of the same work. Machines differ, so only the ratios can be compared. `differs`
    has the conditions that differ here; `stands_in` the sizes of ours that replace the paper's, and
    `scales` whether the paper's own figures are in proportion to them.
    """

    published: Published
    counterpart: Counterpart
    entry: str
    configuration: str
    is_baseline: bool
    against: str
    reference: Published | None
    published_ratio: float | None
    measured: Estimate | None
    measured_ratio: Comparison | None
    joules: Estimate | None
    joules_per: str
    stands_in: tuple[int, ...]
    scales: bool
    differs: tuple[str, ...]
    origin: str

    @property
    def comparable(self) -> bool:
        """Whether ours was measured under the paper's conditions, as far as both are recorded."""
        return not self.differs and (not self.stands_in or self.scales)

    @property
    def published_half_log(self) -> float:
        """Half width of the published ratio's 95 % interval as a logarithm.

        It is from the ± printed with the two figures; 0 if there is none.
        """
        shares = [
            (figure.half_width or 0.0) / figure.usable
            for figure in (self.published, self.reference)
            if figure is not None and figure.usable > 0
        ]
        return math.hypot(*shares)

    @property
    def cost_ratios(self) -> tuple[float, Comparison] | None:
        """The published ratio and ours, of time or joules, so that above 1 is always dearer."""
        if self.published_ratio is None or self.measured_ratio is None or not self.published_ratio:
            return None
        if self.counterpart.numerator is None:
            return self.published_ratio, self.measured_ratio
        return 1 / self.published_ratio, self.measured_ratio.inverted


@dataclass(frozen=True)
class _Ours:
    """A published figure, its counterpart, and the values of our runs by block."""

    figure: Published
    counterpart: Counterpart
    entry: str
    configuration: str
    values: BlockValues
    ratio: BlockValues = field(default_factory=dict)
    scales: bool = False

    @property
    def plain(self) -> BlockValues:
        factor, _ = plain_unit(self.figure.unit)
        return {block: value * factor for block, value in self.values.items()}

    @property
    def plain_figure(self) -> float:
        return self.figure.usable * plain_unit(self.figure.unit)[0]


def compare_figures(
    suite: Suite, energy: pl.DataFrame, figures: Sequence[Published]
) -> list[ComparedFigure]:
    """Compare those of `figures` that have a counterpart in the suite."""
    runs = OurRuns(energy)
    ours = [
        replace(mine, scales=_scales(figure, figures))
        for figure in figures
        for mine in _ours(suite, runs, figure)
    ]
    groups: dict[tuple[object, ...], list[_Ours]] = {}
    for mine in ours:
        groups.setdefault(group_of(mine.figure), []).append(mine)
    return [
        _compare(suite, energy, runs, mine, _reference(mine, same, figures))
        for same in groups.values()
        for mine in same
    ]


def group_of(p: Published) -> tuple[object, ...]:
    """Return the properties that a figure shares with those it is compared with in its paper.

    In Verma's table II each cipher processed another amount, so that the size is not one of them.
    """
    size = None if (p.paper, p.entry) == ("verma", "table-ii") else p.size_bytes
    device = "" if p.configuration else p.device  # the drive that encrypts is another
    return (
        *(p.paper, p.entry, p.place, p.workload, p.phase, p.quantity, plain_unit(p.unit)[1]),
        *(p.operation, p.file_type, size, p.block_bytes, p.pattern, device, p.machine),
    )


def find_configuration(suite: Suite, name: str, medium: str = "") -> str | None:
    """Return the suite's configuration that is equal to `name` of the reference tables, or None.

    One of the same name precedes others of the same kind, cipher and key, and among these the
    same program or format. If the suite's disks are named after their kind (`MEDIA`), it must be on
    the disk of the paper's `medium`.
    """
    theirs = configurations().get(name)
    if theirs is None:
        return None
    stacks = list(suite.stacks.values())
    if medium and any(stack.disk in MEDIA for stack in stacks):
        stacks = [stack for stack in stacks if stack.disk == medium]
    elif theirs.kind == "plain":
        return suite.baseline
    alike = [
        stack.name
        for stack in stacks
        for cipher in [str(stack.settings.get("cipher") or "")]  # without its mode; not a cascade
        if stack.kind == theirs.kind
        and (theirs.kind != "external" or theirs.product in stack.name)
        and theirs.cipher in ("", cipher if stack.kind == "tcrypt" else cipher.partition("-")[0])
        and (not theirs.key_bits or stack.settings.get("key_bits") == theirs.key_bits)
    ]
    alike.sort(key=lambda other: suite.stacks[other].settings.get("volume") != theirs.product)
    return name if name in alike else next(iter(alike), None)


def _ours(suite: Suite, runs: OurRuns, figure: Published) -> Iterator[_Ours]:
    for counterpart in counterparts(figure):
        if counterpart.several or counterpart.versus:
            if (combination := _combine(suite, runs, figure, counterpart)) is not None:
                entry, configuration, values = combination
                phrased = {block: counterpart.phrased(value) for block, value in values.items()}
                ratio = values if counterpart.stated_ratio(figure.usable) is not None else {}
                yield _Ours(figure, counterpart, entry, configuration, phrased, ratio)
            continue
        for entry, configuration in _nearest(suite, runs, figure, counterpart):
            values = runs.values(entry, configuration, counterpart, counterpart.column)
            stacks = [stack for name, stack in runs.by if name == entry]
            if values or (
                figure.workload
                and any(runs.values(entry, stack, counterpart, "duration_s") for stack in stacks)
            ):
                yield _Ours(
                    figure, counterpart, entry, configuration, in_paper_unit(counterpart, values)
                )


def _combine(
    suite: Suite, runs: OurRuns, figure: Published, counterpart: Counterpart
) -> tuple[str, str, BlockValues] | None:
    """Return entry, configuration and values of a combination, compared if it has `against`.

    Parts without runs are left out; a rank needs all parts.
    """
    if counterpart.several:
        parts = [_combine(suite, runs, figure, single) for single in counterpart.several]
        available = [part for part in parts if part is not None]
        if not available or (counterpart.combine == "rank" and None in parts):
            return None
        values = combined(counterpart.combine, [values for *_, values in available])
        return (*available[0][:2], values) if values else None
    places = _nearest(suite, runs, figure, counterpart)
    if not places:
        return None
    values = in_paper_unit(counterpart, runs.values(*places[0], counterpart, counterpart.column))
    if counterpart.versus is not None:
        base = _combine(suite, runs, figure, counterpart.versus)
        others: BlockValues = base[2] if base else {}
        blocks = values.keys() & others.keys()
        if counterpart.says == "apart":
            values = {block: values[block] - others[block] for block in blocks}
        else:
            values = {b: values[b] / others[b] for b in blocks if others[b] > 0}
    return (*places[0], values) if values else None


def _nearest(
    suite: Suite, runs: OurRuns, figure: Published, counterpart: Counterpart
) -> list[tuple[str, str]]:
    """Return entries and configurations of the figure's size, else those nearest to it."""
    entries = [name for name in suite.workloads if suite.workload_of(name) == counterpart.workload]
    if figure.workload and counterpart.workload in entries:  # a paper that names it means only that
        entries = [counterpart.workload]
    order = [suite.baseline or "", *suite.configurations]
    if counterpart.configuration:
        medium = counterpart.medium or medium_of(figure)
        name = find_configuration(suite, counterpart.configuration, medium)
        if name is None:
            return []
        candidates = [(entry, name) for entry in entries]
    else:
        measured = ((e, next((n for n in order if (e, n) in runs.by), "")) for e in entries)
        candidates = [(entry, name) for entry, name in measured if name]
    distances = {
        cell: runs.distance(*cell, counterpart)
        for cell in candidates
        if runs.values(*cell, counterpart, "duration_s")
    }
    if not distances:
        return candidates
    return [cell for cell, distance in distances.items() if distance <= min(distances.values())]


def _reference(mine: _Ours, same: Sequence[_Ours], figures: Sequence[Published]) -> _Ours | None:
    """Return the base of a figure's ratio: plain if the paper has it, else the first figure.

    A base of the same entry is preferred. AES without its instructions has no other cipher in its
    entry, so its base is in another.
    """
    if mine.counterpart.says:  # the paper prints the ratio itself, or a difference
        return None
    group = group_of(mine.figure)
    alike = [o for o in same if o.counterpart.note == mine.counterpart.note] or list(same)
    if any(_plain(figure) for figure in figures if group_of(figure) == group):
        first = next((o.figure for o in [*alike, *same] if _plain(o.figure)), None)
        alike = [*alike, *same]
    else:
        first = alike[0].figure
    of_first = [o for o in alike if o.figure is first]
    nearest = [
        o
        for o in of_first
        if (o.entry, o.counterpart.member) == (mine.entry, mine.counterpart.member)
    ]
    nearest += [o for o in of_first if o.entry == mine.entry]
    return next(iter([*nearest, *of_first]), None)


def _plain(figure: Published) -> bool:
    return figure.subject in PLAIN or figure.configuration == "plain"


def _compare(
    suite: Suite, energy: pl.DataFrame, runs: OurRuns, mine: _Ours, reference: _Ours | None
) -> ComparedFigure:
    figure, counterpart = mine.figure, mine.counterpart
    is_reference = mine is reference
    ratio = None
    if reference is not None and not is_reference:
        ratio = compare_pairs(suite, reference.plain, mine.plain)
    base = reference.plain_figure if reference is not None else 0.0
    published_ratio = None if is_reference or not base else mine.plain_figure / base
    if mine.ratio:
        published_ratio = counterpart.stated_ratio(figure.usable)
        ratio = compare_pairs(suite, dict.fromkeys(mine.ratio, 1.0), mine.ratio)
    against = "" if reference is None else reference.counterpart.member
    against = counterpart.singles[0].against or against
    asked, per = for_joules(counterpart)
    joules = estimate_of(runs.values(mine.entry, mine.configuration, asked, "energy_j"))
    if not runs.system:  # joules of another component are not the system's
        joules, per = None, ""
    if counterpart.says or len({single.configuration for single in counterpart.singles}) > 1:
        joules = None  # neither a ratio nor a mix of configurations has joules
    # Durations are measured even where joules are modelled, but not where no machine ran.
    rows = energy.filter(workload=mine.entry)
    if counterpart.column != "duration_s":
        origin = records.worst_origin(rows.filter(component=SYSTEM)["origin"].unique())
    else:
        synthetic = records.SYNTHETIC in set(rows["origin"].unique())
        origin = records.SYNTHETIC if synthetic else records.MEASURED
    return ComparedFigure(
        published=figure,
        counterpart=counterpart,
        entry=mine.entry,
        configuration=mine.configuration,
        is_baseline=is_reference,
        against=against,
        reference=None if reference is None else reference.figure,
        published_ratio=published_ratio,
        measured=estimate_of(mine.values),
        measured_ratio=ratio,
        joules=joules,
        joules_per=per,
        stands_in=runs.stands_in(mine.entry, mine.configuration, counterpart),
        scales=mine.scales and (reference is None or reference.scales),
        differs=_differences(suite, mine, reference),
        origin=origin,
    )


def _differences(suite: Suite, mine: _Ours, reference: _Ours | None) -> tuple[str, ...]:
    """Return how the conditions of ours, and of what it is compared with, differ from theirs."""
    sides = [side for side in (mine, reference) if side is not None]
    singles = [(side, single) for side in sides for single in side.counterpart.singles]
    singles += [(side, single.versus) for side, single in singles if single.versus is not None]
    names, media = {}, {}
    for side, single in singles:
        medium = single.medium or medium_of(side.figure)
        name = find_configuration(suite, single.configuration, medium) or side.configuration
        names[single.configuration] = name
        media[name] = medium
    phases = [part.phase for _, single in singles for part in single.parts]
    workload = mine.counterpart.workload
    compared = Compared(workload, mine.entry, phases, names, media, {})
    return differences(suite, mine.figure.paper, compared)


def _scales(figure: Published, figures: Sequence[Published]) -> bool:
    """Return whether the paper's figures of this kind are in proportion to their sizes.

    Then each amount of work has the same cost, within `CLOSE`, at two sizes or more.
    """
    costs = {
        size: other.usable if other.unit in RATES else other.usable / size
        for other in figures
        if _but_size(other) == _but_size(figure) and not is_spoilt(other)
        for size in [other.iterations or other.block_bytes or other.size_bytes]
        if size
    }
    return len(costs) > 1 and max(costs.values()) <= CLOSE * min(costs.values())


def _but_size(p: Published) -> tuple[object, ...]:
    """Return what figures of several sizes have in common."""
    return (p.paper, p.subject, p.operation, p.file_type, p.mode, p.quantity, p.device, p.machine)


Verdict = Literal["agrees", "same direction", "opposite", "inconclusive"]
VERDICTS: tuple[Verdict, ...] = ("agrees", "same direction", "opposite", "inconclusive")
CLOSE = 1.25  # a ratio certainly within this factor of the published one agrees
_SPOILT = re.compile(r"(^|[.;] )(value|copy): ")


def verdict_on_ratio(published: float, measured: Comparison, half_log: float = 0.0) -> Verdict:
    """Return how a ratio agrees with the published one; both are of time or joules.

    `half_log`: half width of the published ratio's 95 % interval, as a logarithm. They agree if
    the 95 % interval of their quotient is within `CLOSE` (equivalence); a direction counts if both
    are certain of it.
    """
    if measured.low is None or measured.high is None or measured.low <= 0:
        return "inconclusive"
    if not measured.complete:
        return "inconclusive"
    apart = math.log(measured.ratio / published)
    low = apart - math.hypot(math.log(measured.ratio / measured.low), half_log)
    high = apart + math.hypot(math.log(measured.high / measured.ratio), half_log)
    if -math.log(CLOSE) <= low and high <= math.log(CLOSE):
        return "agrees"
    if measured.low <= 1 <= measured.high or abs(math.log(published)) <= half_log:
        return "inconclusive"
    return "same direction" if (measured.ratio > 1) == (published > 1) else "opposite"


def is_spoilt(figure: Published) -> bool:
    """Return whether the value itself is doubtful, and not only its unit or context.

    A lost decimal point is no doubt if only one reading fits.
    """
    return figure.fitting is None and figure.doubtful and bool(_SPOILT.search(figure.note))


def verdict_on(row: ComparedFigure) -> Verdict | None:
    """Return the verdict on one figure; None if it cannot be compared, or does not count.

    Nor has a rank one, as the ratio of two has no meaning.
    """
    ratios = row.cost_ratios
    if (
        not row.comparable
        or ratios is None
        or min(ratios[0], ratios[1].ratio) <= 0
        or row.counterpart.combine == "rank"
    ):
        return None
    if is_spoilt(row.published) or (row.reference is not None and is_spoilt(row.reference)):
        return None
    return verdict_on_ratio(*ratios, row.published_half_log)


def count_verdicts(rows: Sequence[ComparedFigure]) -> dict[Verdict, int]:
    """Count the verdicts on figures of a paper, or of one of its places."""
    counts = Counter(map(verdict_on, rows))
    return {verdict: counts[verdict] for verdict in VERDICTS}
