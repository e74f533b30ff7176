"""Bring the disks to what the inventory says, and back again; both may be repeated at will."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from agent.command import CommandError
from agent.errors import AgentError
from agent.plan import Disk, StorageSpec
from agent.storage import devices, facts, guard, layout, opal, opal_ioctl, reverted
from agent.storage.base import Place
from agent.storage.facts import DiskFacts
from agent.storage.guard import GuardError
from agent.storage.secrets import Secrets
from agent.storage.stack import Stack


def prepare(
    spec: StorageSpec,
    secrets: Secrets,
    *,
    dry: bool = False,
    checked: Mapping[str, str] | None = None,
) -> list[str]:
    """Partition, mark, take ownership of self-encrypting disks; ends unmounted and locked.

    Returns what was done (with `dry`: what would be), empty if all was as it must be. No disk is
    written unless all of them may be. `checked`: role to the fingerprint that was looked at before;
    a disk that is not ours must still have it. Raises AgentError.
    """
    found = {role: facts.gather(disk) for role, disk in spec.disks.items()}
    reasons: list[str] = []
    for role, disk in spec.disks.items():
        reasons += reasons_not_to_prepare(spec, disk, found[role])
        reasons += reasons_of_change(disk, found[role], checked)
    if reasons:
        raise GuardError(" ".join(reasons))
    actions = _go_bare(spec, secrets, dry=dry)
    for role, disk in spec.disks.items():
        actions += _lay_out(disk, found[role], spec, dry=dry)
        if carries_opal(spec, role):
            actions += _own(disk, found[role], spec, secrets, dry=dry)
    return actions


def carries_opal(spec: StorageSpec, role: str) -> bool:
    """Whether a configuration needs the disk to be owned."""
    return any(c.kind == "opal" and c.disk == role for c in spec.configurations.values())


def reasons_not_to_prepare(spec: StorageSpec, disk: Disk, found: DiskFacts) -> list[str]:
    """The guard's reasons, and what the layout and the configurations need; asks for no PIN."""
    reasons = guard.refusals(_given_up(disk, found), found)
    if reason := layout.fits(disk, spec.extent):
        reasons.append(reason)
    if carries_opal(spec, disk.role):
        reasons += guard.shared(disk, found)
        if found.path and found.opal is None:
            reasons.append(_no_opal(disk, found.path, found.opal_error))
    return reasons


def _given_up(disk: Disk, found: DiskFacts) -> Disk:
    """The disk, to be erased also where our own revert left what is on it."""
    return replace(disk, erase=disk.serial) if reverted.left_by_us(disk, found) else disk


def _locks(found: DiskFacts) -> bool:
    """Whether the header of our partition is one of a range that the drive locks."""
    if found.partition is None or not found.partition.signatures:
        return False
    try:
        segments = opal.luks_metadata(found.partition.path)["segments"].values()
    except CommandError:
        return False
    return any(segment["type"].startswith("hw-opal") for segment in segments)


def _no_opal(disk: Disk, path: str, error: str | None) -> str:
    reason = f"Disk {disk.role} ({disk.by_id}, {path}) offers no Opal, which a configuration needs"
    reason += f" ({error})" if error else ""
    if devices.ata_security_off(path.removeprefix("/dev/")):
        return (
            f"{reason}: libata does not let Opal through to SATA disks by itself, so start the "
            "machine with libata.allow_tpm=1 on the kernel's command line; if that changes nothing,"
            " choose a self-encrypting disk."
        )
    return (
        f"{reason}: choose a self-encrypting disk, or take the opal configuration out of the "
        "inventory."
    )


def reasons_of_change(disk: Disk, found: DiskFacts, checked: Mapping[str, str] | None) -> list[str]:
    """Why the disk is not the one that was looked at before; `checked`: role to fingerprint."""
    if checked is None or checked.get(disk.role) == found.fingerprint:
        return []
    # Nothing is lost on a disk that is ours or blank: it may have been torn down since.
    if found.partition or found.blank or reverted.left_by_us(disk, found):
        return []
    return [
        f"Disk {disk.role} ({disk.by_id}, {found.path}) changed since it was checked: "
        "run make check again, and see what is on it now."
    ]


def teardown(
    spec: StorageSpec, secrets: Secrets, *, dry: bool = False, psid_revert: str | None = None
) -> list[str]:
    """Close mappings, revert self-encrypting disks, remove our partition; what was done.

    A disk that does not carry our mark is left alone. Drives are reverted by the owner's PIN; by
    the PSID only that one whose serial number is `psid_revert`. Raises AgentError.
    """
    found = {role: facts.gather(disk) for role, disk in spec.disks.items()}
    serials = {disk.serial for disk in spec.disks.values()}
    if psid_revert is not None and psid_revert not in serials:
        raise GuardError(
            f"No disk of this inventory has the serial {psid_revert!r}: nothing was reverted; "
            f"give the serial of the self-encrypting disk (one of {', '.join(sorted(serials))})."
        )
    reasons: list[str] = []
    for role, disk in spec.disks.items():
        reasons += _reasons_not_to_clear(disk, found[role], by_psid=psid_revert == disk.serial)
        if found[role].partition is not None:
            owned = carries_opal(spec, role) or _locks(found[role])
            reasons += guard.silent(disk, found[role], owned=owned)
    if reasons:
        raise GuardError(" ".join(reasons))
    ours = [disk for role, disk in spec.disks.items() if found[role].partition]
    actions = _go_bare(spec, secrets, dry=dry) if ours else []
    for role, disk in spec.disks.items():
        by_psid = psid_revert == disk.serial
        if found[role].partition or by_psid:
            actions += _give_back(disk, found[role], secrets, by_psid=by_psid, dry=dry)
        elif reverted.left_by_us(disk, found[role]):
            actions += _blank_at_last(disk, found[role], dry=dry)
    return actions


def _reasons_not_to_clear(disk: Disk, found: DiskFacts, *, by_psid: bool) -> list[str]:
    if by_psid:
        if found.path and found.opal is None:
            return [_no_opal(disk, found.path, found.opal_error)]
        return guard.refusals_to_revert(disk, found)
    if found.partition is not None:
        owned = found.opal is not None and found.opal.locking_enabled
        return guard.refusals(disk, found) + (guard.shared(disk, found) if owned else [])
    # Not ours, so not to be cleared; but ours may be behind a lock or a shadow.
    return guard.hidden(disk, found)


def _give_back(
    disk: Disk, before: DiskFacts, secrets: Secrets, *, by_psid: bool, dry: bool
) -> list[str]:
    """Revert the drive if anybody owns it, and leave it blank."""
    owned = by_psid or (before.opal is not None and before.opal.locking_enabled)
    how = "by PSID" if by_psid else "by PIN"
    if dry:
        actions = [f"would revert {disk.by_id} {how}"] if owned else []
        return [*actions, f"would remove the partition of {disk.by_id}"]
    if not owned:
        layout.clear(disk, before)
        return [f"removed the partition of {disk.by_id}"]
    now = facts.gather(disk)
    reasons = _reasons_not_to_clear(disk, now, by_psid=by_psid)
    if reasons:
        raise GuardError(" ".join(reasons))
    guard.refuse_changed(disk, before, now)
    path = now.path or disk.by_id
    done = _noting(disk, now, lambda: opal.disown(path, secrets, by_psid=by_psid))
    # A revert changes the keys of all ranges: table, mark and data are gone.
    layout.blank_after_revert(disk, now)
    reverted.forget(disk)
    return [f"{done}: {disk.by_id}", f"blanked {disk.by_id}"]


def _noting(disk: Disk, now: DiskFacts, revert: Callable[[], str | None]) -> str | None:
    """Revert with a note of it, so that a crash does not leave a disk which nobody knows."""
    reverted.begin(disk, now)
    try:
        done = revert()
    except AgentError:
        reverted.forget(disk)
        raise
    layout.reread(now.path or disk.by_id)
    reverted.done(disk, facts.gather(disk))
    return done


def _blank_at_last(disk: Disk, found: DiskFacts, *, dry: bool) -> list[str]:
    """What an earlier teardown did not come to after its revert."""
    if not dry:
        layout.blank_after_revert(disk, guard.check_still(_given_up(disk, found), found))
        reverted.forget(disk)
    return [f"{'would blank' if dry else 'blanked'} {disk.by_id}"]


def _go_bare(spec: StorageSpec, secrets: Secrets, *, dry: bool) -> list[str]:
    stack = Stack(spec, secrets)
    state = stack.state
    if state == "bare":
        return []
    if not dry:
        stack.leave()
    return [f"{'would close' if dry else 'closed'} a configuration left {state}"]


def _lay_out(disk: Disk, found: DiskFacts, spec: StorageSpec, *, dry: bool) -> list[str]:
    if layout.ready(disk, found, spec.extent):
        return []
    erased = guard.foreign(disk, found)
    if not dry:
        layout.write(_given_up(disk, found), spec.extent, found)
        reverted.forget(disk)
    what = "erase and partition" if dry and erased else "partition" if dry else "partitioned"
    what = "erased and partitioned" if erased and not dry else what
    return [f"{'would ' if dry else ''}{what} {disk.by_id}"]


def _own(
    disk: Disk, before: DiskFacts, spec: StorageSpec, secrets: Secrets, *, dry: bool
) -> list[str]:
    if dry and not layout.ready(disk, before, spec.extent):
        return [f"would take ownership of {disk.by_id}"]
    place = layout.place(disk, spec.extent, guard.check_ours(disk))
    missing = opal.why_not_ready(place, secrets)
    if missing is None:
        return _lock(place, secrets, dry=dry)
    if dry:
        return [f"would make the locking range of {disk.by_id} ({missing})"]
    # A drive that has an owner must take our PIN: formatting spoils the header before it asks.
    opal.range_found(place, secrets)
    guard.check_ours(disk)
    try:
        opal.own(place, secrets)
    except AgentError as error:
        _own_from_scratch(disk, spec, secrets, error)
    return [f"made the locking range of {disk.by_id} ({missing})"]


def _own_from_scratch(disk: Disk, spec: StorageSpec, secrets: Secrets, first: AgentError) -> None:
    """Give up an ownership that an interrupted try took by half, and take it whole.

    Such a drive has our PIN, but locks nothing yet. Raises `first` where that was not the reason.
    """
    found = facts.gather(disk)
    path = found.path
    if path is None or found.opal is None or found.opal.locking_enabled:
        raise first
    if reasons := guard.shared(disk, found):
        raise GuardError(" ".join(reasons)) from first
    try:
        _noting(disk, found, lambda: opal_ioctl.revert(path, secrets.opal_admin_pin))
    except AgentError:
        raise first from None
    left = facts.gather(disk)
    layout.write(_given_up(disk, left), spec.extent, left)
    reverted.forget(disk)
    opal.own(layout.place(disk, spec.extent, guard.check_ours(disk)), secrets)


def _lock(place: Place, secrets: Secrets, *, dry: bool) -> list[str]:
    if dry or not opal.relock(place, secrets):
        return []
    return [f"locked {place.disk.by_id}"]
