"""Which suites make a group of hosts, and what they have in common; group.json (`fde-group/1`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from analysis.suite.documents import read_document
from analysis.suite.records import DRIFT_CHECK, Suite, SuiteError
from contract import names, strict_json
from contract.documents import GroupDocument, IdentityDocument
from contract.plan import Configuration, WorkloadEntry

FILE = "group.json"
# What may differ between hosts and yet be compared: it is said.
PLAN = {
    "suite": "suite",
    "scale": "sizes",
    "settle_s": "rest before a run",
    "tail_s": "tail",
    "pad_s": "rest beside phases",
    "rapl_hz": "sampling of the counters",
    "filesystem": "file system",
    "extent": "extent of the data",
    "blocks": "number of blocks planned",
}


@dataclass(frozen=True)
class Shared:
    """Names of what all hosts have alike, in the first plan's order, and remarks."""

    workloads: tuple[str, ...]
    configurations: tuple[str, ...]
    remarks: tuple[str, ...]


def is_group(folder: Path) -> bool:
    """Whether a folder is that of a group, not of a suite."""
    return (folder / FILE).exists()


def members(folder: Path) -> list[Path]:
    """Return the folders of a group's suites, beside its own. Raises SuiteError."""
    try:
        if strange := names.stranger(folder):
            raise ValueError(strange)
        document = strict_json.parse(GroupDocument, (folder / FILE).read_bytes())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SuiteError("group-unread", path=folder / FILE, reason=reason) from None
    return [folder.parent / suite_id for suite_id in document.suites]


def shared(suites: Sequence[Suite]) -> Shared:
    """Return what may be compared between hosts. Raises SuiteError where nothing may."""
    if len(suites) < 2:
        raise SuiteError("one-host-only")
    for first, other in combinations(suites, 2):
        _require_other_machine(first, other)
    _require_same(suites, "what their figures are", [s.plan.origin for s in suites])
    _require_same(suites, "the margin of equivalence", [s.margin for s in suites])
    _require_same(suites, "the baseline", [s.baseline for s in suites])
    remarks: list[str] = []
    first, entries, stacks = suites[0], [s.entries for s in suites], [s.stacks for s in suites]
    workloads = _alike("workload", first.workloads, suites, entries, remarks)
    configurations = _alike("configuration", first.configurations, suites, stacks, remarks)
    remarks += [*_one_image(suites), *_plans(suites)]
    return Shared(workloads, configurations, tuple(remarks))


def _require_other_machine(first: Suite, other: Suite) -> None:
    if first.suite_id == other.suite_id:
        raise SuiteError("named-twice", suite=first.suite_id)
    if first.host == other.host:
        raise SuiteError("same-host", suite=first.suite_id, other=other.suite_id, host=first.host)
    a, b = _identity(first), _identity(other)
    if a and b and a.boot_id is not None and a.boot_id == b.boot_id:
        raise SuiteError("same-machine", host=first.host, other=other.host)


def _one_image(suites: Sequence[Suite]) -> Iterator[str]:
    """Systems made from one image have one machine-id; so has one machine at two times."""
    for first, other in combinations(suites, 2):
        a, b = _identity(first), _identity(other)
        if a and b and a.machine_id == b.machine_id:
            yield (
                f"{first.host} and {other.host} have the same machine-id: systems made from one "
                "image, or one machine at two times, which would be no two hosts."
            )


def _identity(suite: Suite) -> IdentityDocument | None:
    return read_document(IdentityDocument, suite.folder / "identity.json", [])


def _require_same(suites: Sequence[Suite], what: str, values: Sequence[object]) -> None:
    if any(value != values[0] for value in values):
        by_host = ", ".join(f"{s.host} {value}" for s, value in zip(suites, values, strict=True))
        raise SuiteError("hosts-differ", difference=what, values_by_host=by_host)


def _alike(
    kind: str,
    first_names: Sequence[str],
    suites: Sequence[Suite],
    entries: Sequence[Mapping[str, Configuration] | Mapping[str, WorkloadEntry]],
    remarks: list[str],
) -> tuple[str, ...]:
    """Return the names of entries that are the same in all plans; remark on the others."""
    kept = []
    for name in dict.fromkeys([*first_names, *(name for entry in entries for name in entry)]):
        without = [s.host for s, entry in zip(suites, entries, strict=True) if name not in entry]
        if name == DRIFT_CHECK:
            continue
        if not without and all(entry[name] == entries[0][name] for entry in entries):
            kept.append(name)
            continue
        why = f"{', '.join(without)} has none" if without else "it is not the same on every host"
        remarks.append(f"{kind.capitalize()} {name} is left out: {why}.")
    if not kept:
        raise SuiteError("nothing-same", kind=kind)
    return tuple(kept)


def _plans(suites: Sequence[Suite]) -> Iterator[str]:
    groups = {suite.plan.group for suite in suites}
    if len(groups) > 1 or None in groups:
        yield "These suites were not planned as one group, and may have run at other times."
    for key, what in PLAN.items():
        values = [getattr(suite.plan, key) for suite in suites]
        if any(value != values[0] for value in values):
            by_host = [f"{s.host} {_text(v)}" for s, v in zip(suites, values, strict=True)]
            yield f"Not the same on every host: {what} ({', '.join(by_host)})."


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return f"{value:g}" if isinstance(value, float) else json.dumps(value, default=vars)
