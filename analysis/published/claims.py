"""Claims of the papers as predicates over our ratios within blocks.

They are in data/reference/claims.yml (README.md there). A claim about several configurations,
components or phases is several ratios; it is supported if each of them is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from statistics import fmean
from typing import Any, Literal

import polars as pl
import yaml

from analysis.published.compared_figures import find_configuration
from analysis.published.conditions import Compared, differences
from analysis.published.counterparts import Counterpart, OurRuns, Part, combined
from analysis.published.reference import FOLDER
from analysis.stats.budget import Mean, instrument_error
from analysis.stats.comparison import LEAST_EQUIVALENT, Comparison
from analysis.stats.family import terms_of
from analysis.stats.rare_events import RareEvents, allowance
from analysis.stats.stats import LEVEL
from analysis.stats.summary import BlockValues, compare_pairs
from analysis.suite.records import MEASURED, SYSTEM, Suite, worst_origin
from contract.estimates import Estimate

Finding = Literal["supported", "contradicted", "open"]
# Where the paper's own figures violate its sentence, ours that do so, too, contradict it with them.
AS_THEIRS: Literal["contradicted by the paper's own figures"]
AS_THEIRS = "contradicted by the paper's own figures"
Verdict = Literal[
    "supported",
    "contradicted",
    "open",
    "agrees with the model",
    "disagrees with the model",
    "contradicted by the paper's own figures",
    "not comparable",
]
# A model, and figures without a machine, say nothing about what a paper measured.
OF_MODEL: Mapping[Finding, Verdict] = {
    "supported": "agrees with the model",
    "contradicted": "disagrees with the model",
    "open": "open",
}
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
CHOICES = (
    *("component", "quantity", "medium", "against_medium", "configuration", "against"),
    *("workload", "phases"),
)


Pair = tuple[tuple[str, str], tuple[str, str]]
Cell = tuple[str, str, str]
Sides = tuple[BlockValues, BlockValues]


@dataclass(frozen=True)
class ClaimedRatio:
    """A predicate on the ratio of a quantity of `configuration` to that of `against`.

    Phases are patterns of `re`; several phases or workloads have equal weight (geometric mean).
    With `against_phases` the other side has these phases. With `beside_phases` the ratio is
    divided by that of the same pair in these. An empty `configuration` or `medium` stands for any.
    The other side is on a disk of `against_medium`, the divisor on one of `beside_medium`, if these
    are given. `under` has conditions that the sentence states itself, by setting. `threshold` is
    the source of `percent`. `theirs` is the published ratio, None if the paper has none.
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
    against_medium: str = ""
    beside_medium: str = ""
    under: tuple[tuple[str, str], ...] = ()
    threshold: str = ""
    theirs: float | None = None
    what: str = ""

    @property
    def claimed(self) -> str:
        """The predicate with its percentage."""
        by = " by" if self.predicate in ("less", "more") else ""
        return f"{self.predicate}{by} {self.percent:g} %" if self.percent else self.predicate

    @property
    def violated(self) -> bool:
        """Whether the paper's own figures are outside the region of its sentence."""
        least, most = self.region
        return self.theirs is not None and not least < self.theirs < most

    @property
    def groups(self) -> Iterator[list[tuple[str, str, str]]]:
        """Workload and phases of both sides of each comparison, then those of the divisor."""
        pairs = list(zip(self.phases, self.against_phases or self.phases, strict=True))
        yield [(name, *pair) for name, pair in product(self.workload, pairs)]
        if self.beside_phases or self.beside_medium:
            names = self.beside_workload or self.workload
            phases = self.beside_phases or self.phases
            yield [(name, phase, phase) for name, phase in product(names, phases)]

    @property
    def pairs(self) -> tuple[Pair, Pair]:
        """Configuration and medium of both sides, and of both sides of the divisor."""
        against, medium = self.against or self.configuration, self.beside_medium or self.medium
        mine = self.configuration, self.medium
        other = against, self.against_medium or self.medium
        return (mine, other), ((self.configuration, medium), (against, medium))

    @property
    def region(self) -> tuple[float, float]:
        """The lowest and the highest ratio for which the predicate holds."""
        factor = 1 + self.percent / 100
        return {
            "less": (0.0, 1 / factor),
            "more": (factor, math.inf),
            "same within": (1 / factor, factor),
            "at most": (0.0, factor),
        }[self.predicate]

    def finding(self, comparison: Comparison, interval: Estimate) -> Finding:
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
    """A claim in our words, its place in the paper, and the ratios that it is about.

    Of the ratios a `share` is claimed. `suite` is the one that decides it; `suits`
    has how far our reading of the sentence goes (`letter`, `part`, `reason`), and `why`.
    """

    paper: str
    place: str
    text: str
    ratios: tuple[ClaimedRatio, ...]
    suite: str
    share: float = 1.0
    suits: str = "letter"
    why: str = ""

    def finding(self, findings: Sequence[Finding]) -> Finding:
        """Return the finding from those of its ratios, as far as a suite has them.

        A single ratio can contradict a claim. Support needs all of them, or the declared share.
        """
        if findings.count("contradicted") > len(self.ratios) - self.needed:
            return "contradicted"
        return "supported" if findings.count("supported") >= self.needed else "open"

    @property
    def needed(self) -> int:
        """How many of its ratios must hold."""
        return math.ceil(len(self.ratios) * self.share)


@dataclass(frozen=True)
class DecidedRatio:
    """A suite's result on a claimed ratio; the finding is by `interval`.

    It is not comparable if any conditions `differ` from the paper's.
    """

    claimed: ClaimedRatio
    configuration: str
    against: str
    comparison: Comparison
    interval: Estimate
    finding: Finding
    differs: tuple[str, ...]
    origin: str

    @property
    def verdict(self) -> Verdict:
        """The word for people and programs."""
        if self.differs:
            return "not comparable"
        return AS_THEIRS if self.as_theirs else _verdict(self.finding, self.origin)

    @property
    def as_theirs(self) -> bool:
        """Whether it contradicts the claim, and the paper's own figures do so, too."""
        return self.finding == "contradicted" and self.claimed.violated


def _verdict(finding: Finding, origin: str) -> Verdict:
    return finding if origin == MEASURED else OF_MODEL[finding]


@dataclass(frozen=True)
class DecidedClaim:
    """A claim, and those of its ratios that the suite has."""

    claim: Claim
    ratios: tuple[DecidedRatio, ...]

    @property
    def comparable(self) -> tuple[DecidedRatio, ...]:
        """The ratios under the paper's conditions."""
        return tuple(ratio for ratio in self.ratios if not ratio.differs)

    @property
    def finding(self) -> Finding:
        """The finding from its comparable ratios."""
        return self.claim.finding([ratio.finding for ratio in self.comparable])

    @property
    def verdict(self) -> Verdict:
        """The word for people and programs."""
        if not self.comparable:
            return "not comparable"
        findings = [r.finding for r in self.comparable if not r.as_theirs]
        if self.finding == "contradicted" and self.claim.finding(findings) != "contradicted":
            return AS_THEIRS
        return _verdict(self.finding, worst_origin(ratio.origin for ratio in self.comparable))


@cache
def claims() -> tuple[Claim, ...]:
    """Return all claims, in the order of the papers. Raises ValueError, TypeError, KeyError."""
    entries = yaml.safe_load((FOLDER / "claims.yml").read_text(encoding="utf-8"))
    return tuple(read_claim(**entry) for entry in entries)


def read_claim(
    paper: str,
    place: str,
    claim: str,
    ratios: Any = None,
    *,
    suite: str = "",
    share: float = 1.0,
    suits: str = "letter",
    why: str = "",
    **shared: Any,
) -> Claim:
    """Read one claim; each of `ratios` can override the shared keys."""
    table = [shared | row for row in ratios or [{}]]
    read = tuple(ratio for row in table for ratio in _expand(row))
    return Claim(paper, place, claim, read, suite, share, suits, why)


def _expand(row: Mapping[str, Any]) -> Iterator[ClaimedRatio]:
    """Yield a ratio for each combination of the `CHOICES` that are lists."""
    values: dict[str, Any] = dict(row)
    predicate, _, percent = str(values["predicate"]).rpartition(" ")
    if not percent.isdigit():
        predicate, percent = str(values["predicate"]), "0"
    small = predicate not in ("less", "more")
    if predicate not in PREDICATES or (small and not int(percent)):
        raise ValueError(values["predicate"])
    if int(percent) and not values.get("threshold"):
        raise ValueError(f"{values['predicate']}: no threshold")
    values |= {"predicate": predicate, "percent": float(percent)}
    values["threshold"] = values.get("threshold", "") if float(percent) else ""
    values["under"] = tuple((key, str(value)) for key, value in values.get("under", {}).items())
    values["theirs"] = published_ratio(str(values.get("theirs", "")))
    lists = {name: values[name] for name in CHOICES if isinstance(values.get(name), list)}
    for choice in product(*lists.values()):
        chosen = values | dict(zip(lists, choice, strict=True))
        for name in (key for key in chosen if key.endswith(("workload", "phases"))):
            chosen[name] = tuple(chosen[name].split())
        yield ClaimedRatio(**chosen)


def published_ratio(text: str) -> float | None:
    """Return the geometric mean of fractions `a/b c/d`; `loss 40` is 40 % less speed.

    What stands behind ` beside ` divides it.
    """
    text, _, divisor = text.partition(" beside ")
    if divisor:
        above, below = published_ratio(text), published_ratio(divisor)
        return above / below if above and below else None
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
            pair = _pair(suite, runs, claim.paper, claimed)
            c = None if pair is None else pair.compare(events)
            if pair is not None and c is not None:
                compared.setdefault(claim, []).append((pair, c))
    decided = {claim: _decide(claim, pairs, LEVEL) for claim, pairs in compared.items()}
    open_claims = [claim for claim, tested in decided.items() if tested.comparable]
    while open_claims:
        level = LEVEL / len(open_claims)
        tried = {claim: _decide(claim, compared[claim], level) for claim in open_claims}
        decided |= tried
        still_open = [claim for claim, tested in tried.items() if tested.finding == "open"]
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
        finding = pair.claimed.finding(c, interval)
        if claim.share < 1 or finding != "supported":
            interval = c.interval(level / len(compared))
            finding = pair.claimed.finding(c, interval)
        mine, base = pair.ours[0]
        conditions = pair.differs, pair.origin
        ratios.append(DecidedRatio(pair.claimed, mine, base, c, interval, finding, *conditions))
    return DecidedClaim(claim, tuple(ratios))


def _pair(
    suite: Suite, runs: Mapping[str, OurRuns], paper: str, claimed: ClaimedRatio
) -> _Pair | None:
    """Return the suite's pair for a ratio; None if it has no such disk, stack or meter."""
    physical = claimed.quantity in ("energy", "power")
    components = COMPONENTS[claimed.component] if physical else ("",)
    component = next((name for name in components if name in runs), None)
    names = [
        [
            find_configuration(suite, name, medium)
            if name
            else suite.baseline or next(iter(suite.configurations), None)
            for name, medium in pair
        ]
        for pair in claimed.pairs
    ]
    ours = [(mine, other) for mine, other in names if mine is not None and other is not None]
    of_media = claimed.against_medium and len(set(names[0])) == 1
    of_media = of_media or (claimed.beside_medium and names[0] == names[1])
    if component is None or len(ours) < len(names) or of_media:
        return None
    return _Pair(suite, runs[component], component, paper, claimed, tuple(ours))


def _quotients(values: BlockValues, base: BlockValues) -> BlockValues:
    return {block: values[block] / base[block] for block in values if base.get(block, 0.0) > 0}


@dataclass(frozen=True)
class _Pair:
    """Two configurations of ours, compared as a claim asks, and the two of its divisor."""

    suite: Suite
    runs: OurRuns
    component: str
    paper: str
    claimed: ClaimedRatio
    ours: tuple[tuple[str, str], ...]

    @property
    def origin(self) -> str:
        """The worst origin of what the ratio rests on; seconds are as real as the machine."""
        of_energy = self.runs.energy["origin"].unique() if self.component else ()
        return worst_origin([self.suite.plan.origin, *of_energy])

    @property
    def cells(self) -> list[list[tuple[int, Cell]]]:
        """The cells of the ratio, then those of its divisor, each with its place in `ours`."""
        return [[(n, cell) for cell in group] for n, group in enumerate(self.claimed.groups)]

    @cached_property
    def differs(self) -> tuple[str, ...]:
        """How conditions here differ from the paper's."""
        texts: dict[str, None] = {}
        for group in self.cells:
            for cell in group:
                texts |= dict.fromkeys(next(iter(self._entries(*cell).values()), ()))
        return tuple(texts)

    def compare(self, events: Mapping[str, RareEvents]) -> Comparison | None:
        """Return the ratio within blocks, with the meter's error if it is of a meter."""
        column, per = QUANTITIES[self.claimed.quantity], self.claimed.per
        values, *divisors = (
            combined("geometric", [_quotients(*self._sides(column, per, *cell)) for cell in group])
            for group in self.cells
        )
        for divisor in divisors:
            values = _quotients(values, divisor)
        c = compare_pairs(self.suite, dict.fromkeys(values, 1.0), values)
        if c is None:
            return None
        mine, base = self.ours[0]
        widened = max(
            allowance(events, (base, mine), workload) for workload in self.claimed.workload
        )
        return replace(c, systematic=self._systematic(), allowance=widened)

    def _sides(self, column: str, per: str, place: int, cell: Cell) -> Sides:
        """Return our values and the base's from the entry nearest to the paper's conditions."""
        for entry in self._entries(place, cell):
            sides = self._of_entry(entry, column, per, place, cell)
            if sides[0].keys() & sides[1].keys():
                return sides
        return {}, {}

    def _of_entry(self, entry: str, column: str, per: str, place: int, cell: Cell) -> Sides:
        workload, *phases = cell
        mine, base = (
            self.runs.values(entry, name, Counterpart(workload, (Part(phase, per),), ""), column)
            for name, phase in zip(self.ours[place], phases, strict=True)
        )
        return mine, base

    def _entries(self, place: int, cell: Cell) -> dict[str, tuple[str, ...]]:
        """Return the entries that have both sides, with their differences, the nearest first."""
        workload, *phases = cell
        pairs = list(zip(self.claimed.pairs[place], self.ours[place], strict=True))
        names = {name: ours for (name, _), ours in pairs if name}
        media = {ours: medium for (_, medium), ours in pairs}
        under = {} if place else dict(self.claimed.under)
        entries = {
            entry: differences(
                self.suite, self.paper, Compared(workload, entry, phases, names, media, under)
            )
            for entry in self.suite.workloads
            if self.suite.workload_of(entry) == workload
            and all(self._of_entry(entry, "duration_s", self.claimed.per, place, cell))
        }
        return dict(sorted(entries.items(), key=lambda item: (len(item[1]), item[0] != workload)))

    def _systematic(self) -> float:
        """Return what the meter's error adds to the ratio; of a ratio of ratios that of both."""
        if not self.component:
            return 0.0
        terms = terms_of(self.suite, str(self.runs.energy["source"][0]), self.component)
        return math.fsum(
            instrument_error(terms, [self._means(*cell) for cell in group]) for group in self.cells
        )

    def _means(self, *cell: Any) -> tuple[Mean, Mean]:
        """Return the mean joules and seconds of the base, and ours."""
        joules, seconds = (self._sides(column, "", *cell) for column in ("energy_j", "duration_s"))
        mine, base = (
            (fmean(energy_j.values()), fmean(duration_s.values()))
            for energy_j, duration_s in zip(joules, seconds, strict=True)
        )
        return base, mine
