"""What an inventory assumes of prices and habits: the rules that its numbers must keep."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from contract.names import unknown
from contract.problem import Problem
from workloads import registry

NUMBERS = (
    "sed_extra_price",
    "electricity_price_per_kwh",
    "battery_wh",
    "life_years",
    "runs_per_day",
    "discount_rate",
    "grid_g_co2_per_kwh",
)
KNOWN = {*NUMBERS, "currency", "after_work", "duty", "ranges"}
AFTER_WORK = ("sleep", "idle")


def resolved(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same with its numbers as such; what is null is left out."""
    stated = {key: value for key, value in values.items() if value is not None}
    for key in NUMBERS:
        if key in stated:
            stated[key] = float(stated[key])
    if "duty" in stated:
        stated["duty"] = {name: float(runs) for name, runs in stated["duty"].items()}
    if "ranges" in stated:
        ranges = {name: ends for name, ends in stated["ranges"].items() if ends is not None}
        stated["ranges"] = {name: [float(end) for end in ends] for name, ends in ranges.items()}
    return stated


def broken(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for every rule that does not hold."""
    for key in values.keys() - KNOWN:
        yield _problem(
            "unknown", key, f"unknown key {key}", f"Known are {', '.join(sorted(KNOWN))}."
        )
    for key in NUMBERS:
        if values.get(key) is not None:
            yield from _number_broken(key, values[key], key)
    if values.get("after_work") not in (None, *AFTER_WORK):
        yield _problem(
            "after-work",
            "after_work",
            f"after_work is {values['after_work']!r}",
            f"What the machine does once its work is done must be {' or '.join(AFTER_WORK)}.",
        )
    yield from _duty_broken(values.get("duty"))
    yield from _ranges_broken(values)


def _problem(rule: str, key: str, what: str, remedy: str) -> Problem:
    return Problem(f"assumption-{rule}", {"key": key}, f"fde_assumptions: {what}.", remedy)


def _number_broken(key: str, value: Any, what: str) -> Iterator[Problem]:
    number = _number(value)
    if key == "discount_rate":
        if number is None or not 0 <= number < 1:
            remedy = "It must be a share a year from 0 to below 1, as 0.03 for 3 %."
            yield _problem("share", key, f"{what} is {value!r}", remedy)
    elif number is None or number <= 0:
        yield _problem("number", key, f"{what} is {value!r}", "It must be a number above 0.")


def _duty_broken(duty: Any) -> Iterator[Problem]:
    if duty is None:
        return
    if not isinstance(duty, Mapping) or not duty:
        remedy = "Give runs a day by workload, as {kernel_tree: 24}, or no duty."
        yield _problem("duty", "duty", f"duty is {duty!r}", remedy)
        return
    for name, runs in duty.items():
        if name not in registry.names():
            what = unknown("workload of the duty", str(name), registry.names())
            yield _problem("workload", "duty", what.rstrip("."), "")
        number = _number(runs)
        if number is None or number <= 0:
            what = f"duty has {runs!r} runs of {name} a day"
            yield _problem("number", "duty", what, "It must be a number above 0.")


def _ranges_broken(values: Mapping[str, Any]) -> Iterator[Problem]:
    for name, ends in (values.get("ranges") or {}).items():
        if ends is None:
            continue
        numbers = [_number(end) for end in ends] if isinstance(ends, list | tuple) else []
        low, high = numbers if len(numbers) == 2 else (None, None)
        if low is None or high is None or low >= high:
            remedy = "Give its low and its high end, as [1, 2]."
            yield _problem("range", name, f"the range of {name} is {ends!r}", remedy)
            continue
        for end in (low, high):
            yield from _number_broken(name, end, f"an end of the range of {name}")
        value = _number(values.get(name))
        if value is not None and not low <= value <= high:
            what = f"the range of {name}, {low:g} to {high:g}, does not hold {value:g}"
            yield _problem("outside", name, what, "Widen it.")


def _number(value: Any) -> float | None:
    """A finite number, also one in quotes, as templates yield it; None for all else."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
