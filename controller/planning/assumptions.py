"""What an inventory assumes of prices and habits: the rules that its numbers must keep."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from contract.names import unknown
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


def broken(values: Mapping[str, Any]) -> Iterator[str]:
    """Every rule that does not hold, each a sentence with the way out."""
    for key in values.keys() - KNOWN:
        yield f"fde_assumptions: {key} is unknown; known are {', '.join(sorted(KNOWN))}"
    for key in NUMBERS:
        value = values.get(key)
        if value is not None and (reason := _number_broken(key, value)):
            yield f"fde_assumptions: {key} {reason}"
    if values.get("after_work") not in (None, *AFTER_WORK):
        yield (
            f"fde_assumptions: after_work is {values['after_work']!r}: say what the machine does "
            f"once its work is done, {' or '.join(AFTER_WORK)}"
        )
    for reason in (*_duty_broken(values.get("duty")), *_ranges_broken(values)):
        yield f"fde_assumptions: {reason}"


def _number_broken(key: str, value: Any) -> str:
    number = _number(value)
    if key == "discount_rate":
        if number is None or not 0 <= number < 1:
            return f"is {value!r}: give a share a year from 0 to below 1, as 0.03 for 3 %"
    elif number is None or number <= 0:
        return f"is {value!r}: give a number above 0"
    return ""


def _duty_broken(duty: Any) -> Iterator[str]:
    if duty is None:
        return
    if not isinstance(duty, Mapping) or not duty:
        yield f"duty is {duty!r}: give runs a day by workload, as {{kernel_tree: 24}}, or no duty"
        return
    for name, runs in duty.items():
        if name not in registry.names():
            yield unknown("workload of the duty", str(name), registry.names())
        number = _number(runs)
        if number is None or number <= 0:
            yield f"duty has {runs!r} runs of {name} a day: give a number above 0"


def _ranges_broken(values: Mapping[str, Any]) -> Iterator[str]:
    for name, ends in (values.get("ranges") or {}).items():
        if ends is None:
            continue
        numbers = [_number(end) for end in ends] if isinstance(ends, list | tuple) else []
        low, high = numbers if len(numbers) == 2 else (None, None)
        if low is None or high is None or low >= high:
            yield f"the range of {name} is {ends!r}: give its low and its high end, as [1, 2]"
            continue
        for end in (low, high):
            if reason := _number_broken(name, end):
                yield f"an end of the range of {name} {reason}"
        value = _number(values.get(name))
        if value is not None and not low <= value <= high:
            yield f"the range of {name}, {low:g} to {high:g}, does not hold {value:g}: widen it"


def _number(value: Any) -> float | None:
    """A finite number, also one in quotes, as templates yield it; None for all else."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
