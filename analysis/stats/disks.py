"""The disks: in what two differ, and the condition of each before and after every run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from analysis.stats.stats import Span
from analysis.suite.documents import mapping
from analysis.suite.records import Suite

# Keys of a disk in provenance/before.json, and what they are called.
FIELDS = {
    "model": "model",
    "firmware": "firmware",
    "transport": "bus",
    "link": "link",
    "size_bytes": "capacity (B)",
    "logical_block_bytes": "sector (B)",
    "spare_percent": "spare space (%)",
    "serial": "serial number",
}


def across(suite: Suite, *names: str | None) -> bool:
    """Whether these configurations lie on more than one disk."""
    return len({suite.disk_of(name) for name in names if name} - {""}) > 1


def table(suite: Suite) -> list[list[str]]:
    """What differs between the disks that were measured: (field, value on each), in words.

    Headed by the disks' roles; empty where there is one disk.
    """
    there = roles(suite)
    if len(there) < 2:
        return []
    known = [_facts(suite, role) for role in there]
    rows = [
        [called, *(str(facts.get(key) or "not known") for facts in known)]
        for key, called in FIELDS.items()
        if len({str(facts.get(key)) for facts in known}) > 1
    ]
    return [["", *there], *rows]


def unlike(suite: Suite) -> list[str]:
    """What the disks differ in besides their serial numbers: `model`, `firmware`."""
    return [row[0] for row in table(suite)[1:] if row[0] != FIELDS["serial"]]


def described(suite: Suite) -> str:
    """`they differ in model and firmware` or `two specimens of one model`."""
    fields = [field.removesuffix(" (B)").removesuffix(" (%)") for field in unlike(suite)]
    if not fields:
        known = any(_facts(suite, role).get("model") for role in roles(suite))
        return "two specimens of one model" if known else "of unknown models"
    together = ", ".join(fields[:-1])
    return f"they differ in {f'{together} and {fields[-1]}' if together else fields[-1]}"


def models(suite: Suite) -> list[str]:
    """What the disks call themselves, in the plan's order; none where that is not known."""
    known = (_facts(suite, role).get("model") for role in roles(suite))
    return list(dict.fromkeys(str(model) for model in known if model))


def roles(suite: Suite) -> list[str]:
    """Of the disks that the configurations lie on, in the plan's order."""
    return list(dict.fromkeys(filter(None, map(suite.disk_of, suite.configurations))))


def _facts(suite: Suite, role: str) -> Mapping[str, Any]:
    """What the agent found of a disk before the first run, else what the plan says."""
    planned = mapping(mapping(suite.plan.get("disks")).get(role))
    return {**planned, **mapping(mapping(suite.before.get("disks")).get(role))}


WHEN = ("before", "after")
# Keys of a disk in run.json: what should not change, what counts up, what is left of its life.
SETTINGS = {
    "link": "link or queue",
    "write_cache": "write cache",
    "latency_tolerance_us": "latency tolerance (µs)",
}
COUNTS = ("throttled", "written_bytes", "errors")
LIFE = ("spare_percent", "used_percent")


@dataclass(frozen=True)
class Condition:
    """Of the disk under one configuration, over its finished runs; without what is not reported.

    `temperature_c` has the mean with the lowest and the highest, and `warmer_k` how much warmer the
    disk was than under the baseline in the same blocks and workloads (the mean), both by `WHEN`.
    `counted` is what `COUNTS` grew by during the runs, `settings` what was seen of `SETTINGS`, and
    `life` the first and the last of `LIFE`.
    """

    configuration: str
    disk: str
    temperature_c: Mapping[str, Span]
    warmer_k: Mapping[str, float]
    counted: Mapping[str, float]
    settings: Mapping[str, tuple[str, ...]]
    life: Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class _Told:
    """What one run tells of its configuration's disk, by `WHEN`."""

    cell: tuple[int, str]
    disk: str
    of: Mapping[str, Mapping[str, Any]]

    def numbers(self, key: str) -> dict[str, float]:
        found = ((when, self.of[when].get(key)) for when in WHEN)
        return {when: float(value) for when, value in found if isinstance(value, int | float)}


def conditions(suite: Suite) -> list[Condition]:
    """By configuration, in the plan's order; only those whose runs tell of their disk."""
    told = {name: list(_told(suite, name)) for name in suite.configurations}
    base = told.get(suite.baseline or "", [])
    return [_condition(name, runs, base) for name, runs in told.items() if runs]


def limit_k(suite: Suite) -> float | None:
    """By how much a disk may be warmer or colder than at first before its runs are warned of."""
    given = (run.disks.get("limit_k") for run in suite.runs)
    return min((float(k) for k in given if isinstance(k, int | float)), default=None)


def too_warm(condition: Condition, limit: float | None) -> tuple[str, float] | None:
    """When the disk was apart from the baseline's by more than the limit, and by how much."""
    when, apart_k = max(
        condition.warmer_k.items(), key=lambda item: abs(item[1]), default=("", 0.0)
    )
    return (when, apart_k) if limit is not None and abs(apart_k) > limit else None


def findings(suite: Suite, found: Sequence[Condition]) -> Iterator[str]:
    """A sentence for each disk apart by more than the limit, and for each setting that changed."""
    limit, base = limit_k(suite), suite.label(suite.baseline or "")
    for one in found:
        if apart := too_warm(one, limit):
            way = "warmer" if apart[1] > 0 else "colder"
            yield (
                f"The disk under {suite.label(one.configuration)} was {abs(apart[1]):.1f} K {way} "
                f"{apart[0]} its runs than that under {base} (limit {limit:g} K): what differs "
                "between the two may be heat."
            )
    for key, what in SETTINGS.items():
        seen = {suite.label(c.configuration): c.settings[key] for c in found if key in c.settings}
        if len({value for values in seen.values() for value in values}) > 1:
            each = "; ".join(f"{name}: {', then '.join(values)}" for name, values in seen.items())
            yield f"The disks' {what} was not the same in all runs ({each})."


def _told(suite: Suite, name: str) -> Iterator[_Told]:
    planned = mapping(mapping(suite.plan.get("disks")).get(suite.disk_of(name)))
    for run in suite.compared_runs:
        if run.configuration == name:
            disk, *_ = *_own(run.disks.get("before"), planned), ""
            of = {when: mapping(mapping(run.disks.get(when)).get(disk)) for when in WHEN}
            if disk:
                yield _Told((run.block, run.workload), disk, of)


def _own(told: Any, planned: Mapping[str, Any]) -> list[str]:
    """The disk that the plan means, by its serial number, which a SATA disk has within its WWID;
    without one in the plan the only disk there is."""
    serial, names = str(planned.get("serial") or ""), list(map(str, mapping(told)))
    if serial:
        return [name for name in names if serial in name]
    return names if len(names) == 1 else []


def _condition(name: str, runs: Sequence[_Told], base: Sequence[_Told]) -> Condition:
    temperatures = {when: _values(runs, "temperature_c", when) for when in WHEN}
    cells, of_base = ({when: _by_cell(told, when) for when in WHEN} for told in (runs, base))
    both = {when: cells[when].keys() & of_base[when].keys() for when in WHEN}
    grown = {
        key: [n["after"] - n["before"] for run in runs if len(n := run.numbers(key)) == len(WHEN)]
        for key in COUNTS
    }
    settings = {
        key: dict.fromkeys(
            str(run.of[when][key])
            for run in runs
            for when in WHEN
            if run.of[when].get(key) is not None
        )
        for key in SETTINGS
    }
    life = {key: [v for run in runs for v in run.numbers(key).values()] for key in LIFE}
    return Condition(
        name,
        runs[0].disk,
        {w: Span(fmean(c), min(c), max(c)) for w, c in temperatures.items() if c},
        {
            when: fmean(cells[when][cell] - of_base[when][cell] for cell in common)
            for when, common in both.items()
            if common and runs is not base
        },
        {key: sum(values) for key, values in grown.items() if values},
        {key: tuple(values) for key, values in settings.items() if values},
        {key: (values[0], values[-1]) for key, values in life.items() if values},
    )


def _values(runs: Sequence[_Told], key: str, when: str) -> list[float]:
    return [n[when] for run in runs if when in (n := run.numbers(key))]


def _by_cell(runs: Sequence[_Told], when: str) -> dict[tuple[int, str], float]:
    """Temperature in °C by block and workload, of repeated runs the mean."""
    cells: dict[tuple[int, str], list[_Told]] = {}
    for run in runs:
        cells.setdefault(run.cell, []).append(run)
    found = {cell: _values(same, "temperature_c", when) for cell, same in cells.items()}
    return {cell: fmean(values) for cell, values in found.items() if values}
