"""Prepare the disks for the inventory's configurations, and give them back, repeatably."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from agent.storage import (
    devices,
    disk_records,
    file_disk,
    guard,
    layout,
    opal,
    opal_ioctl,
    registry,
)
from agent.storage import facts as disk_facts
from agent.storage.facts import DiskFacts
from agent.storage.guard import GuardError
from agent.storage.plaintext_probe import locked_read
from agent.storage.secrets import SID, Secrets, login
from agent.storage.stack import Stack
from agent.system.command import CommandError
from contract.errors import AgentError
from contract.plan import Disk, StorageSpec
from contract.problem import Problem


@dataclass(frozen=True)
class Action:
    """One step done to a disk, or to be done; `disk` is its role, None for all.

    `code` is create, attach, remove, close, erase, partition, own, range, lock, revert, blank,
    unpartition or confinement.
    """

    code: str
    disk: str | None
    sentence: str


def prepare(
    spec: StorageSpec,
    secrets: Secrets,
    *,
    dry: bool = False,
    checked: Mapping[str, str] | None = None,
) -> list[Action]:
    """Partition, mark, take ownership of self-encrypting disks; ends unmounted and locked.

    Returns the actions (with `dry`: those to be done), empty if nothing was missing. No disk is
    written unless all of them may be. `checked` maps roles to the fingerprints of an earlier check;
    a disk that is not ours must still have it. Raises AgentError.
    """
    actions, spec = _make_files(spec, dry=dry)
    states = {role: disk_facts.gather(disk) for role, disk in spec.disks.items()}
    reasons: list[Problem] = []
    for role, disk in spec.disks.items():
        reasons += reasons_not_to_prepare(spec, disk, states[role])
        reasons += reasons_of_change(disk, states[role], checked)
    if reasons:
        raise GuardError(*reasons)
    actions += _go_bare(spec, secrets, dry=dry)
    for role, disk in spec.disks.items():
        if not carries_opal(spec, role):
            actions += _lay_out(disk, states[role], spec, dry=dry)
            continue
        taken = _take(disk, states[role], spec, secrets, dry=dry)
        try:
            actions += [*taken, *_lay_out(disk, states[role], spec, dry=dry)]
            actions += _take_drive(disk, states[role], spec, secrets, dry=dry)
        except AgentError as error:
            if not taken:
                raise
            raise _give_back_after(error, disk, secrets) from error
    return actions


def _make_files(spec: StorageSpec, *, dry: bool) -> tuple[list[Action], StorageSpec]:
    """Create and attach the disks that are files; return the actions and the attached disks.

    With `dry`, disks whose file is not attached cannot be examined further. Raises AgentError.
    """
    actions = []
    disks = dict(spec.disks)
    for role, disk in spec.disks.items():
        if disk.file is None or file_disk.find_loop(disk):
            continue
        is_missing = not file_disk.exists(disk)
        if dry:
            del disks[role]
        else:
            if is_missing:
                file_disk.create(disk, spec.extent)
            file_disk.attach(disk)
        verb = "create" if is_missing else "attach"
        done = f"would {verb}" if dry else f"{verb}d" if is_missing else f"{verb}ed"
        actions.append(Action(verb, role, f"{done} {disk.file}"))
    return actions, replace(spec, disks=disks)


def carries_opal(spec: StorageSpec, role: str) -> bool:
    """Return whether a configuration needs the disk to be owned."""
    return any(
        c.disk == role and registry.load(c.kind).range_state != "off"
        for c in spec.configurations.values()
    )


def reasons_not_to_prepare(spec: StorageSpec, disk: Disk, facts: DiskFacts) -> list[Problem]:
    """Return the guard's reasons, and unmet needs of the layout and the configurations.

    No PIN is tried.
    """
    reasons = guard.refusals(_given_up(disk, facts), facts)
    if reason := layout.extent_refusal(disk, spec.extent):
        reasons.append(reason)
    if carries_opal(spec, disk.role):
        reasons += guard.shared_refusals(disk, facts)
        if facts.sid and facts.sid.blocked and not facts.owned:
            reasons.append(guard.refusal("blocked", disk, facts))
        reasons += layout.unfit_for_opal(disk, facts, spec.extent)
        if facts.path and facts.opal is None and facts.opal_error is None:
            reasons.append(_no_opal(disk, facts))
    return reasons


def _given_up(disk: Disk, facts: DiskFacts) -> Disk:
    """Return the disk, with `erase` allowed also if our own revert left the contents."""
    return replace(disk, erase=disk.serial) if disk_records.left_by_us(disk, facts) else disk


def _locks(facts: DiskFacts) -> bool:
    """Return whether the header of our partition belongs to a range that the drive locks."""
    if facts.partition is None or not facts.partition.signatures:
        return False
    try:
        segments = opal.luks_header(facts.partition.path).segments.values()
    except CommandError:
        return False
    return any(segment.type.startswith("hw-opal") for segment in segments)


def _no_opal(disk: Disk, facts: DiskFacts) -> Problem:
    sata = devices.ata_security_off((facts.path or "").removeprefix("/dev/"))
    return guard.refusal("no-opal-on-sata" if sata else "no-opal", disk, facts)


def reasons_of_change(
    disk: Disk, facts: DiskFacts, checked: Mapping[str, str] | None
) -> list[Problem]:
    """Refuse a disk that differs from the checked one; `checked`: role to fingerprint."""
    if checked is None or checked.get(disk.role) == facts.checked_print:
        return []
    # Nothing is lost on a disk that is ours or blank: it may have been torn down since.
    if facts.partition or facts.blank or disk_records.left_by_us(disk, facts):
        return []
    return [guard.refusal("changed-since-check", disk, facts)]


def teardown(
    spec: StorageSpec, secrets: Secrets, *, dry: bool = False, psid_revert: str | None = None
) -> list[Action]:
    """Close mappings, revert self-encrypting disks, remove our partition; return the actions.

    A disk without our mark is not touched. Drives are reverted by the owner's PIN; by the PSID only
    the one whose serial number is `psid_revert`. Raises AgentError.
    """
    files = [disk for disk in spec.disks.values() if disk.file]
    block_disks = {role: disk for role, disk in spec.disks.items() if not disk.file}
    states = {role: disk_facts.gather(disk) for role, disk in block_disks.items()}
    serials = {disk.serial for disk in block_disks.values()}
    if psid_revert is not None and psid_revert not in serials:
        known_serials = ", ".join(sorted(serials))
        serial = {"serial": psid_revert, "known": known_serials}
        raise GuardError(Problem.from_wording(guard.WORDINGS, "no-such-serial", serial))
    reasons: list[Problem] = []
    for role, disk in block_disks.items():
        facts = states[role]
        reasons += _reasons_not_to_clear(disk, facts, by_psid=psid_revert == disk.serial)
        is_silent = facts.partition and facts.opal is None and not facts.opal_error
        if is_silent and (carries_opal(spec, role) or _locks(facts)):  # it was owned, or soon
            reasons.append(guard.refusal("silent", disk, facts))
    if reasons:
        raise GuardError(*reasons)
    own_roles = [role for role in block_disks if states[role].partition]
    actions = _go_bare(spec, secrets, dry=dry) if own_roles or files else []
    for disk in files:
        if dry:
            actions.append(Action("remove", disk.role, f"would remove {disk.file} if it is ours"))
        elif file_disk.remove(disk):
            actions.append(Action("remove", disk.role, f"removed {disk.file}"))
    for role, disk in block_disks.items():
        by_psid = psid_revert == disk.serial
        if states[role].partition or by_psid or states[role].taking:
            actions += _give_back(disk, states[role], secrets, by_psid=by_psid, dry=dry)
        elif disk_records.left_by_us(disk, states[role]) and not states[role].bare:
            # What an earlier teardown did not come to.
            if not dry:
                layout.clear(_given_up(disk, states[role]), states[role])
            verb = "would blank" if dry else "blanked"
            actions.append(Action("blank", role, f"{verb} {disk.by_id}"))
    return actions


def _reasons_not_to_clear(disk: Disk, facts: DiskFacts, *, by_psid: bool) -> list[Problem]:
    if by_psid:
        if facts.path and facts.opal is None and facts.opal_error is None:
            return [_no_opal(disk, facts)]
        return guard.refusals_to_revert(disk, facts)
    if facts.partition is not None or facts.taking:
        reasons = guard.refusals(_given_up(disk, facts), facts)
        return reasons + (guard.shared_refusals(disk, facts) if facts.owned or facts.taking else [])
    # Not ours, so not to be cleared; but ours may be behind a lock or a shadow.
    return guard.hidden_refusals(disk, facts)


def _give_back(
    disk: Disk, before: DiskFacts, secrets: Secrets, *, by_psid: bool, dry: bool
) -> list[Action]:
    """Revert the drive if it has an owner, and leave it blank."""
    locks = before.owned
    half = before.taking and not locks and not by_psid
    if dry:
        method = "by PSID" if by_psid else "by PIN"
        reverted = Action("revert", disk.role, f"would revert {disk.by_id} {method}")
        removed = f"would remove the partition of {disk.by_id}"
        actions = [reverted] if by_psid or locks or half else []
        return [*actions, Action("unpartition", disk.role, removed)]
    with guard.holding(disk):
        current = disk_facts.gather(disk)
        reasons = _reasons_not_to_clear(disk, current, by_psid=by_psid)
        if reasons:
            raise GuardError(*reasons)
        guard.refuse_changed(disk, before, current)
        if how_reverted := _revert(disk, current, secrets, by_psid=by_psid, half=half, locks=locks):
            layout.blank_after_revert(disk, current)
            return [
                Action("revert", disk.role, f"{how_reverted}: {disk.by_id}"),
                Action("blank", disk.role, f"blanked {disk.by_id}"),
            ]
        layout.clear(_given_up(disk, before), before)
        disk_records.end_taking(disk)
    return [Action("unpartition", disk.role, f"removed the partition of {disk.by_id}")]


def _revert(
    disk: Disk, current: DiskFacts, secrets: Secrets, *, by_psid: bool, half: bool, locks: bool
) -> str | None:
    """Revert the drive; return how, None without an owner. The note records what the drive did.

    Raises AgentError if the drive refused.
    """
    path = current.path or disk.by_id

    def was_done() -> bool:
        return locks and not opal_ioctl.status(path).locking_enabled

    try:
        with disk_records.reverting(disk, current, was_done):
            if half:
                return _undo_half(path, current, secrets)
            return opal.disown(path, secrets, by_psid=by_psid) if by_psid or locks else None
    except opal_ioctl.OpalError as error:
        is_reverted: bool | None = None
        with suppress(opal_ioctl.OpalError):
            is_reverted = was_done()
        if is_reverted is None or (error.unanswered and not is_reverted):
            unknown = {"by_id": disk.by_id, "first": str(error)}
            raise opal_ioctl.OpalError("revert-unknown", **unknown) from error
        if not is_reverted:
            raise
    return "reverted, though the drive answered with an error"


def _undo_half(path: str, current: DiskFacts, secrets: Secrets) -> str | None:
    """Remove our PIN from a drive that locks nothing yet; None if it never had it.

    Raises AgentError if the drive has another PIN.
    """
    try:
        opal_ioctl.revert(path, secrets.opal_admin_pin)
    except opal_ioctl.OpalError as error:
        if error.status == opal_ioctl.NOT_AUTHORISED and not (current.sid and current.sid.taken):
            return None
        raise
    return "reverted by PIN, which was not in force yet"


def _go_bare(spec: StorageSpec, secrets: Secrets, *, dry: bool) -> list[Action]:
    stack = Stack(spec, secrets)
    state = stack.state
    if state == "bare":
        return []
    if not dry:
        stack.leave()
    verb = "would close" if dry else "closed"
    return [Action("close", None, f"{verb} a configuration left {state}")]


def _lay_out(disk: Disk, facts: DiskFacts, spec: StorageSpec, *, dry: bool) -> list[Action]:
    if layout.ready(disk, facts, spec.extent):
        return []
    if not dry:
        layout.write(_given_up(disk, facts), spec.extent, facts)
    erased = guard.foreign_refusals(disk, facts) and not disk_records.left_by_us(disk, facts)
    if dry:
        verb = "would erase and partition" if erased else "would partition"
    else:
        disk_records.forget_contents(disk)
        verb = "erased and partitioned" if erased else "partitioned"
    return [Action("erase" if erased else "partition", disk.role, f"{verb} {disk.by_id}")]


def _take(
    disk: Disk, before: DiskFacts, spec: StorageSpec, secrets: Secrets, *, dry: bool
) -> list[Action]:
    """Have the drive take our PIN before anything on it is cleared; it may have it already."""
    path = before.path or disk.by_id
    if before.owned:
        if not layout.ready(disk, before, spec.extent):
            opal_ioctl.range_status(path, 1, secrets.opal_admin_pin)
        return []
    if dry:
        return []
    login(path, SID).check()
    try:
        with guard.holding(disk):
            guard.check_still(_given_up(disk, before), before)
            disk_records.begin_taking(disk)
            opal.take(path, secrets, before.sid)
    except opal.NotTakenError:
        disk_records.end_taking(disk)
        raise
    except opal_ioctl.OpalError as error:
        if error.status:  # it has our PIN, and is of no use
            raise _give_back_after(error, disk, secrets) from error
        unknown = {"by_id": disk.by_id, "first": str(error)}
        raise opal_ioctl.OpalError("taking-unknown", **unknown) from error
    return [Action("own", disk.role, f"took ownership of {disk.by_id}")]


def _take_drive(
    disk: Disk, before: DiskFacts, spec: StorageSpec, secrets: Secrets, *, dry: bool
) -> list[Action]:
    if dry and not layout.ready(disk, before, spec.extent):
        return [Action("own", disk.role, f"would take ownership of {disk.by_id}")]
    place = layout.place(disk, spec.extent, guard.check_ours(disk))
    missing = opal.why_not_ready(place, secrets)
    if missing is None:
        if not dry:
            disk_records.forget(disk)
        locked = not dry and opal.relock(place, secrets)
        return [Action("lock", disk.role, f"locked {disk.by_id}")] if locked else []
    verb = "would make" if dry else "made"
    action = Action("range", disk.role, f"{verb} the locking range of {disk.by_id} ({missing})")
    if dry:
        return [action]
    with guard.holding(disk):
        guard.check_ours(disk)
        opal.make_range(place, secrets)
        if locked_read(place.partition, place.extent.offset_bytes) is None:
            raise opal_ioctl.OpalError("lock-ignored", by_id=disk.by_id)
    disk_records.forget(disk)
    return [action]


def _give_back_after(error: AgentError, disk: Disk, secrets: Secrets) -> opal_ioctl.OpalError:
    """Give a drive back that was just taken and is of no use; return the error that reports it."""
    given_up, owned = replace(disk, erase=disk.serial), False
    try:
        facts = disk_facts.gather(disk)
        owned = facts.owned
        actions = _give_back(given_up, facts, secrets, by_psid=False, dry=False)
    except AgentError as second:
        causes = {"first": str(error), "second": str(second)}
        with suppress(opal_ioctl.OpalError):
            if owned and not opal_ioctl.status(disk.by_id).locking_enabled:
                return opal_ioctl.OpalError("not-blanked", **causes)
        return opal_ioctl.OpalError("not-given-back", **causes)
    sentences = "; ".join(action.sentence for action in actions)
    return opal_ioctl.OpalError("given-back", first=str(error), actions=sentences)
