"""Differences between the disks of a suite, and each disk's condition before and after runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from analysis.suite.records import Suite
from contract.documents import DiskFacts
from contract.estimates import Estimate
from contract.notes import Note

# Keys of a disk in provenance/before.json, and their labels.
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
    """Return whether these configurations use more than one disk."""
    return len({suite.disk_of(name) for name in names if name} - {""}) > 1


def table(suite: Suite) -> list[list[str]]:
    """Return a table of the fields in which the measured disks differ, one disk a column.

    The first row has the disks' roles; the table is empty if there is one disk.
    """
    disks = roles(suite)
    if len(disks) < 2:
        return []
    facts = [[name, *(_fact(suite, role, key) for role in disks)] for key, name in FIELDS.items()]
    rows = [[fact or "not known" for fact in row] for row in facts if len(set(row[1:])) > 1]
    return [["", *disks], *rows]


def unlike(suite: Suite) -> list[str]:
    """Return the labels of the fields, except serial numbers, in which the disks differ."""
    return [row[0] for row in table(suite)[1:] if row[0] != FIELDS["serial"]]


def described(suite: Suite) -> str:
    """Describe the difference, as in `they differ in model and firmware`."""
    fields = [field.removesuffix(" (B)").removesuffix(" (%)") for field in unlike(suite)]
    if not fields:
        return "two specimens of one model" if models(suite) else "of unknown models"
    together = ", ".join(fields[:-1])
    return f"they differ in {f'{together} and {fields[-1]}' if together else fields[-1]}"


def models(suite: Suite) -> list[str]:
    """Return the known models of the disks, in the plan's order."""
    names = (_fact(suite, role, "model") for role in roles(suite))
    return list(dict.fromkeys(filter(None, names)))


def roles(suite: Suite) -> list[str]:
    """Return the roles of the disks that the configurations use, in the plan's order."""
    return list(dict.fromkeys(filter(None, map(suite.disk_of, suite.configurations))))


def _fact(suite: Suite, role: str, key: str) -> str:
    """Return a disk's fact from the target before the first run, else from the plan, or ""."""
    planned = getattr(suite.plan.disks.get(role), key, "")
    return suite.machine.get(f"disks.{role}.{key}", str(planned))


WHEN = ("before", "after")
# Keys of a disk in run.json: settings that should not change.
SETTINGS = {
    "link": "link or queue",
    "write_cache": "write cache",
    "latency_tolerance_us": "latency tolerance (µs)",
}


@dataclass(frozen=True)
class Condition:
    """Condition of the disk under one configuration over its finished runs.

    `temperature_c` has the mean with the lowest and the highest, and `warmer_k` the mean difference
    to the disk under the baseline in the same blocks and workloads, both by `WHEN`.
    `media_errors` are those counted during the runs, `settings` the observed values of `SETTINGS`.
    Keys that the disk does not report are missing.
    """

    configuration: str
    disk: str
    temperature_c: Mapping[str, Estimate]
    warmer_k: Mapping[str, float]
    media_errors: float
    settings: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class _Report:
    """Facts that one run records about its configuration's disk, by `WHEN`."""

    cell: tuple[int, str]
    disk: str
    facts: Mapping[str, DiskFacts]

    def numbers(self, key: str) -> dict[str, float]:
        values = ((when, self.facts[when].get(key)) for when in WHEN)
        return {when: float(value) for when, value in values if isinstance(value, int | float)}

    def growth(self, key: str) -> float | None:
        """Return the growth of a count during the run; None unless known at both ends."""
        numbers = self.numbers(key)
        return numbers["after"] - numbers["before"] if len(numbers) == len(WHEN) else None


def conditions(suite: Suite) -> list[Condition]:
    """Return the disk's condition under each configuration whose runs record their disk."""
    reports = {name: list(_reports(suite, name)) for name in suite.configurations}
    base = reports.get(suite.baseline or "", [])
    return [_condition(name, runs, base) for name, runs in reports.items() if runs]


def limit_k(suite: Suite) -> float | None:
    """Return the difference of temperature from which on runs have a warning, in K."""
    return min((run.disks.limit_k for run in suite.runs if run.disks.limit_k), default=None)


def too_warm(condition: Condition, limit: float | None) -> tuple[str, float] | None:
    """Return when the disk differs most from the baseline's, and by how many K above the limit."""
    when, warmer_k = max(
        condition.warmer_k.items(), key=lambda item: abs(item[1]), default=("", 0.0)
    )
    return (when, warmer_k) if limit is not None and abs(warmer_k) > limit else None


def findings(suite: Suite, conditions: Sequence[Condition]) -> Iterator[str]:
    """Yield a sentence for each disk beyond the limit, and for each setting that changed."""
    yield from (note.sentence for note in file_notes(suite))
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
        if condition.media_errors > 0:
            yield (
                f"The disk under {suite.label(condition.configuration)} counted "
                f"{condition.media_errors:g} media errors during its runs."
            )
    for key, label in SETTINGS.items():
        settings = {
            suite.label(c.configuration): c.settings[key] for c in conditions if key in c.settings
        }
        if len({value for values in settings.values() for value in values}) > 1:
            listed = "; ".join(
                f"{name}: {', then '.join(values)}" for name, values in settings.items()
            )
            yield f"The disks' {label} was not the same in all runs ({listed})."


def file_notes(suite: Suite) -> Iterator[Note]:
    """Yield a note for each circumstance of a disk that is a file (provenance/before.json)."""
    for role in roles(suite):
        facts = {key: suite.machine.get(f"disks.{role}.{key}") for key in ("filesystem", "layers")}
        filesystem, layers = facts["filesystem"], (facts["layers"] or "").split(", ")
        if filesystem is None:
            continue
        sentences = {
            "file-disk": f"The disk {role} is a file on {filesystem}: that file system's work and "
            "its disk are below every configuration alike.",
            "file-disk-encrypted": f"The file of disk {role} is itself on dm-crypt: dm-crypt on it "
            "is a second layer, and its cost may differ from that of a single one.",
            "file-disk-copies": f"{filesystem} copies on write; the file of disk {role} is "
            "excluded from that.",
            "file-disk-usb": f"The file of disk {role} is on a disk connected by USB.",
        }
        applies = {
            "file-disk-encrypted": "dm-crypt" in layers,
            "file-disk-copies": filesystem == "btrfs",
            "file-disk-usb": "USB disk" in layers,
        }
        for code, sentence in sentences.items():
            if applies.get(code, True):
                yield Note(code, {"disk": role, **facts}, sentence)


# Largest unit in which SMART counts; it is read at both ends of a run.
SMART_UNIT_BYTES = 32 << 20
APART = 0.25


def _written_apart(suite: Suite) -> Iterator[str]:
    """Yield a sentence for each configuration whose disk and kernel disagree about writes."""
    for name in suite.configurations:
        pairs = [
            (by_disk, by_kernel)
            for report in _reports(suite, name)
            if (by_disk := report.growth("written_bytes")) is not None
            and (by_kernel := report.growth("kernel_written_bytes"))  # none of a disk's many paths
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
        # A SATA disk has its serial number within its WWID; without a number take the only disk.
        names = list(run.disks.before)
        if planned is not None and planned.serial:
            names = [name for name in names if planned.serial in name]
        elif len(names) > 1:
            names = []
        for disk in names[:1]:
            facts = {"before": run.disks.before[disk], "after": run.disks.after.get(disk, {})}
            yield _Report((run.block, run.workload), disk, facts)


def _condition(name: str, runs: Sequence[_Report], base: Sequence[_Report]) -> Condition:
    temperature_c, warmer_k = {}, {}
    for when in WHEN:
        cells, base_cells = (_temperatures(reports, when) for reports in (runs, base))
        if every := [value for values in cells.values() for value in values]:
            temperature_c[when] = Estimate(fmean(every), min(every), max(every))
        shared = cells.keys() & base_cells.keys()
        if shared and runs is not base:
            warmer_k[when] = fmean(fmean(cells[c]) - fmean(base_cells[c]) for c in shared)
    settings = {
        key: dict.fromkeys(
            str(run.facts[when][key])
            for run in runs
            for when in WHEN
            if run.facts[when].get(key) is not None
        )
        for key in SETTINGS
    }
    return Condition(
        name,
        runs[0].disk,
        temperature_c,
        warmer_k,
        sum(run.growth("errors") or 0 for run in runs),
        {key: tuple(values) for key, values in settings.items() if values},
    )


def _temperatures(runs: Sequence[_Report], when: str) -> dict[tuple[int, str], list[float]]:
    """Return temperatures in °C by block and workload."""
    cells: dict[tuple[int, str], list[float]] = {}
    for run in runs:
        if (value := run.numbers("temperature_c").get(when)) is not None:
            cells.setdefault(run.cell, []).append(value)
    return cells
