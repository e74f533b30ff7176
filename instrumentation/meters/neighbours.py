"""What a JSON document states next to a figure: its unit, its age, and whether it is valid.

A described meter's settings declare what its figure is; a document that states something else
contradicts them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from instrumentation.meters.json_paths import parent_of, value_at
from instrumentation.meters.networked import MARK_STEP_S, AnswerError, number

UNITS_W = {"mW": 1e-3, "W": 1.0, "kW": 1e3, "watt": 1.0, "watts": 1.0}
_UNIT_KEYS = ("unit", "units", "uom", "unit_of_measurement")
_VALID = re.compile(r"(?i)(?:is_?)?(?:valid|ok|online|available|connected|reachable|success)")
_AGE = re.compile(r"(?i)(?:data_|reading_)?age(?:_?s|_?sec|_?seconds)?|seconds_ago")
_TEXT = re.compile(r"\s*([-+]?\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")
# A time stamp of a moment that is not that of a start, an end or a count: its name, and its value.
_STAMP_NAME = re.compile(
    r"(?i)(?!.*(?:boot|start|since|reset|begin|install|minute|hour|day|month|next|expir|build"
    r"|chang|sun))(?:.*(?:time|stamp|date|updated?|seen|sampled|measured|reported|read|clock)"
    r"(?:_?(?:at|ts|ms|ns|s))?|ts|t|now)"
)
_STAMP_TEXT = re.compile(r"(?:\d{4}-\d\d-\d\d[T ])?\d{1,2}:\d\d:\d\d.*")
_UNIX_S = (1e9, 1e11)  # in s; also in ms, µs and ns


def require_agreement(document: Any, pointer: str, unit_w: float, refresh_s: float) -> None:
    """Raise AnswerError if what stands around a power contradicts it.

    Its unit is declared as `unit_w`, and it is refreshed each `refresh_s`.
    """
    value, parent, is_next = value_at(document, pointer), pointer, True
    units: list[object] = []
    while parent:
        parent = parent_of(parent)
        fields = value_at(document, parent)
        for name, beside in fields.items() if isinstance(fields, Mapping) else ():
            if beside is False and _VALID.fullmatch(name):
                raise AnswerError("no-data", f"the meter reports {name}: false")
            if _AGE.fullmatch(name) and _exceeds(beside, refresh_s + MARK_STEP_S):
                raise AnswerError("stale", f"the reading is old ({name}: {beside})")
        if not units:
            units = [*_stated_units(fields, value, is_next=is_next)]
        is_next = False
    for unit in units:
        if unit_of(unit) != unit_w:
            reason = f"the figure is in {unit!r}, not in {unit_w:g} W"
            raise AnswerError("configuration", f"{reason}: set power_unit_w")


def _stated_units(fields: Any, value: Any, *, is_next: bool) -> Iterator[str]:
    """Yield the units that an object states of a figure in it; further up, only those of power."""
    if not isinstance(fields, Mapping):
        return
    attributes = fields.get("attributes")
    for scope in (fields, attributes if isinstance(attributes, Mapping) else {}):
        for unit in (scope.get(key) for key in _UNIT_KEYS):
            if isinstance(unit, str) and unit and (is_next or unit in UNITS_W):
                yield unit
    for text in fields.values() if is_next else ():
        match = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if match and match[2] in UNITS_W and str(value) == match[1]:
            yield match[2]


def _exceeds(value: Any, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > most


def unit_of(unit: object) -> float:
    """Return a unit of power in W. Raises AnswerError if it is none."""
    unit_w = UNITS_W.get(unit, UNITS_W.get(unit.lower())) if isinstance(unit, str) else None
    if unit_w is None:
        raise AnswerError("configuration", f"the figure is in {unit!r}, which is no power")
    return unit_w


def time_stamps(document: Any, pointer: str) -> tuple[tuple[str, str], ...]:
    """Return name and value of the time stamps nearest to a pointer: next to it or further up."""
    while pointer:
        pointer = parent_of(pointer)
        beside = value_at(document, pointer)
        pairs = beside.items() if isinstance(beside, Mapping) else ()
        stamps = tuple((k, str(v)) for k, v in pairs if _STAMP_NAME.fullmatch(k) and _is_time(v))
        if stamps:
            return stamps
    return ()


def _is_time(value: Any) -> bool:
    """Return whether a value is a time of day, a date with one, or Unix time in any unit."""
    if isinstance(value, str) and not value.isdecimal():
        return bool(_STAMP_TEXT.fullmatch(value))
    try:
        seconds = number(value, "time")
    except AnswerError:
        return False
    low, high = _UNIX_S
    return any(low <= seconds / unit < high for unit in (1, 1e3, 1e6, 1e9))
