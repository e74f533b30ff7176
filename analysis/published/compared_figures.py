"""Published figures beside a suite's own, in the paper's unit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import polars as pl

from analysis.published.counterparts import MEDIA, Counterpart, counterparts, medium_of, plain_unit
from analysis.published.our_runs import OurRuns, combined, for_joules, in_paper_unit
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

    `entry` is the entry of the suite, `configuration` its name of the storage stack. Within a group
    (all that is alike but for what is compared) the ratios are to its reference, `against`: the
    figure without encryption where there is one, else the first that both have. They are None on
    the reference itself. `plain_values` are the published figure and ours in plain units (s, B/s,
    operations/s), whatever unit the paper has. `joules` are ours for a unit (`joules_per`) of the
    same work. Sizes and machines differ, so only the ratios can be compared.
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
    plain_values: tuple[float, float] | None
    joules: Estimate | None
    joules_per: str
    stands_in: tuple[int, ...]
    origin: str

    @property
    def group(self) -> tuple[object, ...]:
        return (*group_of(self.published), self.counterpart.note)

    @property
    def published_half_log(self) -> float:
        """Return the half width of the published ratio's 95 % interval as a logarithm.

        By the ± printed beside the two figures; 0 where none is.
        """
        shares = [
            (figure.half_width or 0.0) / figure.usable
            for figure in (self.published, self.reference)
            if figure is not None and figure.usable > 0
        ]
        return math.hypot(*shares)

    @property
    def cost_ratios(self) -> tuple[float, Comparison] | None:
        """Both ratios of what is spent (time or joules), so that above 1 is always dearer."""
        if self.published_ratio is None or self.measured_ratio is None or not self.published_ratio:
            return None
        if self.counterpart.numerator is None:
            return self.published_ratio, self.measured_ratio
        return 1 / self.published_ratio, self.measured_ratio.turned


@dataclass(frozen=True)
class _Ours:
    """A published figure, its counterpart, and the values of our runs by block."""

    figure: Published
    counterpart: Counterpart
    entry: str
    configuration: str
    values: BlockValues
    ratio: BlockValues = field(default_factory=dict)

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
    ours = [mine for figure in figures for mine in _ours(suite, runs, figure)]
    groups: dict[tuple[object, ...], list[_Ours]] = {}
    for mine in ours:
        groups.setdefault(group_of(mine.figure), []).append(mine)
    return [
        _compare(suite, energy, runs, mine, _reference(mine, same, figures))
        for same in groups.values()
        for mine in same
    ]


def group_of(p: Published) -> tuple[object, ...]:
    """Return what a figure shares with those that it is compared with in its paper.

    The time of a number of iterations is one whatever that number. Where each cipher of a table
    processed another amount, ours are the times of those.
    """
    size = None if (p.paper, p.entry) == ("verma", "table-ii") else p.size_bytes
    device = "" if p.configuration else p.device  # the drive that encrypts is another
    return (
        *(p.paper, p.entry, p.place, p.workload, p.phase, p.quantity, plain_unit(p.unit)[1]),
        *(p.operation, p.file_type, size, p.block_bytes, p.pattern, device, p.machine),
    )


def find_configuration(suite: Suite, name: str, medium: str = "") -> str | None:
    """Return the suite's configuration that is the same as `name` of the reference tables, or None.

    One of the same name goes before others of the same kind, cipher and key. Where the suite's
    disks are called after what they are (`MEDIA`), it is one on the disk of the paper's `medium`.
    """
    wanted = configurations().get(name)
    if wanted is None:
        return None
    stacks = list(suite.stacks.values())
    if medium and any(stack.disk in MEDIA for stack in stacks):
        stacks = [stack for stack in stacks if stack.disk == medium]
    elif wanted.kind == "plain":
        return suite.baseline
    alike = [
        stack.name
        for stack in stacks
        for cipher in [str(stack.settings.get("cipher") or "")]  # without its mode; not a cascade
        if stack.kind == wanted.kind
        and (wanted.kind != "external" or wanted.product in stack.name)
        and wanted.cipher in ("", cipher if stack.kind == "tcrypt" else cipher.partition("-")[0])
        and (not wanted.key_bits or stack.settings.get("key_bits") == wanted.key_bits)
    ]
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

    Parts without runs are left out, of ranks none.
    """
    if counterpart.several:
        all_of_them = [_combine(suite, runs, figure, each) for each in counterpart.several]
        available = [mine for mine in all_of_them if mine is not None]
        if not available or (counterpart.combine == "rank" and None in all_of_them):
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
        both = values.keys() & others.keys()
        if counterpart.says == "apart":
            values = {block: values[block] - others[block] for block in both}
        else:
            values = {b: values[b] / others[b] for b in both if others[b] > 0}
    return (*places[0], values) if values else None


def _nearest(
    suite: Suite, runs: OurRuns, figure: Published, counterpart: Counterpart
) -> list[tuple[str, str]]:
    """Return the entries that have the figure's size, or else those that come nearest to it."""
    entries = [name for name in suite.workloads if suite.workload_of(name) == counterpart.workload]
    if (
        figure.workload and counterpart.workload in entries
    ):  # a paper that names it means that alone
        entries = [counterpart.workload]
    wanted = None
    if counterpart.configuration:
        medium = counterpart.medium or medium_of(figure)
        wanted = find_configuration(suite, counterpart.configuration, medium)
        if wanted is None:
            return []
    order = [wanted] if wanted else [suite.baseline or "", *suite.configurations]
    made = ([name for name in order if wanted or (entry, name) in runs.by] for entry in entries)
    candidates = [(entry, names[0]) for entry, names in zip(entries, made, strict=True) if names]
    with_values = [mine for mine in candidates if runs.values(*mine, counterpart, "duration_s")]
    if not with_values:
        return candidates
    far = {mine: runs.distance(*mine, counterpart) for mine in with_values}
    return [mine for mine in with_values if far[mine] <= min(far.values())]


def _reference(mine: _Ours, same: Sequence[_Ours], figures: Sequence[Published]) -> _Ours | None:
    """Return what a figure of ours is a ratio to: plain, where the paper has it; else the first.

    Of several entries of ours its own goes first: AES without its instructions has no other cipher
    beside it, and is a ratio to those of the entry that has.
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
    mean = estimate_of(mine.plain)
    against = "" if reference is None else reference.counterpart.member
    against = counterpart.singles[0].against or against
    asked, per = for_joules(counterpart)
    joules = estimate_of(runs.values(mine.entry, mine.configuration, asked, "energy_j"))
    if not runs.system:  # joules of another component are not the system's
        joules, per = None, ""
    if counterpart.says or len({single.configuration for single in counterpart.singles}) > 1:
        joules = None  # a ratio has none, and those of several configurations are no one's
    # Durations are measured even where joules are modelled, but not where no machine ran.
    rows = energy.filter(workload=mine.entry)
    if counterpart.column != "duration_s":
        origin = records.joint(rows.filter(component=SYSTEM)["origin"].unique())
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
        plain_values=(mine.plain_figure, mean.mean) if mean and not counterpart.says else None,
        joules=joules,
        joules_per=per,
        stands_in=runs.stands_in(mine.entry, mine.configuration, counterpart),
        origin=origin,
    )
