"""Check and conversion of the prices and habits of an inventory (`fde_assumptions`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_type_hints

from contract import schema
from contract.assumptions import Assumptions
from contract.names import unknown_name
from contract.problem import Problem
from workloads import registry

_SHAPES = get_type_hints(Assumptions, include_extras=True)
_TEXTS = ("currency", "after_work")


def resolve(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the assumptions without null values, and with texts of numbers as numbers."""
    return {
        key: schema.write(_read(key, value, key))
        for key, value in values.items()
        if value is not None
    }


def find_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each invalid value, workload and range."""
    ranges = values.get("ranges")
    valid: dict[str, Any] = {}
    for key, value in values.items():
        if key == "ranges" and isinstance(ranges, Mapping):
            continue
        try:
            valid[key] = _read(key, value, key)
        except ValueError as error:
            yield _problem("value", key, str(error))
    for name in valid.get("duty") or ():
        if name not in registry.names():
            problem = unknown_name("workload of the duty", name, registry.names())
            yield _problem("workload", "duty", str(problem))
    for name, ends in ranges.items() if isinstance(ranges, Mapping) else ():
        if ends is None:
            continue
        key, place = str(name), f"ranges.{name}"
        try:
            pair = schema.read(tuple[float, float], _as_numbers(ends), place)
            low, high = (_read(key, end, f"an end of {place}") for end in pair)
        except ValueError as error:
            yield _problem("value", key, str(error))
            continue
        value = valid.get(key)
        if low >= high:
            yield _problem("range", key, f"{place} ends before it begins")
        elif value is not None and not low <= value <= high:
            yield _problem("outside", key, f"{place}, {low:g} to {high:g}, does not hold {value:g}")


def _read(key: str, value: Any, place: str) -> Any:
    """Return a value in the type of its field of `Assumptions`; raises ValueError."""
    if key not in _SHAPES:
        raise ValueError(f"unknown key {place}; {schema.nearest(key, _SHAPES)}")
    if key == "ranges" and isinstance(value, Mapping):
        value = {name: ends for name, ends in value.items() if ends is not None}
    if value is None:
        return None
    return schema.read(_SHAPES[key], value if key in _TEXTS else _as_numbers(value), place)


def _as_numbers(value: Any) -> Any:
    """Convert texts of numbers, which templates yield, into numbers, also within a value."""
    if isinstance(value, Mapping):
        return {key: _as_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_numbers(item) for item in value]
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _problem(rule: str, key: str, reason: str) -> Problem:
    return Problem(f"assumption-{rule}", {"key": key}, f"fde_assumptions: {reason.rstrip('.')}.")
