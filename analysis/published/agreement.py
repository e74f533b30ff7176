"""Whether ours agrees with what was published, by rules that are the same for every figure.

What is compared are ratios of what is spent (time or joules) within a group of the paper's figures:
to the figure without encryption, else to the first algorithm. Figures whose value is doubtful count
for nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from analysis.published.beside import Beside
from analysis.published.reference import Published
from analysis.stats.stats import Comparison

Word = Literal["agrees", "same way, less", "same way, more", "other way", "not settled"]
WORDS: tuple[Word, ...] = (
    *("agrees", "same way, less", "same way, more"),
    *("other way", "not settled"),
)
CLOSE = 1.25  # a ratio within this factor of the published one agrees
APART = 1.02  # two algorithms nearer than this are in no order
_SPOILT = re.compile(r"(^|[.;] )(value|copy): ")


def word(published: float, here: Comparison) -> Word:
    """What a ratio says of the published one; both are of what is spent."""
    inside = here.low is not None and here.high is not None and here.low <= published <= here.high
    if inside or abs(math.log(here.ratio / published)) <= math.log(CLOSE):
        return "agrees"
    sure = here.low is not None and here.high is not None and not here.low <= 1 <= here.high
    if not sure:
        return "not settled"
    if (here.ratio > 1) != (published > 1):
        return "other way"
    more = abs(math.log(here.ratio)) > abs(math.log(published))
    return "same way, more" if more else "same way, less"


def spoilt(figure: Published) -> bool:
    """Whether the value itself is doubtful, and not only its unit or what stands around it."""
    return figure.doubtful and bool(_SPOILT.search(figure.note))


def judged(row: Beside) -> Word | None:
    """The word on one figure; None where there is nothing to compare, or it counts for nothing."""
    both = row.cost_ratios
    if both is None or min(both[0], both[1].ratio) <= 0:
        return None
    if spoilt(row.published) or (row.reference is not None and spoilt(row.reference)):
        return None
    return word(both[0], both[1])


@dataclass(frozen=True)
class Agreement:
    """Over rows: how many of each word, pairs in the same order of all, and the furthest apart."""

    words: dict[Word, int]
    same_order: int
    pairs: int
    furthest: Beside | None

    @property
    def ratios(self) -> int:
        return sum(self.words.values())


def agreement(rows: Sequence[Beside]) -> Agreement:
    """Of all figures of a paper, or of one of its places."""
    said = [(row, judged(row)) for row in rows]
    counts = {w: sum(found == w for _, found in said) for w in WORDS}
    known = [row for row, found in said if found is not None]
    same, pairs = _order(rows)
    return Agreement(counts, same, pairs, max(known, key=_distance, default=None))


def _distance(row: Beside) -> float:
    both = row.cost_ratios
    return abs(math.log(both[1].ratio / both[0])) if both else 0.0


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
    told = [_same_order(a.plain_values, b.plain_values) for a, b in pairs]
    return told.count(True), len(told) - told.count(None)


def _face(group: Sequence[Beside], a: Beside, b: Beside) -> bool:
    """Whether two figures can be held against each other: of one entry of ours, or of two of which
    one has no figure of that kind itself."""
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
    there, here = math.log(a[0] / b[0]), math.log(a[1] / b[1])
    if min(abs(there), abs(here)) <= math.log(APART):
        return None
    return (there > 0) == (here > 0)
