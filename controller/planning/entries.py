"""The entries of a suite on the configurations of a plan: their workloads, and where they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contract.errors import ControllerError
from contract.parameters import ParameterValue
from contract.plan import WorkloadEntry
from controller.planning.known_names import require_known
from controller.planning.schedule import DRIFT_CHECK, Turn
from controller.planning.suites import Suite, SuiteWorkload
from workloads import registry
from workloads.base import WorkloadError

# Reports use this for the sum over workloads.
RESERVED = "all"


def plan_entries(
    suite: Suite, names: Sequence[str], database: str, *, chosen: bool
) -> tuple[list[WorkloadEntry], list[Turn]]:
    """Return the suite's entries and, in the same order, where and how often they run.

    `names` are the plan's configurations. If they were `chosen` instead of the suite's own, what an
    entry names besides is ignored, and an entry with none of them left is no part of the plan.
    `database` is the target's server. Raises ControllerError.
    """
    entries: list[WorkloadEntry] = []
    turns: list[Turn] = []
    declared: set[str] = set()
    for item in suite.workloads:
        workload = item.workload or item.name
        if DRIFT_CHECK in (item.name, workload):
            raise ControllerError("drift-check-entry")
        require_known("workload", [workload], registry.names())
        if item.name != workload and item.name in (*registry.names(), RESERVED):
            raise ControllerError("name-taken", entry=item.name, workload=workload)
        if item.name in declared:
            raise ControllerError("entry-twice", entry=item.name, workload=workload)
        declared.add(item.name)
        entry = _complete_entry(item, workload, database)
        configurations = select_configurations(
            f"the workload {item.name}", item.configurations, names, chosen=chosen
        )
        if configurations:
            entries.append(entry)
            turns.append(Turn(item.name, configurations, item.repeat))
    if not entries:
        raise ControllerError("no-workload-runs")
    return entries, turns


def select_configurations(
    what: str, wanted: Sequence[str] | None, names: Sequence[str], *, chosen: bool
) -> tuple[str, ...]:
    """Return those of the plan's configurations that `wanted` names, in the plan's order.

    None is all of them. Raises ControllerError for an unknown name, unless they were `chosen`.
    """
    if wanted is None:
        return tuple(names)
    if not chosen:
        require_known(f"configuration of {what}", wanted, names)
    return tuple(name for name in names if name in wanted)


def complete(workload: str, parameters: Mapping[str, ParameterValue]) -> dict[str, ParameterValue]:
    """Return all parameters of a workload; raises ControllerError."""
    try:
        return registry.complete(workload, parameters)
    except WorkloadError as error:
        raise ControllerError(error) from error


def _complete_entry(item: SuiteWorkload, workload: str, database: str) -> WorkloadEntry:
    """Return the entry with all parameters; the target's database unless the suite names one."""
    server = {"server": database} if workload == "sql" else {}
    return WorkloadEntry(
        item.name,
        complete(workload, {**server, **item.parameters}),
        item.overall,
        workload=None if workload == item.name else workload,
    )
