"""May this disk be written? Facts are gathered, then judged by a pure function.

Checked again right before every destructive step, for a disk may change hands in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from agent.command import CommandError
from agent.storage import devices
from agent.storage.facts import (
    LUKS_LABEL,
    MARKER_NAME,
    MARKER_TYPE,
    DiskFacts,
    Partition,
    Signature,
    gather,
)
from contract.errors import AgentError
from contract.plan import Disk

MAPPING = "fde-data"
MOUNT_POINT = "/run/fde-testbed/disk"

__all__ = [
    "LUKS_LABEL",
    "MARKER_NAME",
    "MARKER_TYPE",
    "DiskFacts",
    "GuardError",
    "Partition",
    "check",
    "check_ours",
    "gather",
    "refusals",
]

SerialOf = Callable[[str], str]


class GuardError(AgentError):
    """The disk must not be written: which, why, and the way out."""


def refusals(disk: Disk, facts: DiskFacts, *, erase: bool = True) -> list[str]:
    """Every reason not to write this disk, each with the way out; empty if it may be written.

    `erase`: whether the inventory's `erase` counts; who does not lay the disk out anew says no.
    """
    if facts.path is None:
        return [
            f"Disk {disk.role}: there is no block device at {disk.by_id}: "
            "connect it, or correct by_id in the inventory."
        ]
    allowed = erase and given_up(disk, facts)
    reasons = [*_identity(disk, facts), *_in_use(facts), *_hidden(disk, facts)]
    reasons += [] if allowed or facts.read_error or facts.stale else foreign(disk, facts)
    return [_told(disk, facts, reason) for reason in reasons]


def refusals_to_revert(disk: Disk, facts: DiskFacts) -> list[str]:
    """Reasons not to put a drive back by its PSID, which was asked for by its serial number.

    That its contents are locked or hidden is none: this is the way out of it.
    """
    if facts.path is None:
        return refusals(disk, facts)
    reasons = [*_identity(disk, facts), *_in_use(facts)]
    if facts.read_error is None and not facts.shadowed and not given_up(disk, facts):
        reasons += foreign(disk, facts)
    return [*(_told(disk, facts, reason) for reason in reasons), *shared(disk, facts)]


def given_up(disk: Disk, facts: DiskFacts) -> bool:
    """Whether the inventory's `erase` allows that what lies there now is lost.

    It is the serial number and what `make check` printed of the contents, and ends with these; the
    serial number alone, which is allowed in a lab only, gives up whatever lies there.
    """
    serial, _, seen = (disk.erase or "").partition(" ")
    return serial == disk.serial and seen in ("", facts.print)


def shared(disk: Disk, facts: DiskFacts) -> list[str]:
    """Reasons not to own or revert a drive: it would be done to its other namespaces as well."""
    if not facts.beside:
        return []
    reason = (
        f"has its security in common with {', '.join(facts.beside)}: to own, lock or revert the "
        "drive would lock or erase these as well, so choose a drive with one namespace, or delete "
        "the others if nothing on them is needed (nvme delete-ns)."
    )
    return [_told(disk, facts, reason)]


def blocked(disk: Disk, facts: DiskFacts) -> list[str]:
    """Reasons why nobody can take the drive now; it says so itself."""
    if facts.sid is None or not facts.sid.blocked or (facts.opal and facts.opal.locking_enabled):
        return []
    reason = (
        "lets nobody take it until its next power cycle (Block SID, which firmware sets as it "
        "starts): switch that off in the firmware's set-up (TCG, Opal or Block SID), or connect "
        "the disk once the machine is up, then try again."
    )
    return [_told(disk, facts, reason)]


def silent(disk: Disk, facts: DiskFacts, *, owned: bool) -> list[str]:
    """Reasons not to take a disk for one without Opal; `owned`: we made it lock, or were to."""
    if facts.path is None or facts.opal is not None or not owned:
        return []
    why = facts.opal_error or "the kernel sees no Opal on it"
    reason = (
        f"was made to lock by this testbed, or is to be, and does not say now whether it does "
        f"({why}), so that nothing is cleared: a SATA disk needs libata.allow_tpm=1 on the "
        "kernel's command line, any other its cable and power looked at."
    )
    return [_told(disk, facts, reason)]


def hidden(disk: Disk, facts: DiskFacts) -> list[str]:
    """Reasons why nobody can say whether the disk is ours; empty if it can be told."""
    if facts.path is None or facts.stale:
        return []
    return [_told(disk, facts, reason) for reason in _hidden(disk, facts)]


def _told(disk: Disk, facts: DiskFacts, reason: str) -> str:
    return f"Disk {disk.role} ({disk.by_id}, {facts.path}) {reason}"


def _identity(disk: Disk, facts: DiskFacts) -> list[str]:
    reasons = []
    if not facts.whole_disk:
        reasons.append("is a partition or a mapping, not a whole disk: name the disk's by-id path.")
    if facts.serial != disk.serial:
        reasons.append(
            f"has serial {facts.serial or 'unknown'!r}, the inventory says {disk.serial!r}: "
            "correct the inventory if this is really the disk to be used."
        )
    if facts.size_bytes != disk.size_bytes:
        reasons.append(
            f"has {facts.size_bytes} bytes, the inventory says {disk.size_bytes}: "
            "correct the inventory if this is really the disk to be used."
        )
    if disk.erase is not None and disk.erase.partition(" ")[0] != disk.serial:
        reasons.append(
            f"may be erased only by its serial, the inventory says erase: {disk.erase!r}: "
            "correct or remove it."
        )
    if facts.twins:
        reasons.append(
            f"has the same serial and size as {', '.join(f'/dev/{t}' for t in facts.twins)}: "
            "if these are two paths to one disk, take one away; else disconnect the other disk."
        )
    return reasons


def _in_use(facts: DiskFacts) -> list[str]:
    protected = (
        "is write-protected: see its switch, the drive's settings and `blockdev --getro`, or "
        "choose another disk."
    )
    return [protected] * facts.read_only + [
        f"is in use ({use.device}: {use.how}): choose another disk, or free this one first."
        for use in facts.uses
        if not (facts.partition and _our_use(use.how))
    ]


def _our_use(how: str) -> bool:
    """Our mapping, its helpers of the same name, or our mount."""
    held = f"held by {MAPPING}"
    exact = (f"mounted on {MOUNT_POINT}", held)
    return how in exact or how.startswith((f"{held}-", f"{held}_"))


def _hidden(disk: Disk, facts: DiskFacts) -> list[str]:
    """What keeps us from knowing what is on it; `erase` is no way past these."""
    revert = (
        "revert it by its PSID if nothing on it is needed "
        f"(make teardown PSID_REVERT={disk.serial})"
    )
    if facts.shadowed:
        return [f"hides its start behind an Opal MBR shadow: set MBR Done, or {revert}."]
    if facts.read_error is not None:
        # Probing a locked disk finds nothing, which is not the same as an empty disk.
        owned = facts.opal is not None and facts.opal.locking_enabled
        return [
            f"cannot be read ({facts.read_error}), so nobody knows what is on it: "
            + (f"unlock it, or {revert}." if owned else "choose another disk, or repair this one.")
        ]
    owned = facts.opal is not None and facts.opal.locking_enabled
    if owned and facts.partition is None and not facts.taking:
        return [
            "is owned by someone (Opal locking is enabled) and does not carry the testbed's mark: "
            f"have its owner give it up, or {revert}."
        ]
    if facts.stale:
        return [
            "has another partition table than the kernel shows: let the kernel read it again "
            f"(blockdev --rereadpt {facts.path}), then look what is on it."
        ]
    return []


def foreign(disk: Disk, facts: DiskFacts) -> list[str]:
    """What is on the disk that is not ours; `erase` in the inventory is the only way past it."""
    expired = disk.erase is not None and not given_up(disk, facts)
    way_out = (
        f"{'its erase was given for something else that lay there; ' if expired else ''}"
        "choose another disk, or, if nothing on it is needed, allow it in the inventory "
        f'(erase: "{disk.serial} {facts.print}").'
    )
    if facts.signatures:
        return [f"carries a signature that is not ours ({_types(facts.signatures)}): {way_out}"]
    ours = facts.partition
    if ours is not None:
        strange = _types(facts.strange)
        told = f"carries a signature that is not ours in its partition ({strange}): {way_out}"
        return [told] if strange else []
    if facts.unknown:
        return [f"holds {facts.unknown}: {way_out}"]
    if facts.blank:
        return []
    if any(p.has_marker for p in facts.partitions):
        return [
            "carries the testbed's layout, but not the mark of this very disk (a copy of another "
            f"one, or changed by hand): {way_out}"
        ]
    inside = ", ".join(_types(p.signatures) or p.name or p.path for p in facts.partitions)
    return [
        f"carries a partition table that is not ours ({facts.table or 'unknown'}, "
        f"{inside or 'empty'}): {way_out}"
    ]


def _types(signatures: Iterable[Signature]) -> str:
    return ", ".join(sorted({s.type for s in signatures}))


def check(disk: Disk, serial_of: SerialOf = devices.serial) -> DiskFacts:
    """Gather and judge; raises GuardError with every reason."""
    facts = gather(disk, serial_of)
    _refuse(refusals(disk, facts))
    return facts


def check_ours(disk: Disk, serial_of: SerialOf = devices.serial) -> Partition:
    """Like `check`, and the disk must already be laid out as ours with nothing foreign inside."""
    facts = gather(disk, serial_of)
    _refuse(refusals(disk, facts, erase=False))
    if facts.partition is None:
        raise GuardError(
            f"Disk {disk.role} ({disk.by_id}) does not carry the testbed's partition: "
            "provision the target first."
        )
    return facts.partition


@contextmanager
def holding(disk: Disk) -> Iterator[None]:
    """Hold the disk, so that what is looked at in here is what is written in here.

    In the end udev is waited for, which has had to wait: it reads a table again that was written,
    and its partitions are gone meanwhile. Raises GuardError where the disk is not there, or its
    path leads elsewhere by now.
    """
    with ExitStack() as stack:
        name = devices.kernel_name(disk.by_id)
        try:
            stack.enter_context(devices.held(name or ""))
        except OSError:
            name = None
        if name is None or devices.kernel_name(disk.by_id) != name:
            _refuse(refusals(disk, DiskFacts()))
        yield
    devices.settle()


def check_still(disk: Disk, approved: DiskFacts, serial_of: SerialOf = devices.serial) -> DiskFacts:
    """Right before a destructive step: nothing but our own use may differ from what was approved.

    Raises GuardError.
    """
    try:
        facts = gather(disk, serial_of)
    except CommandError:  # it was unplugged while it was looked at: is another one there now?
        devices.settle()
        facts = gather(disk, serial_of)
    _refuse(refusals(disk, facts))
    refuse_changed(disk, approved, facts)
    return facts


def refuse_changed(disk: Disk, approved: DiskFacts, facts: DiskFacts) -> None:
    """Raises GuardError if the disk is not as it was approved."""
    # Who uses it is judged anew, and Opal's state is the drive's, not its contents.
    same = replace(
        facts,
        uses=approved.uses,
        opal=approved.opal,
        sid=approved.sid,
        taking=approved.taking,
    )
    if same != approved:
        raise GuardError(
            f"Disk {disk.role} ({disk.by_id}, {facts.path}) changed since it was looked at "
            f"({', '.join(_differing(approved, same))}): find out who else writes it, then "
            "run make check again."
        )


def _differing(before: DiskFacts, after: DiskFacts) -> list[str]:
    words = {
        "edges": "first or last MiB",
        "samples": "what lies between",
        "diskseq": "connected anew",
        "table_uuid": "disk GUID",
    }
    return [
        words.get(name, name.replace("_", " "))
        for name in before.__dataclass_fields__
        if getattr(before, name) != getattr(after, name)
    ]


def _refuse(reasons: list[str]) -> None:
    if reasons:
        raise GuardError(" ".join(reasons))
