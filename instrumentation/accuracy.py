"""How far an instrument's readings may be off, term by term, and who states it.

A limit is the half width of a rectangular distribution (GUM 4.3.7). How two readings of one
instrument share a term's error decides what is left of it in their ratio: a gain that is wrong is
wrong in both, a deviation from the straight line at one power says nothing of that at another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeGuard

NOT_STATED = "not stated"
# What a limit is given in: shares of the reading, W, J of a count, s of a count's age.
UNITS = {
    **dict.fromkeys(("gain", "linearity", "power_factor"), "1"),
    **dict.fromkeys(("range", "offset", "resolution"), "W"),
    **{"count": "J", "update": "s"},
}
LIMITS = ("relative_limit", "absolute_limit_w")
SHARED = ("gain", "offset")  # the same in every reading of one instrument


@dataclass(frozen=True)
class ErrorTerm:
    """One term; `limit` is in the unit of its name (`UNITS`), None where nobody states it.

    `within` names the term whose limit holds this one too: a single reading is then bounded, a
    ratio of two is not. `correlation` is that of the error in two readings, None for what the name
    says: 1 for `SHARED`, else 0.
    """

    name: str
    limit: float | None
    source: str
    within: str = ""
    correlation: float | None = None

    def __post_init__(self) -> None:
        if self.name not in UNITS:
            raise ValueError(f"{self.name!r} is no term of error: there are {', '.join(UNITS)}.")
        if not isinstance(self.source, str) or not isinstance(self.within, str):
            raise ValueError(f"the source of {self.name} is a text.")
        if self.limit is not None and not (_is_number(self.limit) and self.limit >= 0):
            raise ValueError(f"the limit of {self.name} is a number of 0 or more.")
        if self.correlation is not None and not (
            _is_number(self.correlation) and 0 <= self.correlation <= 1
        ):
            raise ValueError(f"the correlation of {self.name} is a number from 0 to 1.")

    @property
    def unit(self) -> str:
        return UNITS[self.name]

    @property
    def shared(self) -> float:
        """Correlation between two readings."""
        return float(self.name in SHARED) if self.correlation is None else self.correlation


LINEARITY = ErrorTerm("linearity", None, NOT_STATED, within="gain")
POWER_FACTOR = ErrorTerm("power_factor", None, NOT_STATED)


@dataclass(frozen=True)
class Accuracy:
    """Limits of error that the maker states.

    `relative_limit` of the reading, taken for a gain, plus `absolute_limit_w`, which is the term
    named `absolute`.

    `source` says where they are stated and for which range. `more` are further terms, those that
    nobody states among them; `calibrated` are the inventory's own, which stand in for the maker's.
    """

    relative_limit: float
    absolute_limit_w: float
    source: str
    absolute: str = "range"
    more: tuple[ErrorTerm, ...] = (LINEARITY, POWER_FACTOR)
    calibrated: tuple[ErrorTerm, ...] = ()

    @property
    def terms(self) -> tuple[ErrorTerm, ...]:
        """All of them, one of each name."""
        stated = (
            ErrorTerm("gain", self.relative_limit, self.source),
            ErrorTerm(self.absolute, self.absolute_limit_w, self.source),
            *self.more,
        )
        by_name = {term.name: term for term in (*stated, *self.calibrated)}
        return tuple(by_name.values())

    def described(self) -> dict[str, Any]:
        """Return what meter.json says of it."""
        return {
            "relative_limit": self.relative_limit,
            "absolute_limit_w": self.absolute_limit_w,
            "distribution": "rectangular",
            "source": self.source,
            "terms": [asdict(term) for term in self.terms],
        }


def calibration(document: object) -> tuple[ErrorTerm, ...]:
    """Return the terms of an inventory's `calibration`.

    `{source, terms: {name: limit}}`, or `{limit, correlation}` for a limit. Raises ValueError.
    """
    if not isinstance(document, Mapping) or set(document) != {"source", "terms"}:
        raise ValueError("calibration has two keys: source and terms.")
    source, terms = document["source"], document["terms"]
    if not isinstance(source, str) or not source.strip():
        raise ValueError("calibration.source says where its figures are from.")
    if not isinstance(terms, Mapping) or not terms:
        raise ValueError("calibration.terms has a limit by the name of each term.")
    return tuple(_calibrated(str(name), value, source) for name, value in terms.items())


def _calibrated(name: str, value: object, source: str) -> ErrorTerm:
    more: dict[str, Any] = dict(value) if isinstance(value, Mapping) else {"limit": value}
    if not _is_number(more.get("limit")) or not set(more) <= {"limit", "correlation"}:
        raise ValueError(f"calibration.terms.{name} is a limit, or {{limit, correlation}}.")
    return ErrorTerm(name, source=source, **more)


def read_terms(accuracy: Mapping[str, Any]) -> tuple[ErrorTerm, ...]:
    """Return the terms as meter.json holds them.

    A file that names none has a limit of the reading and an absolute one. Of the latter it does not
    say what it is, so it is taken for one that cancels nowhere.
    """
    listed = accuracy.get("terms")
    if isinstance(listed, list):
        try:
            return tuple(ErrorTerm(**term) for term in listed)
        except (TypeError, ValueError):
            pass  # of a later format or damaged: the two limits still hold
    source = str(accuracy.get("source") or NOT_STATED)
    gain, absolute_w = (
        abs(float(limit)) if _is_number(limit := accuracy.get(name)) else None for name in LIMITS
    )
    stated = ErrorTerm("gain", gain, source), ErrorTerm("range", absolute_w, source)
    return (*stated, LINEARITY, POWER_FACTOR)


def _is_number(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value)
