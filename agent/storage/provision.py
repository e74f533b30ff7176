"""Bring the disks to what the inventory says, and back again; both may be repeated at will."""

from __future__ import annotations

from agent.plan import Disk, StorageSpec
from agent.storage import guard, layout, opal
from agent.storage.base import Place
from agent.storage.guard import DiskFacts, GuardError
from agent.storage.secrets import Secrets
from agent.storage.stack import Stack


def prepare(spec: StorageSpec, secrets: Secrets, *, dry: bool = False) -> list[str]:
    """Partition, mark, take ownership of self-encrypting disks; ends unmounted and locked.

    Returns what was done (with `dry`: what would be), empty if all was as it must be. No disk is
    written unless all of them may be. Raises AgentError.
    """
    facts = {role: guard.gather(disk) for role, disk in spec.disks.items()}
    reasons: list[str] = []
    for role, disk in spec.disks.items():
        reasons += guard.refusals(disk, facts[role])
        reasons += [reason] if (reason := layout.fits(disk, spec.extent)) else []
    if reasons:
        raise GuardError(" ".join(reasons))
    actions = _go_bare(spec, secrets, dry=dry)
    for role, disk in spec.disks.items():
        actions += _lay_out(disk, facts[role], spec, dry=dry)
        if any(c.kind == "opal" and c.disk == role for c in spec.configurations.values()):
            actions += _own(disk, facts[role], spec, secrets, dry=dry)
    return actions


def teardown(spec: StorageSpec, secrets: Secrets, *, dry: bool = False) -> list[str]:
    """Close mappings, revert self-encrypting disks, remove our partition; what was done.

    A disk that does not carry our marker is left alone. Raises AgentError.
    """
    ours: list[Disk] = []
    for disk in spec.disks.values():
        facts = guard.gather(disk)
        if facts.partition is not None:
            guard.check(disk)
            ours.append(disk)
    actions = _go_bare(spec, secrets, dry=dry) if ours else []
    for disk in ours:
        path = guard.check(disk).path or disk.by_id
        owns = [c for c in spec.configurations.values() if c.kind == "opal" and c.disk == disk.role]
        if owns and dry:
            actions.append(f"would revert {disk.by_id}")
        elif owns and (done := opal.disown(path, secrets)):
            actions.append(f"{done}: {disk.by_id}")
        if not dry:
            # A revert changes the keys of all ranges, so the table may be gone with the data.
            layout.reread(path)
            if guard.gather(disk).partition is not None:
                layout.clear(disk, guard.check)
        actions.append(f"{'would remove' if dry else 'removed'} the partition of {disk.by_id}")
    return actions


def _go_bare(spec: StorageSpec, secrets: Secrets, *, dry: bool) -> list[str]:
    stack = Stack(spec, secrets)
    state = stack.state
    if state == "bare":
        return []
    if not dry:
        stack.leave()
    return [f"{'would close' if dry else 'closed'} a configuration left {state}"]


def _lay_out(disk: Disk, facts: DiskFacts, spec: StorageSpec, *, dry: bool) -> list[str]:
    if facts.partition is not None and layout.matches(facts.partition, spec.extent):
        return []
    if not dry:
        layout.write(disk, spec.extent, guard.check)
    return [f"{'would partition' if dry else 'partitioned'} {disk.by_id}"]


def _own(
    disk: Disk, before: DiskFacts, spec: StorageSpec, secrets: Secrets, *, dry: bool
) -> list[str]:
    if dry and not (before.partition and layout.matches(before.partition, spec.extent)):
        return [f"would take ownership of {disk.by_id}"]
    place = layout.place(disk, spec.extent, guard.check_ours(disk))
    missing = opal.why_not_ready(place, secrets)
    if missing is None:
        return _lock(place, secrets, dry=dry)
    if dry:
        return [f"would make the locking range of {disk.by_id} ({missing})"]
    guard.check_ours(disk)
    opal.own(place, secrets)
    return [f"made the locking range of {disk.by_id} ({missing})"]


def _lock(place: Place, secrets: Secrets, *, dry: bool) -> list[str]:
    if dry or not opal.relock(place, secrets):
        return []
    return [f"locked {place.disk.by_id}"]
