"""Terms of an instrument's error: the limit of each, and who states it.

A limit is the half width of a rectangular distribution (GUM 4.3.7). How two readings of one
instrument share a term's error decides what remains of it in their ratio: a wrong gain is wrong in
both, a deviation from the straight line at one power is unrelated to that at another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, TypedDict

from contract import schema
from contract.schema import Closed, Items, Range, Text
from contract.strict_json import Document

NOT_STATED = "not stated"
# Unit of each limit: shares of the reading, W, J of a count, s of a count's age.
UNITS = {
    **dict.fromkeys(("gain", "linearity", "power_factor"), "1"),
    **dict.fromkeys(("range", "offset", "resolution"), "W"),
    **{"count": "J", "update": "s"},
}
LIMITS = ("relative_limit", "absolute_limit_w")
SHARED = ("gain", "offset")  # the same in every reading of one instrument


@dataclass(frozen=True)
class ErrorTerm:
    """One term of error; `limit` is in the unit of its name (`UNITS`), None if it is not stated.

    `within` names the term whose limit includes this one: a single reading is then bounded, a
    ratio of two is not. `correlation` is that of the error in two readings, None for the name's
    usual one: 1 for `SHARED`, else 0.
    """

    name: str
    limit: Annotated[float, Range(least=0)] | None
    source: str
    within: str = ""
    correlation: Annotated[float, Range(least=0, most=1)] | None = None

    def __post_init__(self) -> None:
        if self.name not in UNITS:
            raise ValueError(f"unknown term of error {self.name!r} (known: {', '.join(UNITS)})")

    @property
    def unit(self) -> str:
        return UNITS[self.name]

    @property
    def shared(self) -> float:
        """Correlation of the error in two readings."""
        return float(self.name in SHARED) if self.correlation is None else self.correlation


LINEARITY = ErrorTerm("linearity", None, NOT_STATED, within="gain")
POWER_FACTOR = ErrorTerm("power_factor", None, NOT_STATED)


class DescribedAccuracy(TypedDict):
    """`accuracy` of meter.json."""

    relative_limit: float | None
    absolute_limit_w: float | None
    distribution: str
    source: str
    terms: list[Document]


@dataclass(frozen=True)
class Accuracy:
    """Limits of error that the maker states.

    `relative_limit` is a share of the reading and taken for a gain; `absolute_limit_w` is added to
    it as the term named `absolute`. `source` is where they are stated and for which range.
    `further_terms` include those that are not stated; `calibrated` come from the inventory and
    replace the maker's.
    """

    relative_limit: float
    absolute_limit_w: float
    source: str
    absolute: str = "range"
    further_terms: tuple[ErrorTerm, ...] = (LINEARITY, POWER_FACTOR)
    calibrated: tuple[ErrorTerm, ...] = ()

    @property
    def terms(self) -> tuple[ErrorTerm, ...]:
        """All terms, one of each name."""
        stated = (
            ErrorTerm("gain", self.relative_limit, self.source),
            ErrorTerm(self.absolute, self.absolute_limit_w, self.source),
            *self.further_terms,
        )
        return tuple({term.name: term for term in (*stated, *self.calibrated)}.values())

    def description(self) -> DescribedAccuracy:
        """Return the limits and terms for meter.json."""
        return {
            "relative_limit": self.relative_limit,
            "absolute_limit_w": self.absolute_limit_w,
            "distribution": "rectangular",
            "source": self.source,
            "terms": [asdict(term) for term in self.terms],
        }


@dataclass(frozen=True)
class _Figures(Closed):
    limit: Annotated[float, Range(least=0)]
    correlation: Annotated[float, Range(least=0, most=1)] | None = None


@dataclass(frozen=True)
class _Calibration(Closed):
    source: Annotated[str, Text(r"(?s).*\S.*", "where its figures are from")]
    terms: Annotated[Mapping[str, Annotated[float, Range(least=0)] | _Figures], Items(1)]


def calibration(document: object) -> tuple[ErrorTerm, ...]:
    """Return the terms of an inventory's `calibration`.

    Its form is `{source, terms: {name: limit}}`, with `{limit, correlation}` possible for a limit.
    Raises ValueError.
    """
    stated = schema.read(_Calibration, document)
    return tuple(
        ErrorTerm(name, figures.limit, stated.source, correlation=figures.correlation)
        for name, limit in stated.terms.items()
        for figures in (limit if isinstance(limit, _Figures) else _Figures(limit),)
    )


@dataclass(frozen=True)
class _Terms:
    terms: tuple[ErrorTerm, ...]


def read_terms(accuracy: Mapping[str, object]) -> tuple[ErrorTerm, ...]:
    """Return the terms of `accuracy` in meter.json.

    A file without terms has a limit of the reading and an absolute one. It does not state what the
    latter is, so it is taken for one that never cancels.
    """
    try:
        return schema.read(_Terms, accuracy).terms
    except (TypeError, ValueError):
        pass  # another format, or damaged: the two limits still hold
    source = str(accuracy.get("source") or NOT_STATED)
    gain, absolute_w = (
        abs(limit) if isinstance(limit, int | float) and math.isfinite(limit) else None
        for limit in map(accuracy.get, LIMITS)
    )
    stated = ErrorTerm("gain", gain, source), ErrorTerm("range", absolute_w, source)
    return (*stated, LINEARITY, POWER_FACTOR)
