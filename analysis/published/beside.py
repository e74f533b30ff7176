"""Published figures beside a suite's, and whether they agree, by one set of rules."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

import polars as pl
from scipy.special import ndtr

from analysis.published.here import (
    MEDIA,
    Here,
    RunsHere,
    combined,
    joules_of,
    medium_of,
    of_seconds,
    plain_unit,
)
from analysis.published.likes import likes
from analysis.published.reference import Published, configurations
from analysis.stats.comparison import Comparison
from analysis.stats.stats import Estimate
from analysis.stats.summary import BlockValues, compare_pairs, estimate_of
from analysis.suite import records
from analysis.suite.records import SYSTEM, Suite
from contract.plan import Configuration

Word = Literal["agrees", "same direction", "opposite", "inconclusive"]
WORDS: tuple[Word, ...] = ("agrees", "same direction", "opposite", "inconclusive")
CLOSE = 1.25  # a ratio certainly within this factor of the published one agrees
NORMAL_95 = 1.959964
APART = 1.02  # two algorithms nearer than this are in no order
_SPOILT = re.compile(r"(^|[.;] )(value|copy): ")


def word(published: float, here: Comparison, half_log: float = 0.0) -> Word:
    """Return what a ratio says of the published one; both are of what is spent.

    `half_log`: half width of the published ratio's 95 % interval, as a logarithm. They agree where
    the 95 % interval of their quotient lies within `CLOSE` (an equivalence, shown); a direction is
    one that both are certain of.
    """
    if here.low is None or here.high is None or here.low <= 0:
        return "inconclusive"
    apart = math.log(here.ratio / published)
    low = apart - math.hypot(math.log(here.ratio / here.low), half_log)
    high = apart + math.hypot(math.log(here.high / here.ratio), half_log)
    if -math.log(CLOSE) <= low and high <= math.log(CLOSE):
        return "agrees"
    if here.low <= 1 <= here.high or abs(math.log(published)) <= half_log:
        return "inconclusive"
    return "same direction" if (here.ratio > 1) == (published > 1) else "opposite"


def by_chance(published: float, here: Comparison, half_log: float = 0.0) -> float:
    """Probability that a ratio with this interval would agree if nothing differed here at all."""
    if here.low is None or here.high is None or here.low <= 0:
        return 0.0
    half_width = math.log(here.high / here.low) / 2
    room, sigma = math.log(CLOSE) - math.hypot(half_width, half_log), half_width / NORMAL_95
    if room <= 0:
        return 0.0
    apart = -math.log(published)
    if sigma <= 0:
        return float(abs(apart) <= room)
    return float(ndtr((room - apart) / sigma) - ndtr((-room - apart) / sigma))


def spoilt(figure: Published) -> bool:
    """Whether the value itself is doubtful, and not only its unit or what stands around it.

    A lost decimal point is none where one reading alone fits.
    """
    return figure.fitting is None and figure.doubtful and bool(_SPOILT.search(figure.note))


def judged(row: Beside) -> Word | None:
    """Return the word on one figure.

    None where there is nothing to compare, or it counts for nothing.

    Ranks are held against each other by their order alone (`_order`): a ratio of them says nothing.
    """
    both = row.cost_ratios
    if both is None or min(both[0], both[1].ratio) <= 0 or row.here.combine == "rank":
        return None
    if spoilt(row.published) or (row.reference is not None and spoilt(row.reference)):
        return None
    return word(both[0], both[1], row.published_half_log)


@dataclass(frozen=True)
class Agreement:
    """Over rows: how many of each word, how many would agree by chance if nothing differed here,
    and pairs in the same order of all.
    """

    words: dict[Word, int]
    by_chance: float
    same_order: int
    pairs: int

    @property
    def ratios(self) -> int:
        return sum(self.words.values())


def agreement(rows: Sequence[Beside]) -> Agreement:
    """Of all figures of a paper, or of one of its places."""
    verdicts = [(row, judged(row)) for row in rows]
    counts = {w: sum(verdict == w for _, verdict in verdicts) for w in WORDS}
    known = [row for row, verdict in verdicts if verdict is not None]
    same, pairs = _order(rows)
    chances = [
        by_chance(*both, row.published_half_log)
        for row in known
        if (both := row.cost_ratios) is not None
    ]
    return Agreement(counts, sum(chances), same, pairs)


def _order(rows: Iterable[Beside]) -> tuple[int, int]:
    """Pairs of a group that are apart in both: in the same order, and in all."""
    groups: dict[tuple[object, ...], list[Beside]] = {}
    for row in rows:
        both = row.plain_values
        if both is not None and min(both) > 0 and not spoilt(row.published):
            groups.setdefault(row.group, []).append(row)
    pairs = [
        pair for same in groups.values() for pair in combinations(same, 2) if _face(same, *pair)
    ]
    agreements = [_same_order(a.plain_values, b.plain_values) for a, b in pairs]
    return agreements.count(True), len(agreements) - agreements.count(None)


def _face(group: Sequence[Beside], a: Beside, b: Beside) -> bool:
    """Whether two figures can be held against each other: of one entry of ours, or of two of which
    one has no figure of that kind itself.
    """
    if a.published is b.published:
        return a.entry == b.entry  # done in two ways
    if a.entry == b.entry:
        return True
    has = {(row.entry, id(row.published)) for row in group}
    return (a.entry, id(b.published)) not in has or (b.entry, id(a.published)) not in has


def _same_order(a: tuple[float, float] | None, b: tuple[float, float] | None) -> bool | None:
    """None where they are not apart in both."""
    if a is None or b is None:
        return None
    published, here = math.log(a[0] / b[0]), math.log(a[1] / b[1])
    if min(abs(published), abs(here)) <= math.log(APART):
        return None
    return (published > 0) == (here > 0)


PLAIN = ("plain", "none")


@dataclass(frozen=True)
class Beside:
    """A published figure and ours, in the paper's unit.

    `entry` is the entry of the suite, `configuration` its name of the storage stack. Within a group
    (all that is alike but for what is compared) the ratios are to its reference, `against`: the
    figure without encryption where there is one, else the first that both have. They are None on
    the reference itself. `plain_values` are the published figure and ours in plain units (s, B/s,
    operations/s), whatever unit the paper has. `joules` are ours for a unit (`joules_per`) of the
    same work. Sizes and machines differ, so only the ratios can be compared.
    """

    published: Published
    here: Here
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
        return (*group_of(self.published), self.here.note)

    @property
    def published_half_log(self) -> float:
        """Half width of the published ratio's 95 % interval as a logarithm, by the ± printed beside
        the two figures; 0 where none is.
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
        if self.here.numerator is None:
            return self.published_ratio, self.measured_ratio
        return 1 / self.published_ratio, self.measured_ratio.turned


@dataclass(frozen=True)
class _Ours:
    figure: Published
    here: Here
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


def beside(suite: Suite, energy: pl.DataFrame, figures: Sequence[Published]) -> list[Beside]:
    """Those of `figures` that the suite has, too."""
    runs = RunsHere(energy)
    ours = [one for figure in figures for one in _ours(suite, runs, figure)]
    groups: dict[tuple[object, ...], list[_Ours]] = {}
    for one in ours:
        groups.setdefault(group_of(one.figure), []).append(one)
    return [
        _beside(suite, energy, runs, one, _reference(one, same, figures))
        for same in groups.values()
        for one in same
    ]


def group_of(p: Published) -> tuple[object, ...]:
    """Return what a figure shares with those that it is compared with in its paper.

    A rate is one whatever amount it was taken from, and so is the time of a number of iterations.
    Where each cipher of a table processed an amount of its own, ours are the times of those.
    """
    own_amounts = (p.paper, p.entry) == ("verma", "table-ii")
    size = None if own_amounts or p.quantity in ("throughput", "speed") else p.size_bytes
    device = "" if p.configuration else p.device  # the drive that encrypts is another
    return (
        *(p.paper, p.entry, p.place, p.workload, p.phase, p.quantity, plain_unit(p.unit)[1]),
        *(p.operation, p.file_type, size, p.block_bytes, p.pattern, device, p.machine),
    )


def configuration_here(suite: Suite, name: str, medium: str = "") -> str | None:
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
        if stack.kind == wanted.kind
        and (wanted.kind != "external" or wanted.product in stack.name)
        and (not wanted.cipher or _cipher(stack) == wanted.cipher)
        and (not wanted.key_bits or stack.settings.get("key_bits") == wanted.key_bits)
    ]
    return name if name in alike else next(iter(alike), None)


def _cipher(stack: Configuration) -> str:
    """Return the cipher without its mode; a cascade of TrueCrypt stays what it is."""
    cipher = str(stack.settings.get("cipher") or "")
    return cipher if stack.kind == "tcrypt" else cipher.split("-", maxsplit=1)[0]


def _ours(suite: Suite, runs: RunsHere, figure: Published) -> Iterator[_Ours]:
    for here in likes(figure):
        if here.several or here.versus:
            if (combination := _put_together(suite, runs, figure, here)) is not None:
                entry, configuration, values = combination
                put = {block: here.put(value) for block, value in values.items()}
                ratio = values if here.stated(figure.usable) is not None else {}
                yield _Ours(figure, here, entry, configuration, put, ratio)
            continue
        for entry, configuration in _nearest(suite, runs, figure, here):
            values = runs.values(entry, configuration, here, here.column)
            has_phase = (
                runs.values(name, stack, here, "duration_s")
                for name, stack in runs.by
                if name == entry
            )
            if values or (figure.workload and any(has_phase)):
                values_in_unit = of_seconds(here, values)
                yield _Ours(figure, here, entry, configuration, values_in_unit)


def _put_together(
    suite: Suite, runs: RunsHere, figure: Published, here: Here
) -> tuple[str, str, BlockValues] | None:
    """Entry, configuration and values of what is put together, or is held against another: then
    they are ratios to it, or differences. Parts that are not here are left out, of ranks none.
    """
    if here.several:
        all_of_them = [_put_together(suite, runs, figure, each) for each in here.several]
        available = [one for one in all_of_them if one is not None]
        if not available or (here.combine == "rank" and None in all_of_them):
            return None
        values = combined(here.combine, [values for *_, values in available])
        return (*available[0][:2], values) if values else None
    places = _nearest(suite, runs, figure, here)
    if not places:
        return None
    values = of_seconds(here, runs.values(*places[0], here, here.column))
    if here.versus is not None:
        base = _put_together(suite, runs, figure, here.versus)
        both = values.keys() & base[2].keys() if base is not None else set()
        sides = {block: (values[block], base[2][block]) for block in both} if base else {}
        if here.says == "apart":
            values = {block: one - other for block, (one, other) in sides.items()}
        else:
            values = {block: one / other for block, (one, other) in sides.items() if other > 0}
    return (*places[0], values) if values else None


def _nearest(suite: Suite, runs: RunsHere, figure: Published, here: Here) -> list[tuple[str, str]]:
    """Return the entries that have the figure's size, or else those that come nearest to it."""
    entries = [name for name in suite.workloads if suite.workload_of(name) == here.workload]
    if figure.workload and here.workload in entries:  # a paper that names it means that alone
        entries = [here.workload]
    candidates = [
        (entry, configuration)
        for entry in entries
        if (configuration := _where(suite, runs, entry, here, figure)) is not None
    ]
    with_values = [one for one in candidates if runs.values(*one, here, "duration_s")]
    if not with_values:
        return candidates
    far = {one: runs.distance(*one, here) for one in with_values}
    return [one for one in with_values if far[one] <= min(far.values())]


def _where(suite: Suite, runs: RunsHere, entry: str, here: Here, figure: Published) -> str | None:
    """Return the configuration of a figure.

    Of one without, the first that has runs of the entry.
    """
    if here.configuration:
        return configuration_here(suite, here.configuration, here.medium or medium_of(figure))
    order = [suite.baseline or "", *suite.configurations]
    return next((name for name in order if (entry, name) in runs.by), None)


def _reference(one: _Ours, same: Sequence[_Ours], figures: Sequence[Published]) -> _Ours | None:
    """Return what a figure of ours is a ratio to: plain, where the paper has it; else the first.

    Of several entries of ours its own goes first: AES without its instructions has no other cipher
    beside it, and is a ratio to those of the entry that has.
    """
    if one.here.says:  # the paper prints the ratio itself, or a difference
        return None
    group = group_of(one.figure)
    alike = [o for o in same if o.here.note == one.here.note] or list(same)
    if any(_plain(figure) for figure in figures if group_of(figure) == group):
        first = next((o.figure for o in [*alike, *same] if _plain(o.figure)), None)
        alike = [*alike, *same]
    else:
        first = alike[0].figure
    of_first = [o for o in alike if o.figure is first]
    nearest = [o for o in of_first if (o.entry, o.here.member) == (one.entry, one.here.member)]
    nearest += [o for o in of_first if o.entry == one.entry]
    return next(iter([*nearest, *of_first]), None)


def _plain(figure: Published) -> bool:
    return figure.subject in PLAIN or figure.configuration == "plain"


def _beside(
    suite: Suite, energy: pl.DataFrame, runs: RunsHere, one: _Ours, reference: _Ours | None
) -> Beside:
    figure, here = one.figure, one.here
    is_reference = one is reference
    ratio = None
    if reference is not None and not is_reference:
        ratio = compare_pairs(suite, reference.plain, one.plain)
    base = reference.plain_figure if reference is not None else 0.0
    published_ratio = None if is_reference or not base else one.plain_figure / base
    if one.ratio:
        published_ratio = here.stated(figure.usable)
        ratio = compare_pairs(suite, dict.fromkeys(one.ratio, 1.0), one.ratio)
    mean = estimate_of(one.plain)
    against = "" if reference is None else reference.here.member
    if (versus := here.singles[0].versus) is not None:
        against = versus.configuration or versus.member
    asked, per = joules_of(here)
    joules = estimate_of(runs.values(one.entry, one.configuration, asked, "energy_j"))
    if not runs.system:  # joules of another component are not the system's
        joules, per = None, ""
    if here.says or len({single.configuration for single in here.singles}) > 1:
        joules = None  # a ratio has none, and those of several configurations are no one's
    return Beside(
        published=figure,
        here=here,
        entry=one.entry,
        configuration=one.configuration,
        is_baseline=is_reference,
        against=against,
        reference=None if reference is None else reference.figure,
        published_ratio=published_ratio,
        measured=estimate_of(one.values),
        measured_ratio=ratio,
        plain_values=(one.plain_figure, mean.mean) if mean and not here.says else None,
        joules=joules,
        joules_per=per,
        stands_in=runs.stands_in(one.entry, one.configuration, here),
        origin=_origin(energy, one),
    )


def _origin(energy: pl.DataFrame, one: _Ours) -> str:
    """Durations are measured even where joules are modelled, but not where no machine ran."""
    rows = energy.filter(workload=one.entry)
    if one.here.column != "duration_s":
        return records.joint(rows.filter(component=SYSTEM)["origin"].unique())
    origins = set(rows["origin"].unique())
    return records.SYNTHETIC if records.SYNTHETIC in origins else records.MEASURED
