"""Claims of the papers as predicates over our ratios within blocks.

They are in data/reference/claims.yml (README.md there). A claim about several configurations,
components or phases is several ratios; it is supported if each of them is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from statistics import fmean
from typing import Any, Literal

import polars as pl
import yaml

from analysis.published.compared_figures import find_configuration
from analysis.published.counterparts import Counterpart, OurRuns, Part, combined
from analysis.published.reference import FOLDER
from analysis.stats.budget import Mean, instrument_error
from analysis.stats.comparison import LEAST_EQUIVALENT, Comparison
from analysis.stats.family import terms_of
from analysis.stats.rare_events import RareEvents, allowance
from analysis.stats.stats import LEVEL
from analysis.stats.summary import BlockValues, compare_pairs
from analysis.suite.records import SYSTEM, Suite
from contract.estimates import Estimate

Verdict = Literal["supported", "contradicted", "open"]
Predicate = Literal["less", "more", "same within", "at most"]
PREDICATES: tuple[Predicate, ...] = ("less", "more", "same within", "at most")
QUANTITIES = {
    "energy": "energy_j",
    "power": "power_w",
    "time": "duration_s",
    "processor use": "cpu_percent",
}
COMPONENTS = {
    "system": (SYSTEM,),
    "drive": ("drive",),
    "processor": ("package", "package-0"),
    "memory": ("dram",),
}
CHOICES = ("component", "quantity", "medium", "configuration", "against")


@dataclass(frozen=True)
class ClaimedRatio:
    """A predicate on the ratio of a quantity of `configuration` to that of `against`.

    Phases are patterns of `re`; several phases or workloads have equal weight (geometric mean).
    With `against_phases` the other side has these phases. With `beside_phases` the ratio is
    divided by that of the same pair in these. An empty `configuration` or `medium` stands for any.
    `theirs` is the published ratio, None if the paper has none.
    """

    workload: tuple[str, ...]
    phases: tuple[str, ...]
    predicate: Predicate
    percent: float
    configuration: str = ""
    against: str = ""
    against_phases: tuple[str, ...] = ()
    beside_workload: tuple[str, ...] = ()
    beside_phases: tuple[str, ...] = ()
    component: str = SYSTEM
    quantity: str = "time"
    per: str = ""
    medium: str = ""
    theirs: float | None = None
    what: str = ""

    @property
    def groups(self) -> Iterator[list[tuple[str, str, str]]]:
        """Workload and phases of both sides of each comparison, then those of the divisor."""
        pairs = list(zip(self.phases, self.against_phases or self.phases, strict=True))
        yield [(name, *pair) for name, pair in product(self.workload, pairs)]
        if self.beside_phases:
            names = self.beside_workload or self.workload
            yield [(name, phase, phase) for name, phase in product(names, self.beside_phases)]

    @property
    def region(self) -> tuple[float, float]:
        """The lowest and the highest ratio for which the predicate holds."""
        factor = 1 + self.percent / 100
        return {
            "less": (0.0, 1.0),
            "more": (1.0, math.inf),
            "same within": (1 / factor, factor),
            "at most": (0.0, factor),
        }[self.predicate]

    def verdict(self, comparison: Comparison, interval: Estimate) -> Verdict:
        """Return whether an interval of the comparison lies within the region or outside it.

        That nothing or little differs takes as many blocks as the verdict *equivalent*.
        """
        least, most = self.region
        if interval.low is None or interval.high is None or not comparison.complete:
            return "open"
        if interval.high < least or interval.low > most:
            return "contradicted"
        small = self.predicate in ("same within", "at most")
        if small and comparison.n < LEAST_EQUIVALENT:
            return "open"
        return "supported" if least < interval.low and interval.high < most else "open"


@dataclass(frozen=True)
class Claim:
    """A claim in our words, its place in the paper, and the ratios that it is about."""

    paper: str
    place: str
    text: str
    ratios: tuple[ClaimedRatio, ...]


@dataclass(frozen=True)
class DecidedRatio:
    """A suite's result on a claimed ratio; the verdict is by `interval`."""

    claimed: ClaimedRatio
    configuration: str
    against: str
    comparison: Comparison
    interval: Estimate
    verdict: Verdict


@dataclass(frozen=True)
class DecidedClaim:
    """A claim, and those of its ratios that the suite has."""

    claim: Claim
    ratios: tuple[DecidedRatio, ...]

    @property
    def has_all(self) -> bool:
        return len(self.ratios) == len(self.claim.ratios)

    @property
    def verdict(self) -> Verdict:
        """The verdict: one ratio can contradict a claim, only all of them support it."""
        verdicts = {ratio.verdict for ratio in self.ratios}
        if "contradicted" in verdicts:
            return "contradicted"
        return "supported" if self.has_all and verdicts == {"supported"} else "open"


@cache
def claims() -> tuple[Claim, ...]:
    """Return all claims, in the order of the papers. Raises ValueError, TypeError, KeyError."""
    entries = yaml.safe_load((FOLDER / "claims.yml").read_text(encoding="utf-8"))
    return tuple(read_claim(**entry) for entry in entries)


def read_claim(paper: str, place: str, claim: str, ratios: Any = None, **shared: Any) -> Claim:
    """Read one claim; each of `ratios` can override the shared keys."""
    rows = [shared | row for row in ratios or [{}]]
    return Claim(paper, place, claim, tuple(ratio for row in rows for ratio in _expand(row)))


def _expand(row: Mapping[str, Any]) -> Iterator[ClaimedRatio]:
    """Yield a ratio for each combination of the `CHOICES` that are lists."""
    values: dict[str, Any] = dict(row)
    predicate, _, percent = str(values["predicate"]).rpartition(" ")
    if not percent.isdigit():
        predicate, percent = str(values["predicate"]), ""
    if predicate not in PREDICATES or bool(percent) == (predicate in ("less", "more")):
        raise ValueError(values["predicate"])
    values |= {"predicate": predicate, "percent": float(percent or 0)}
    for name in (key for key in values if key.endswith(("workload", "phases"))):
        values[name] = tuple(values[name].split())
    values["theirs"] = published_ratio(str(values.get("theirs", "")))
    lists = {name: values[name] for name in CHOICES if isinstance(values.get(name), list)}
    for choice in product(*lists.values()):
        yield ClaimedRatio(**values | dict(zip(lists, choice, strict=True)))


def published_ratio(text: str) -> float | None:
    """Return the geometric mean of fractions `a/b c/d`; `loss 40` is 40 % less speed."""
    if text.startswith("loss "):
        return 1 / (1 - float(text.removeprefix("loss ")) / 100)
    fractions = [list(map(float, fraction.split("/"))) for fraction in text.split()]
    logs = [math.log(above / below) for above, below in fractions]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def decide_claims(
    suite: Suite, energy: pl.DataFrame, events: Mapping[str, RareEvents]
) -> list[DecidedClaim]:
    """Test those claims of which the suite has a ratio.

    At most 5 % for any false verdict: each open claim has the same part of it (Holm's step-down). A
    claim is supported if all of its ratios are, each at that level (intersection-union test), and
    contradicted by one of its ratios at that level divided by their number.
    """
    runs = {name: OurRuns(energy.filter(component=name)) for name in set(energy["component"])}
    runs[""] = OurRuns(energy)
    compared: dict[Claim, list[tuple[_Pair, Comparison]]] = {}
    for claim in claims():
        for claimed in claim.ratios:
            pair = _pair(suite, runs, claimed)
            c = None if pair is None else pair.compare(events)
            if pair is not None and c is not None:
                compared.setdefault(claim, []).append((pair, c))
    decided: dict[Claim, DecidedClaim] = {}
    open_claims = list(compared)
    while open_claims:
        level = LEVEL / len(open_claims)
        tried = {claim: _decide(claim, compared[claim], level) for claim in open_claims}
        decided |= tried
        still_open = [claim for claim, tested in tried.items() if tested.verdict == "open"]
        if still_open == open_claims:
            break
        open_claims = still_open
    return [decided[claim] for claim in compared]


def _decide(
    claim: Claim, compared: Sequence[tuple[_Pair, Comparison]], level: float
) -> DecidedClaim:
    ratios = []
    for pair, c in compared:
        interval = c.interval(level)
        if (verdict := pair.claimed.verdict(c, interval)) != "supported":
            interval = c.interval(level / len(compared))
            verdict = pair.claimed.verdict(c, interval)
        sides = pair.configuration, pair.against
        ratios.append(DecidedRatio(pair.claimed, *sides, c, interval, verdict))
    return DecidedClaim(claim, tuple(ratios))


def _pair(suite: Suite, runs: Mapping[str, OurRuns], claimed: ClaimedRatio) -> _Pair | None:
    """Return the suite's pair for a ratio; None if it has no such disk, stack or meter."""
    if claimed.medium and all(stack.disk != claimed.medium for stack in suite.stacks.values()):
        return None
    physical = claimed.quantity in ("energy", "power")
    names = COMPONENTS[claimed.component] if physical else ("",)
    component = next((name for name in names if name in runs), None)
    on, against = (
        find_configuration(suite, name, claimed.medium)
        if name
        else suite.baseline or next(iter(suite.configurations), None)
        for name in (claimed.configuration, claimed.against or claimed.configuration)
    )
    if component is None or on is None or against is None:
        return None
    return _Pair(suite, runs[component], component, claimed, on, against)


def _quotients(values: BlockValues, base: BlockValues) -> BlockValues:
    return {block: values[block] / base[block] for block in values if base.get(block, 0.0) > 0}


@dataclass(frozen=True)
class _Pair:
    """Two configurations of ours, compared as a claim asks."""

    suite: Suite
    runs: OurRuns
    component: str
    claimed: ClaimedRatio
    configuration: str
    against: str

    def compare(self, events: Mapping[str, RareEvents]) -> Comparison | None:
        """Return the ratio within blocks, with the meter's error if it is of a meter."""
        column, per = QUANTITIES[self.claimed.quantity], self.claimed.per
        values, *divisors = (
            combined("geometric", [_quotients(*self._sides(column, per, *cell)) for cell in group])
            for group in self.claimed.groups
        )
        for divisor in divisors:
            values = _quotients(values, divisor)
        c = compare_pairs(self.suite, dict.fromkeys(values, 1.0), values)
        if c is None:
            return None
        pair = self.against, self.configuration
        widened = max(allowance(events, pair, workload) for workload in self.claimed.workload)
        return replace(c, systematic=self._systematic(), allowance=widened)

    def _sides(
        self, column: str, per: str, workload: str, phase: str, other: str
    ) -> tuple[BlockValues, BlockValues]:
        """Return our values and the base's from the first entry that has both."""
        workload_of = self.suite.workload_of
        entries = [name for name in self.suite.workloads if workload_of(name) == workload]
        mine, base = (Counterpart(workload, (Part(name, per),), "") for name in (phase, other))
        for entry in sorted(entries, key=lambda name: name != workload):
            values = self.runs.values(entry, self.configuration, mine, column)
            bases = self.runs.values(entry, self.against, base, column)
            if values.keys() & bases.keys():
                return values, bases
        return {}, {}

    def _systematic(self) -> float:
        """Return what the meter's error adds to the ratio; of a ratio of ratios that of both."""
        if not self.component:
            return 0.0
        terms = terms_of(self.suite, str(self.runs.energy["source"][0]), self.component)
        return math.fsum(
            instrument_error(terms, [self._means(*cell) for cell in group])
            for group in self.claimed.groups
        )

    def _means(self, *cell: str) -> tuple[Mean, Mean]:
        """Return the mean joules and seconds of the base, and ours."""
        joules, seconds = (self._sides(column, "", *cell) for column in ("energy_j", "duration_s"))
        mine, base = (
            (fmean(energy_j.values()), fmean(duration_s.values()))
            for energy_j, duration_s in zip(joules, seconds, strict=True)
        )
        return base, mine
