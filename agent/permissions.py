"""Whether a plan asks of a target only what that target's own inventory says.

A suite's folder may have come from elsewhere, and what its plan says of configurations, file
systems and files is run or read by root. So all of it must stand in the description of the target
that `fde provision` brought, but for what a suite itself may choose: its workloads and their
declared parameters, and its factors, as far as they name neither files nor devices.
"""

from __future__ import annotations

import getopt
import re
from collections.abc import Iterator, Mapping

from agent.storage import registry
from agent.storage.base import Kind, settings
from contract.extensions import ExtensionError
from contract.parameters import Parameter, ParameterValue
from contract.places import step
from contract.plan import Configuration, Filesystem, Plan, PlanError, Target
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


def require_own(plan: Plan, target: Target) -> None:
    """Raise PlanError with everything in a plan that is not the target's own."""
    if foreign := list(_foreign(plan, target)):
        raise PlanError(
            f"The plan {plan.suite_id} is refused, for the target's inventory does not have: "
            f"{'; '.join(foreign)}. Make a new plan ({step('run')}), or, if the inventory has "
            f"changed, bring it to the target first ({step('provision')})."
        )


def _foreign(plan: Plan, target: Target) -> Iterator[str]:
    own = target.storage
    for role, disk in plan.storage.disks.items():
        known = own.disks.get(role)
        named = disk.by_id, disk.serial, disk.size_bytes
        if known is None or named != (known.by_id, known.serial, known.size_bytes):
            yield f"disk {role} ({disk.by_id}, serial {disk.serial})"
    if plan.storage.extent != own.extent:
        yield f"an extent of {plan.storage.extent.size_bytes} bytes"
    if plan.storage.filesystem != own.filesystem:
        yield f"the file system {_words(plan.storage.filesystem)}"
    for configuration in plan.storage.configurations.values():
        if reason := _foreign_configuration(configuration, own.configurations, own.filesystem):
            yield f"configuration {configuration.name} ({reason})"
    for name, path in plan.assets.items():
        if (path, plan.asset_sums.get(name)) != (
            target.assets.get(name),
            target.asset_sums.get(name),
        ):
            yield f"asset {name} ({path})"
    if plan.quiet != target.quiet:
        yield "what is stopped and switched for a suite (fde_stop, fde_governor, fde_turbo)"
    for load in plan.workloads.values():
        try:
            workloads.complete(load.workload, load.parameters)
        except WorkloadError as error:
            if load.workload in workloads.names():
                yield f"workload {load.name} ({str(error).rstrip('.')})"


def _foreign_configuration(
    given: Configuration, known: Mapping[str, Configuration], filesystem: Filesystem
) -> str:
    """Say why a configuration is not one of the target's, or one that factors make of it."""
    # Factors append their levels' names: plain, plain.xfs, plain.xfs.trim.
    names = [name for name in known if f"{given.name}.".startswith(f"{name}.")]
    if not names:
        return "there is none of that name"
    own = known[max(names, key=len)]
    if (given.kind, given.disk) != (own.kind, own.disk):
        return f"there it is {own.kind} on disk {own.disk}"
    try:
        kind = registry.load(given.kind)
    except ExtensionError as error:
        return str(error).rstrip(".")
    mine, its = (_settings(kind, c) for c in (given, own))
    for field in kind.fields:
        if mine.get(field.name) != its.get(field.name) and not _is_choice(field):
            return f"there it has another {field.name}"
    if unknown := sorted(set(given.settings) - {field.name for field in kind.fields}):
        return f"{', '.join(unknown)} means nothing for {given.kind}"
    return _foreign_filesystem(given.filesystem or filesystem, filesystem)


def _settings(kind: Kind, configuration: Configuration) -> dict[str, ParameterValue]:
    return settings(kind, configuration.disk, configuration.settings)[0]


def _is_choice(field: Parameter) -> bool:
    """Whether a factor may set it: a number, a flag or one of declared words, never free text."""
    return bool(field.choices) or not isinstance(field.default, str)


def _foreign_filesystem(given: Filesystem, own: Filesystem) -> str:
    """Say why a factor may not ask for a file system; empty where it may."""
    options = list(given.options)
    if given.type == own.type and options[: len(own.options)] == list(own.options):
        options = options[len(own.options) :]  # the inventory's own, which are its matter
    elif given.type not in MKFS_OPTIONS:
        return f"{given.type} is a file system of the inventory alone"
    try:
        found, rest = getopt.getopt(options, MKFS_OPTIONS.get(given.type, ""))
    except getopt.GetoptError as error:
        return f"mkfs of factors: {error}"
    if rest or not all(_VALUE.fullmatch(value) for _, value in found):
        return f"mkfs options of factors that name a file or device: {' '.join(options)}"
    further = [word for word in given.mount_options.split(",") if word]
    further = [word for word in further if word not in own.mount_options.split(",")]
    if not _MOUNT_OPTIONS.fullmatch(",".join(further)) or _LAYERS & {
        word.partition("=")[0] for word in further
    }:
        return f"mount options of factors: {','.join(further)}"
    return ""


def _words(filesystem: Filesystem) -> str:
    words = [filesystem.type, *filesystem.options, filesystem.mount_options]
    return " ".join(filter(None, words))
