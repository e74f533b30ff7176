"""Check that a plan asks of a target only what that target's own inventory permits.

A suite's folder may have come from elsewhere, and root runs or reads the configurations, file
systems and files that its plan names. So all of it must be in the description of the target that
`fde provision` wrote. A suite may choose only its workloads and their declared parameters.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent import needs
from agent.storage import registry
from agent.storage.base import settings
from contract.extensions import ExtensionError
from contract.plan import Configuration, Disk, Plan, PlanError, StorageSpec, TargetDocument
from workloads import registry as workloads
from workloads.base import WorkloadError


def require_own(plan: Plan, target: TargetDocument) -> None:
    """Raise PlanError with everything in a plan that the target does not permit.

    NeedsError if it writes more than a disk of the target may write in its life.
    """
    if foreign := list(_foreign(plan, target)):
        raise PlanError("plan-foreign", suite_id=plan.suite_id, foreign="; ".join(foreign))
    needs.require_within_limits(plan, target.disks, None, needs.written_bytes(plan))


def _foreign(plan: Plan, target: TargetDocument) -> Iterator[str]:
    storage = target.storage
    for role, disk in plan.storage.disks.items():
        own_disk = storage.disks.get(role)
        if own_disk is None or _identity(disk) != _identity(own_disk):
            yield f"disk {role} ({disk.by_id}, serial {disk.serial})"
    if plan.storage.extent != storage.extent:
        yield f"an extent of {plan.storage.extent.size_bytes} bytes"
    if plan.storage.filesystem != storage.filesystem:
        asked = plan.storage.filesystem
        yield f"the file system {' '.join([asked.type, *asked.options, asked.mount_options])}"
    for configuration in plan.storage.configurations.values():
        if reason := _foreign_configuration(configuration, storage):
            yield f"configuration {configuration.name} ({reason})"
    for name, asset in plan.assets.items():
        if asset != target.assets.get(name):
            yield f"asset {name} ({asset.path})"
    if plan.quiet != target.quiet:
        yield "what is stopped and switched for a suite (fde_stop, fde_governor, fde_turbo)"
    for load in plan.workloads:
        try:
            workloads.complete(load.workload_name, load.parameters)
        except WorkloadError as error:
            if load.workload_name in workloads.names():
                yield f"workload {load.name} ({str(error).rstrip('.')})"


def _identity(disk: Disk) -> tuple[str, str, int, str | None]:
    return disk.by_id, disk.serial, disk.size_bytes, disk.file


def _foreign_configuration(configuration: Configuration, storage: StorageSpec) -> str:
    """Return the reason why a configuration is not one of the target's; empty if it is."""
    permitted = storage.configurations.get(configuration.name)
    if permitted is None:
        return "there is none of that name"
    if (configuration.kind, configuration.disk) != (permitted.kind, permitted.disk):
        return f"there it is {permitted.kind} on disk {permitted.disk}"
    try:
        kind = registry.load(configuration.kind)
    except ExtensionError as error:
        return str(error).rstrip(".")
    planned, allowed = (settings(kind, c.disk, c.settings)[0] for c in (configuration, permitted))
    for field in kind.fields:
        if planned.get(field.name) != allowed.get(field.name):
            return f"there it has another {field.name}"
    if unknown := sorted(set(configuration.settings) - {field.name for field in kind.fields}):
        return f"{', '.join(unknown)} means nothing for {configuration.kind}"
    same = configuration.filesystem == permitted.filesystem
    return "" if same else "there it has another file system"
