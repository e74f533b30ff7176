"""The account of the work of each phase: planned, reported, counted, and seen by the kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from analysis.suite.records import Phase, Suite
from contract import account
from contract.command_results import PhaseWork

# The accounts by unit: columns of a row, and the fields of a phase that have them.
_BY_UNIT = {"planned": "planned", "reported": "reported", "counted": "work"}
_Key = tuple[str, str, str]  # workload, phase and configuration


def phase_works(suite: Suite) -> list[PhaseWork]:
    """Return a row a workload × phase × configuration × unit, with medians over finished runs.

    Empty where no run has an account. A phase that counts in no unit has a row of an empty one.
    """
    phases: dict[_Key, list[Phase]] = {}
    codes: dict[_Key, set[str]] = {}
    for run in suite.compared_runs:
        for phase in run.measured_phases:
            phases.setdefault((run.workload, phase.name, run.configuration), []).append(phase)
        for check in run.checks:
            if check.name == account.NAME and not check.ok:
                key = run.workload, str(check.facts.get("phase", "")), run.configuration
                codes.setdefault(key, set()).add(check.cause)
    if not any(_has_account(phase) for same in phases.values() for phase in same):
        return []
    places = [suite.workloads, list(dict.fromkeys(key[1] for key in phases)), suite.configurations]

    def place(key: _Key) -> list[int]:
        return [o.index(n) if n in o else len(o) for o, n in zip(places, key, strict=True)]

    return [
        _row(key, unit, phases[key], tuple(sorted(codes.get(key, ()))))
        for key in sorted(phases, key=place)
        for unit in _units(phases[key])
    ]


def _has_account(phase: Phase) -> bool:
    """Whether a phase has more than what was counted and written, which all runs have."""
    return bool(phase.planned or phase.reported) or phase.disk_read_bytes is not None


def _units(phases: Iterable[Phase]) -> list[str]:
    """Return the units of all three accounts; one that is empty where there is none."""
    units = (unit for p in phases for field in _BY_UNIT.values() for unit in getattr(p, field))
    return list(dict.fromkeys(units)) or [""]


def _row(key: _Key, unit: str, phases: Sequence[Phase], codes: tuple[str, ...]) -> PhaseWork:
    amounts = {
        name: _median(getattr(phase, field).get(unit) for phase in phases)
        for name, field in _BY_UNIT.items()
    }
    traffic = {name: _median(getattr(phase, name) for phase in phases) for name in TRAFFIC}
    known: dict[str, Any] = {
        **amounts,
        **traffic,
        "unit": unit,
        "runs": len(phases),
        "codes": codes,
    }
    return PhaseWork(*key, **known)


def _median(amounts: Iterable[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return median(known) if known else None


TRAFFIC = (
    "disk_read_bytes",
    "disk_written_bytes",
    "disk_discarded_bytes",
    "mapping_read_bytes",
    "mapping_written_bytes",
)
