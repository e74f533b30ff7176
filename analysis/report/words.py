"""Figures and names as text: as many digits as the interval bears, and never NaN."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:  # these modules import SciPy, which most words do not need
    from analysis.report.view import Verdict
    from analysis.stats.comparison import Comparison
    from analysis.stats.summary import SummaryRow
    from contract.command_results import Ratio
    from contract.estimates import Estimate

NO_INTERVAL = "no interval: too few blocks"
NOTHING = "–"
NOT_COMPLETE = "not complete"
NO_CHANGE_PERCENT = 1e-6  # of rounding alone
WIDEST_PERCENT = 1000.0  # limit of a change that is still given as a number
SIGNS = {"differs": "▲", "equivalent": "≈", "inconclusive": "?"}

_TABLES = yaml.safe_load(
    Path(__file__).with_name("templates").joinpath("names.yml").read_text(encoding="utf-8")
)
NAMES: Mapping[str, str] = _TABLES["names"]
VARIANTS: Mapping[str, str] = _TABLES["variants"]
LAB_MACHINES: Mapping[str, str] = _TABLES["lab_machines"]
# A zone of one of several packages; a single one is `package-0`.
_SOCKET = re.compile(r"package-([1-9]\d*(?:-die-\d+)?|\d+(?=/)|\d+-die-\d+)(/dram)?")


def name_of(identifier: str) -> str:
    """Return a workload's or component's name for people; a configuration's is Suite.label.

    An entry that is named after its workload, such as `sql-large`, becomes `SQL (large)`.
    """
    if identifier not in NAMES and identifier.startswith("pyrapl-"):
        return f"{name_of(identifier.removeprefix('pyrapl-'))} by pyRAPL"
    if socket := _SOCKET.fullmatch(identifier):
        return f"{'RAM of CPU' if socket[2] else 'CPU'} package {socket[1]}"
    workload, _, variant = identifier.partition("-")
    if identifier in NAMES or not variant or workload not in NAMES:
        return NAMES.get(identifier, identifier)
    return f"{NAMES[workload]} ({VARIANTS.get(variant, variant)})"


def count(number: int, noun: str) -> str:
    """Return `1 block` or `3 blocks`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def listed(items: Sequence[str]) -> str:
    """Return `a`, `a and b` or `a, b and c`."""
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last


def decimals(half_width: float | None, value: float) -> int:
    """Return the decimals for two digits of the interval, or three of the value without one."""
    scale, digits = (half_width, 2) if half_width else (abs(value), 3)
    if not scale or not math.isfinite(scale):
        return 1
    return max(0, digits - 1 - math.floor(math.log10(scale)))


def number(value: float | None, places: int | None = None) -> str:
    """Return a figure with a narrow no-break space between thousands."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if places is None:
        places = decimals(None, value)
    text = f"{value:,.{min(places, 6)}f}".replace(",", "\u202f")
    if not text.strip("-0."):
        return text.removeprefix("-")  # no minus before a nought
    return text.replace("-", "−")


def plus_minus(value: Estimate | None, unit: str = "") -> str:
    """Return `12.34 ± 0.56 J`; for n = 1 only the figure."""
    if value is None:
        return NOTHING
    # Five digits in all, four decimals at most.
    most = 4 if abs(value.mean) < 10 else max(0, 4 - math.floor(math.log10(abs(value.mean))))
    places = min(decimals(value.half_width, value.mean), most)
    text = number(value.mean, places)
    if value.half_width is not None:
        half = number(value.half_width, places)
        text += f" ± {half}" if half.strip("0.") else f" ± <{number(10.0**-places, places)}"
    return f"{text} {unit}".rstrip()


def ratio(value: Comparison | Ratio | None) -> str:
    """Return `ratio_of` a comparison or a ratio."""
    return NOTHING if value is None else ratio_of(value.ratio, value.low, value.high)


def ratio_of(mid: float | None, low: float | None, high: float | None) -> str:
    """Return `1.042 [1.013, 1.071]`."""
    if mid is None:
        return NOTHING
    if low is None or high is None:
        return number(mid, 3)
    limits = (number(limit, max(3, _places_on_side(limit, 1) + 2)) for limit in (low, high))
    return f"{number(mid, 3)} [{', '.join(limits)}]"


def percent(factor: float, places: int | None = None) -> str:
    """Return a ratio as a signed change: 1.042 is `+4.2 %`."""
    return f"{_signed((factor - 1) * 100, places)} %"


def interval_of(low: float, high: float) -> str:
    """Return `+1.3 % to +7.1 %` from the limits of a ratio."""
    places = _places(low, high)
    return f"{_limit(low, places)} % to {_limit(high, places)} %"


def change_only(value: Comparison, most: int = 2) -> str:
    """Return `+4.2 %` in as many decimals as the interval bears, and at most `most`."""
    if value.low is None or value.high is None:
        return percent(value.ratio)
    return percent(value.ratio, min(most, _places(value.low, value.high)))


def change_of(mid: float | None, low: float | None, high: float | None) -> str:
    """Return `+4.2 % [+1.3, +7.1]` from a ratio and its limits."""
    if mid is None:
        return NOTHING
    if low is None or high is None:
        return percent(mid)
    places = _places(low, high)
    return f"{percent(mid, places)} [{_limit(low, places)}, {_limit(high, places)}]"


def change_in(value: Comparison | Ratio | None) -> str:
    """Return `change_of` a comparison or a ratio."""
    return NOTHING if value is None else change_of(value.ratio, value.low, value.high)


def verdict_of(value: Comparison | SummaryRow, modes: bool = True) -> Verdict:
    """Return a verdict with its direction: `significant increase`, `equivalent (…)`.

    With `modes`, an equivalence has the share of runs in another mode that its blocks can miss.
    """
    from analysis.report.view import Verdict

    word, ratio = value.verdict, value.ratio
    if word == "incomplete":
        return Verdict(NOT_COMPLETE, "inconclusive")
    if ratio is None or word not in SIGNS or word == "inconclusive":
        return Verdict(word, word)
    change = f"significant {'increase' if ratio > 1 else 'decrease'}"
    if word == "differs":
        return Verdict(change, word)
    remarks = [change] * value.equivalent_but_changed + [unseen(value.n)] * modes
    return Verdict(f"{word} ({'; '.join(remarks)})" if remarks else word, word)


def unseen(n: int) -> str:
    """Return `an event in up to 26 % of visits may be missed`: `n` visits show none in 5 %."""
    return f"an event in up to {100 * (1 - 0.05 ** (1 / n)):.0f} % of visits may be missed"


def sign(value: Comparison) -> str:
    """Return the verdict as a sign: ▲ ▼ ≈ ?, and ≈▲ or ≈▼ for an equivalent difference."""
    arrow = SIGNS["differs"] if value.ratio >= 1 else "▼"
    if value.verdict == "differs":
        return arrow
    return SIGNS.get(value.verdict, "") + arrow * value.equivalent_but_changed


def _places(low: float, high: float) -> int:
    """Return decimals of a change in %: two digits of the interval of ratios, at most two."""
    return min(2, decimals((high - low) * 50, 1.0))


def _places_on_side(limit: float, places: int) -> int:
    """Return `places`, or more if a limit of a ratio would be rounded to no change at all.

    A reader could not see on which side of 0 the interval ends.
    """
    percents = abs(limit - 1) * 100
    if not NO_CHANGE_PERCENT < percents < 0.5 * 10.0**-places:
        return places
    return -math.floor(math.log10(2 * percents))


def _limit(limit: float, places: int) -> str:
    """Return a limit of a ratio as a change in %; of one beyond all use only that it is."""
    if (limit - 1) * 100 > WIDEST_PERCENT:
        return f"> +{number(WIDEST_PERCENT, 0)}"
    return _signed((limit - 1) * 100, _places_on_side(limit, places))


def _signed(value: float, places: int | None = None) -> str:
    if places is None:
        places = 0 if abs(value) >= 100 else 1
    text = number(abs(value), places)
    if not text.strip("0.\u202f"):
        return f"±{text}"
    return f"{'+' if value > 0 else '−'}{text}"


def rounded(value: float | None) -> str:
    """Return three significant digits, for figures that are only as good as their assumptions."""
    if value is None:
        return "no bound"
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else NOTHING
    power = math.floor(math.log10(abs(value)))
    return number(round(value, 2 - power), max(0, 2 - power))


def exact(value: float) -> str:
    """Return a declared figure as it was declared: `25`, `0.12`."""
    return f"{value:.10g}"


def span(value: Estimate | None, unit: str = "") -> str:
    """Return `750 000 (700 000 to 810 000) runs`."""
    if value is None:
        return NOTHING
    text = rounded(value.mean)
    if value.low is not None and value.high is not None:
        text += f" ({rounded(value.low)} to {rounded(value.high)})"
    elif value.low is not None:
        text += f" (at least {rounded(value.low)})"
    return f"{text} {unit}".rstrip()


def limits(value: Estimate) -> str:
    """Return `8.1 to 16` from the limits of an estimate; without an interval, the lack of it."""
    if value.low is None or value.high is None:
        return NO_INTERVAL
    return f"{rounded(value.low)} to {rounded(value.high)}"


def p_value(value: float | None) -> str:
    """Return a p-value to two digits; a very small one is `< 0.001`."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return "< 0.001" if value < 0.001 else number(value, 3 if value < 0.1 else 2)


# The noun of a phase's number by its unit: singular, plural.
COUNTED = {
    "i": ("iteration", "iterations"),
    "t": ("thread", "threads"),
    "q": ("in flight", "in flight"),
}
_NUMBER = re.compile(rf"(\d+)(B|{'|'.join(COUNTED)})")
_SIZES = ((2**30, "GB"), (2**20, "MB"), (2**10, "KB"))


@dataclass(frozen=True)
class PhaseName:
    """The name of a phase: fields such as `("aes-128-cbc", "encrypt", "text")`, and a number.

    `number` counts bytes (`unit` B) or a noun of `COUNTED`; it may be None.
    """

    fields: tuple[str, ...]
    number: int | None = None
    unit: str = ""

    @property
    def shown(self) -> str:
        """The name for people: `aes-128-cbc encrypt text 1 MB`."""
        return " ".join([*self.fields, *([] if self.number is None else [self.size])])

    @property
    def size(self) -> str:
        """The number with its unit; empty without a number."""
        if self.number is None:
            return ""
        if self.unit == "B":
            return size(self.number)
        return f"{grouped(self.number)} {COUNTED[self.unit][self.number != 1]}"


def parse(phase: str) -> PhaseName:
    """Parse the name of a phase; unknown parts stay fields."""
    *fields, last = phase.split(".")
    match = _NUMBER.fullmatch(last)
    if match is None or not fields:
        return PhaseName((*fields, last))
    return PhaseName(tuple(fields), int(match[1]), match[2])


def size(size_bytes: int) -> str:
    """Return a size in the papers' form, with 1 KB = 1024 bytes: `4 KB`, `20 527 B`."""
    for factor, unit in _SIZES:
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}\u00a0{unit}"
    return f"{grouped(size_bytes)}\u00a0B"


def grouped(number: int) -> str:
    """Return a number with a narrow no-break space between thousands."""
    return f"{number:,}".replace(",", "\u202f")
