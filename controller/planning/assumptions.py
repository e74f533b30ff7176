"""Check and resolve the prices and habits of an inventory (`fde_assumptions`)."""

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


def resolved(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the assumptions with texts of numbers as numbers, without what is null."""
    return {
        key: schema.write(_read(key, value, key))
        for key, value in values.items()
        if value is not None
    }


def broken(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for every rule that does not hold."""
    ranges = values.get("ranges")
    sound: dict[str, Any] = {}
    for key, value in values.items():
        if key == "ranges" and isinstance(ranges, Mapping):
            continue
        try:
            sound[key] = _read(key, value, key)
        except ValueError as error:
            yield _problem("value", key, str(error))
    for name in sound.get("duty") or ():
        if name not in registry.names():
            problem = unknown_name("workload of the duty", name, registry.names())
            yield _problem("workload", "duty", str(problem))
    for name, ends in ranges.items() if isinstance(ranges, Mapping) else ():
        if ends is not None:
            yield from _broken_range(str(name), ends, sound.get(name))


def _broken_range(name: str, ends: Any, value: float | None) -> Iterator[Problem]:
    place = f"ranges.{name}"
    try:
        pair = schema.read(tuple[float, float], _as_numbers(ends), place)
        low, high = (_read(name, end, f"an end of {place}") for end in pair)
    except ValueError as error:
        yield _problem("value", name, str(error))
        return
    if low >= high:
        yield _problem("range", name, f"{place} ends before it begins")
    elif value is not None and not low <= value <= high:
        yield _problem("outside", name, f"{place}, {low:g} to {high:g}, does not hold {value:g}")


def _read(key: str, value: Any, place: str) -> Any:
    """Return a value as `Assumptions` has it; raises ValueError for an unknown key, too."""
    if key not in _SHAPES:
        raise ValueError(f"unknown key {place}; {schema.nearest(key, _SHAPES)}")
    if key == "ranges" and isinstance(value, Mapping):
        value = {name: ends for name, ends in value.items() if ends is not None}
    if value is None:
        return None
    return schema.read(_SHAPES[key], value if key in _TEXTS else _as_numbers(value), place)


def _as_numbers(value: Any) -> Any:
    """Return the same with numbers for texts of numbers, as templates yield them."""
    if isinstance(value, Mapping):
        return {key: _as_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_numbers(item) for item in value]
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _problem(rule: str, key: str, what: str) -> Problem:
    return Problem(f"assumption-{rule}", {"key": key}, f"fde_assumptions: {what.rstrip('.')}.")
