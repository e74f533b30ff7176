"""Whether a plan asks of a target only what that target's own inventory has.

A suite's folder may have come from elsewhere, and what its plan has of configurations, file
systems and files is run or read by root. So all of it must stand in the description of the target
that `fde provision` brought, but for what a suite itself may choose: its workloads and their
declared parameters, and its factors, as far as they name neither files nor devices.
"""

from __future__ import annotations

import getopt
import re
from collections.abc import Iterator

from agent import needs
from agent.storage import registry
from agent.storage.base import settings
from contract.extensions import ExtensionError
from contract.plan import Configuration, Filesystem, Plan, PlanError, StorageSpec, TargetDocument
from workloads import registry as workloads
from workloads.base import WorkloadError

# Options of mkfs that a factor may give, as getopt(3) has them: all others may name files.
MKFS_OPTIONS = {
    "ext4": "b:C:E:Fg:i:I:jL:m:N:O:U:",
    "xfs": "b:fi:L:m:n:s:",
    "btrfs": "d:fL:m:n:O:s:U:",
    "f2fs": "a:fi:l:O:s:z:",
}
_VALUE = re.compile(r"[A-Za-z0-9^=:,._-]*")
_MOUNT_OPTIONS = re.compile(r"(?:[a-z0-9_]+(?:=[a-z0-9_:]+)?(?:,(?!$)|$))*")
_LAYERS = {"loop", "bind", "rbind", "remount", "device", "logdev", "rtdev", "journal_dev"}


def require_own(plan: Plan, target: TargetDocument) -> None:
    """Raise PlanError with everything in a plan that is not the target's own.

    NeedsError where it writes more than a disk of the target may have written in its life.
    """
    if foreign := list(_foreign(plan, target)):
        raise PlanError("plan-foreign", suite_id=plan.suite_id, foreign="; ".join(foreign))
    needs.require_within_limits(plan, target.disks, None, needs.written_bytes(plan))


def _foreign(plan: Plan, target: TargetDocument) -> Iterator[str]:
    storage = target.storage
    for role, disk in plan.storage.disks.items():
        known = storage.disks.get(role)
        named = disk.by_id, disk.serial, disk.size_bytes
        if known is None or named != (known.by_id, known.serial, known.size_bytes):
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


def _foreign_configuration(configuration: Configuration, storage: StorageSpec) -> str:
    """Return why a configuration is not one of the target's, or one that factors make of it."""
    # Factors append their levels' names: plain, plain.xfs, plain.xfs.trim.
    asked = f"{configuration.name}."
    names = [name for name in storage.configurations if asked.startswith(f"{name}.")]
    if not names:
        return "there is none of that name"
    permitted = storage.configurations[max(names, key=len)]
    if (configuration.kind, configuration.disk) != (permitted.kind, permitted.disk):
        return f"there it is {permitted.kind} on disk {permitted.disk}"
    try:
        kind = registry.load(configuration.kind)
    except ExtensionError as error:
        return str(error).rstrip(".")
    mine, its = (settings(kind, c.disk, c.settings)[0] for c in (configuration, permitted))
    for field in kind.fields:
        # A factor may set a number, a flag or one of declared words, never free text.
        chosen = field.choices or not isinstance(field.default, str)
        if mine.get(field.name) != its.get(field.name) and not chosen:
            return f"there it has another {field.name}"
    if unknown := sorted(set(configuration.settings) - {field.name for field in kind.fields}):
        return f"{', '.join(unknown)} means nothing for {configuration.kind}"
    return _foreign_filesystem(configuration.filesystem or storage.filesystem, storage.filesystem)


def _foreign_filesystem(filesystem: Filesystem, allowed: Filesystem) -> str:
    """Return why a factor may not ask for a file system; empty where it may."""
    options = list(filesystem.options)
    if filesystem.type == allowed.type and options[: len(allowed.options)] == list(allowed.options):
        options = options[len(allowed.options) :]  # the inventory's own, which are its matter
    elif filesystem.type not in MKFS_OPTIONS:
        return f"{filesystem.type} is a file system of the inventory alone"
    try:
        arguments, rest = getopt.getopt(options, MKFS_OPTIONS.get(filesystem.type, ""))
    except getopt.GetoptError as error:
        return f"mkfs of factors: {error}"
    if rest or not all(_VALUE.fullmatch(value) for _, value in arguments):
        return f"mkfs options of factors that name a file or device: {' '.join(options)}"
    further = [word for word in filesystem.mount_options.split(",") if word]
    further = [word for word in further if word not in allowed.mount_options.split(",")]
    if not _MOUNT_OPTIONS.fullmatch(",".join(further)) or _LAYERS & {
        word.partition("=")[0] for word in further
    }:
        return f"mount options of factors: {','.join(further)}"
    return ""
