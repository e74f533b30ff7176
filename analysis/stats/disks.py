"""The disks: in what two differ, and the condition of each before and after every run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from analysis.suite.records import Suite
from contract.documents import DiskFacts
from contract.estimates import Estimate

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
    """Return what differs between the disks that were measured: (field, value on each), in words.

    Headed by the disks' roles; empty where there is one disk.
    """
    disks = roles(suite)
    if len(disks) < 2:
        return []
    facts = [[name, *(_fact(suite, role, key) for role in disks)] for key, name in FIELDS.items()]
    rows = [[fact or "not known" for fact in row] for row in facts if len(set(row[1:])) > 1]
    return [["", *disks], *rows]


def unlike(suite: Suite) -> list[str]:
    """Return what the disks differ in besides their serial numbers: `model`, `firmware`."""
    return [row[0] for row in table(suite)[1:] if row[0] != FIELDS["serial"]]


def described(suite: Suite) -> str:
    """`they differ in model and firmware` or `two specimens of one model`."""
    fields = [field.removesuffix(" (B)").removesuffix(" (%)") for field in unlike(suite)]
    if not fields:
        return "two specimens of one model" if models(suite) else "of unknown models"
    together = ", ".join(fields[:-1])
    return f"they differ in {f'{together} and {fields[-1]}' if together else fields[-1]}"


def models(suite: Suite) -> list[str]:
    """Return what the disks call themselves, in the plan's order; none where that is not known."""
    known = (_fact(suite, role, "model") for role in roles(suite))
    return list(dict.fromkeys(filter(None, known)))


def roles(suite: Suite) -> list[str]:
    """Of the disks that the configurations lie on, in the plan's order."""
    return list(dict.fromkeys(filter(None, map(suite.disk_of, suite.configurations))))


def _fact(suite: Suite, role: str, key: str) -> str:
    """Return what the agent found of a disk before the first run, else what the plan has.

    Or empty.
    """
    planned = getattr(suite.plan.disks.get(role), key, "")
    return suite.machine.get(f"disks.{role}.{key}", str(planned))


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
    temperature_c: Mapping[str, Estimate]
    warmer_k: Mapping[str, float]
    counted: Mapping[str, float]
    settings: Mapping[str, tuple[str, ...]]
    life: Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class _Report:
    """What one run records of its configuration's disk, by `WHEN`."""

    cell: tuple[int, str]
    disk: str
    of: Mapping[str, DiskFacts]

    def numbers(self, key: str) -> dict[str, float]:
        values = ((when, self.of[when].get(key)) for when in WHEN)
        return {when: float(value) for when, value in values if isinstance(value, int | float)}

    def grown(self, key: str) -> float | None:
        """By how much a count grew during the run; None where it is not known at both ends."""
        numbers = self.numbers(key)
        return numbers["after"] - numbers["before"] if len(numbers) == len(WHEN) else None


def conditions(suite: Suite) -> list[Condition]:
    """By configuration, in the plan's order; only those whose runs record their disk."""
    reports = {name: list(_reports(suite, name)) for name in suite.configurations}
    base = reports.get(suite.baseline or "", [])
    return [_condition(name, runs, base) for name, runs in reports.items() if runs]


def limit_k(suite: Suite) -> float | None:
    """By how much a disk may be warmer or colder than at first before its runs are warned of."""
    return min((run.disks.limit_k for run in suite.runs if run.disks.limit_k), default=None)


def too_warm(condition: Condition, limit: float | None) -> tuple[str, float] | None:
    """When the disk was apart from the baseline's by more than the limit, and by how much."""
    when, apart_k = max(
        condition.warmer_k.items(), key=lambda item: abs(item[1]), default=("", 0.0)
    )
    return (when, apart_k) if limit is not None and abs(apart_k) > limit else None


def findings(suite: Suite, conditions: Sequence[Condition]) -> Iterator[str]:
    """Yield a sentence for each disk beyond the limit, and for each setting that changed."""
    yield from _written_apart(suite)
    limit, base = limit_k(suite), suite.label(suite.baseline or "")
    for condition in conditions:
        if apart := too_warm(condition, limit):
            way = "warmer" if apart[1] > 0 else "colder"
            yield (
                f"The disk under {suite.label(condition.configuration)} was {abs(apart[1]):.1f} K "
                f"{way} {apart[0]} its runs than that under {base} (limit {limit:g} K): what "
                "differs between the two may be heat."
            )
    for key, what in SETTINGS.items():
        settings = {
            suite.label(c.configuration): c.settings[key] for c in conditions if key in c.settings
        }
        if len({value for values in settings.values() for value in values}) > 1:
            each = "; ".join(
                f"{name}: {', then '.join(values)}" for name, values in settings.items()
            )
            yield f"The disks' {what} was not the same in all runs ({each})."


# SMART may count in units as large as this, and is read at both ends of a run.
SMART_UNIT_BYTES = 32 << 20
APART = 0.25


def _written_apart(suite: Suite) -> Iterator[str]:
    """Yield a sentence for each configuration whose disk reports other writes than the kernel."""
    for name in suite.configurations:
        pairs = [
            (by_disk, by_kernel)
            for report in _reports(suite, name)
            if (by_disk := report.grown("written_bytes")) is not None
            and (by_kernel := report.grown("kernel_written_bytes"))  # none of a disk's many paths
        ]
        by_disk, by_kernel = (sum(side) for side in zip(*pairs, strict=True)) if pairs else (0, 0)
        if abs(by_disk - by_kernel) > APART * by_kernel + SMART_UNIT_BYTES * len(pairs):
            yield (
                f"In {len(pairs)} runs on {suite.label(name)} the disk counted "
                f"{by_disk / 1e9:.3g} GB written, the kernel {by_kernel / 1e9:.3g} GB: one of "
                "the counters is wrong."
            )


def _reports(suite: Suite, name: str) -> Iterator[_Report]:
    planned = suite.plan.disks.get(suite.disk_of(name))
    for run in suite.compared_runs:
        if run.configuration != name:
            continue
        # By its serial number, which a SATA disk has within its WWID; without one the only disk.
        names = list(run.disks.before)
        if planned is not None and planned.serial:
            names = [name for name in names if planned.serial in name]
        elif len(names) > 1:
            names = []
        for disk in names[:1]:
            facts = {"before": run.disks.before[disk], "after": run.disks.after.get(disk, {})}
            yield _Report((run.block, run.workload), disk, facts)


def _condition(name: str, runs: Sequence[_Report], base: Sequence[_Report]) -> Condition:
    temperatures = {when: _values(runs, "temperature_c", when) for when in WHEN}
    cells, of_base = ({when: _by_cell(reports, when) for when in WHEN} for reports in (runs, base))
    both = {when: cells[when].keys() & of_base[when].keys() for when in WHEN}
    grown = {key: [more for run in runs if (more := run.grown(key)) is not None] for key in COUNTS}
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
        {w: Estimate(fmean(c), min(c), max(c)) for w, c in temperatures.items() if c},
        {
            when: fmean(cells[when][cell] - of_base[when][cell] for cell in common)
            for when, common in both.items()
            if common and runs is not base
        },
        {key: sum(values) for key, values in grown.items() if values},
        {key: tuple(values) for key, values in settings.items() if values},
        {key: (values[0], values[-1]) for key, values in life.items() if values},
    )


def _values(runs: Sequence[_Report], key: str, when: str) -> list[float]:
    return [n[when] for run in runs if when in (n := run.numbers(key))]


def _by_cell(runs: Sequence[_Report], when: str) -> dict[tuple[int, str], float]:
    """Temperature in °C by block and workload, of repeated runs the mean."""
    cells: dict[tuple[int, str], list[float]] = {}
    for run in runs:
        cells.setdefault(run.cell, []).extend(_values([run], "temperature_c", when))
    return {cell: fmean(values) for cell, values in cells.items() if values}
