"""The entries of a plan: workloads with all parameters, and the configurations they run on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contract.errors import ControllerError
from contract.parameters import ParameterValue
from contract.plan import WorkloadEntry
from controller.planning.known_names import require_known
from controller.planning.schedule import DRIFT_CHECK, Turn
from controller.planning.suites import Suite
from workloads import registry
from workloads.base import WorkloadError

# Name of the sum over workloads in reports.
RESERVED = "all"


def plan_entries(
    suite: Suite, names: Sequence[str], database: str, *, chosen: bool
) -> tuple[list[WorkloadEntry], list[Turn]]:
    """Return the suite's entries and, in the same order, their configurations and repetitions.

    `names` are the plan's configurations. If the user has `chosen` them, configurations that only
    the suite names are ignored, and entries without any configuration are left out. `database` is
    the target's server, which a suite may override. Raises ControllerError.
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
        server = {"server": database} if workload == "sql" else {}
        entry = WorkloadEntry(
            item.name,
            complete(workload, {**server, **item.parameters}),
            item.overall,
            workload=None if workload == item.name else workload,
        )
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
    part: str, requested: Sequence[str] | None, names: Sequence[str], *, chosen: bool
) -> tuple[str, ...]:
    """Return those of the plan's configurations that a part of the suite requests, or all for None.

    They keep the plan's order. Raises ControllerError for an unknown name, unless the user has
    `chosen` the plan's configurations.
    """
    if requested is None:
        return tuple(names)
    if not chosen:
        require_known(f"configuration of {part}", requested, names)
    return tuple(name for name in names if name in requested)


def complete(workload: str, parameters: Mapping[str, ParameterValue]) -> dict[str, ParameterValue]:
    """Add the defaults of a workload to its parameters; raises ControllerError."""
    try:
        return registry.complete(workload, parameters)
    except WorkloadError as error:
        raise ControllerError(error) from error
