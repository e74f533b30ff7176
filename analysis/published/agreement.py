"""Whether a suite's ratios agree with published ones, by one set of rules."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from scipy.special import ndtr

from analysis.published.compared_figures import ComparedFigure
from analysis.published.reference import Published
from analysis.stats.comparison import Comparison

Verdict = Literal["agrees", "same direction", "opposite", "inconclusive"]
VERDICTS: tuple[Verdict, ...] = ("agrees", "same direction", "opposite", "inconclusive")
CLOSE = 1.25  # a ratio certainly within this factor of the published one agrees
NORMAL_95 = 1.959964
APART = 1.02  # two algorithms nearer than this are in no order
_SPOILT = re.compile(r"(^|[.;] )(value|copy): ")


def verdict_on_ratio(published: float, measured: Comparison, half_log: float = 0.0) -> Verdict:
    """Return how a ratio agrees with the published one; both are of what is spent.

    `half_log`: half width of the published ratio's 95 % interval, as a logarithm. They agree where
    the 95 % interval of their quotient lies within `CLOSE` (an equivalence, shown); a direction is
    one that both are certain of.
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


def chance_of_agreement(published: float, measured: Comparison, half_log: float = 0.0) -> float:
    """Probability that a ratio with this interval would agree if nothing differed here at all."""
    if measured.low is None or measured.high is None or measured.low <= 0:
        return 0.0
    half_width = math.log(measured.high / measured.low) / 2
    room, sigma = math.log(CLOSE) - math.hypot(half_width, half_log), half_width / NORMAL_95
    if room <= 0:
        return 0.0
    apart = -math.log(published)
    if sigma <= 0:
        return float(abs(apart) <= room)
    return float(ndtr((room - apart) / sigma) - ndtr((-room - apart) / sigma))


def is_spoilt(figure: Published) -> bool:
    """Whether the value itself is doubtful, and not only its unit or what stands around it.

    A lost decimal point is none where one reading alone fits.
    """
    return figure.fitting is None and figure.doubtful and bool(_SPOILT.search(figure.note))


def verdict_on(row: ComparedFigure) -> Verdict | None:
    """Return the word on one figure.

    None where there is nothing to compare, or it counts for nothing.

    Ranks are held against each other by their order alone (`_order`): their ratio means nothing.
    """
    both = row.cost_ratios
    if both is None or min(both[0], both[1].ratio) <= 0 or row.counterpart.combine == "rank":
        return None
    if is_spoilt(row.published) or (row.reference is not None and is_spoilt(row.reference)):
        return None
    return verdict_on_ratio(both[0], both[1], row.published_half_log)


@dataclass(frozen=True)
class Agreement:
    """Counts over rows: each word, chance agreement, and pairs in the same order of all."""

    words: dict[Verdict, int]
    by_chance: float
    same_order: int
    pairs: int

    @property
    def ratios(self) -> int:
        return sum(self.words.values())


def count_agreement(rows: Sequence[ComparedFigure]) -> Agreement:
    """Of all figures of a paper, or of one of its places."""
    verdicts = [(row, verdict_on(row)) for row in rows]
    counts = {w: sum(verdict == w for _, verdict in verdicts) for w in VERDICTS}
    known = [row for row, verdict in verdicts if verdict is not None]
    same, pairs = _order(rows)
    chances = [
        chance_of_agreement(*both, row.published_half_log)
        for row in known
        if (both := row.cost_ratios) is not None
    ]
    return Agreement(counts, sum(chances), same, pairs)


def _order(rows: Iterable[ComparedFigure]) -> tuple[int, int]:
    """Pairs of a group that are apart in both: in the same order, and in all."""
    groups: dict[tuple[object, ...], list[ComparedFigure]] = {}
    for row in rows:
        both = row.plain_values
        if both is not None and min(both) > 0 and not is_spoilt(row.published):
            groups.setdefault(row.group, []).append(row)
    pairs = [
        pair for same in groups.values() for pair in combinations(same, 2) if _face(same, *pair)
    ]
    agreements = [_same_order(a.plain_values, b.plain_values) for a, b in pairs]
    return agreements.count(True), len(agreements) - agreements.count(None)


def _face(group: Sequence[ComparedFigure], a: ComparedFigure, b: ComparedFigure) -> bool:
    """Return whether two figures are of one entry of ours, or one has no figure itself."""
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
    published, measured = math.log(a[0] / b[0]), math.log(a[1] / b[1])
    if min(abs(published), abs(measured)) <= math.log(APART):
        return None
    return (published > 0) == (measured > 0)
