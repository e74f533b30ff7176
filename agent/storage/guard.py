"""May this disk be written? Facts are gathered, then judged by a pure function.

Checked again right before every destructive step, for a disk may change hands in between.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from agent.causes import Cause
from agent.storage import devices
from agent.storage.facts import DiskFacts, Partition, Signature, gather
from agent.system.command import CommandError
from contract.errors import AgentError
from contract.files import yaml_text
from contract.journal import Fact
from contract.places import MOUNT_POINT, step
from contract.plan import Disk

MAPPING = "fde-data"

SerialOf = Callable[[str], str]


class _Says(NamedTuple):
    """A refusal for people: what stands against it, and the way out; filled in from its facts."""

    what: str
    way_out: str
    subject: str = "Disk {role} ({by_id}, {path}) "


_REVERT = (
    f"revert it by its PSID if nothing on it is needed ({step('teardown', psid_revert='{typed}')})"
)
_ALLOW = (
    "choose another disk, or, if nothing on it is needed, allow it in the inventory "
    "(erase: {allowed})"
)
_CORRECT = "correct the inventory if this is really the disk to be used"
SAYS: Mapping[str, _Says] = {
    "absent": _Says(
        "there is no block device at {by_id}",
        "connect it, or correct by_id in the inventory",
        "Disk {role}: ",
    ),
    "given-away": _Says(
        "there is no block device at {by_id}, and a program drives {controllers}",
        "end the virtual machine or SPDK that has it and bind the kernel's driver again, connect "
        "the disk, or correct by_id in the inventory",
        "Disk {role}: ",
    ),
    "not-whole": _Says(
        "is a partition or a mapping, not a whole disk", "name the disk's by-id path"
    ),
    "other-serial": _Says("has serial {found!r}, the inventory says {serial!r}", _CORRECT),
    "other-size": _Says("has {found} bytes, the inventory says {size_bytes}", _CORRECT),
    "other-erase": _Says(
        "may be erased only by its serial, the inventory says erase: {erase!r}",
        "correct or remove it",
    ),
    "same-identity": _Says(
        "has the same serial and size as {others}",
        "if these are two paths to one disk, take one away; else disconnect the other disk",
    ),
    "write-protected": _Says(
        "is write-protected",
        "see its switch, the drive's settings and `blockdev --getro`, or choose another disk",
    ),
    "in-use": _Says("is in use ({device}: {how})", "choose another disk, or free this one first"),
    "shadowed": _Says("hides its start behind an Opal MBR shadow", f"set MBR Done, or {_REVERT}"),
    # Probing a locked disk finds nothing, which is not the same as an empty disk.
    "locked": _Says(
        "cannot be read ({error}), so its content is unknown", f"unlock it, or {_REVERT}"
    ),
    "unreadable": _Says(
        "cannot be read ({error}), so its content is unknown",
        "choose another disk, or repair this one",
    ),
    "dead": _Says(
        "was reverted by this testbed and cannot be read since ({error})",
        f"power-cycle it (power the target off and on), then run {step('teardown')}",
    ),
    "owned": _Says(
        "is owned by someone (Opal locking is enabled) and does not carry the testbed's mark",
        f"have its owner give it up, or {_REVERT}",
    ),
    "stale": _Says(
        "has another partition table than the kernel shows",
        "let the kernel read it again (blockdev --rereadpt {path}), then look what is on it",
    ),
    "foreign-signature": _Says("carries a signature that is not ours ({types})", _ALLOW),
    "foreign-inside": _Says(
        "carries a signature that is not ours in its partition ({types})", _ALLOW
    ),
    "unknown-data": _Says("holds {unknown}", _ALLOW),
    "other-mark": _Says(
        "carries the testbed's layout, but not the mark of this very disk (a copy of another one, "
        "or changed by hand)",
        _ALLOW,
    ),
    "foreign-table": _Says(
        "carries a partition table that is not ours ({table}, {inside})", _ALLOW
    ),
    "shared": _Says(
        "shares its security subsystem with {beside}",
        "to own, lock or revert the drive would lock or erase these as well, so choose a drive "
        "with one namespace, or delete the others if nothing on them is needed (nvme delete-ns)",
    ),
    "blocked": _Says(
        "refuses ownership until its next power cycle (Block SID, which firmware sets as it "
        "starts)",
        "switch that off in the firmware's set-up (TCG, Opal or Block SID), or connect the disk "
        "once the machine is up, then try again",
    ),
    "opal-blocks": _Says(
        "reports Opal blocks of {found} bytes and data blocks of {wanted}, so a locking range "
        "would not be where it is set",
        "update its firmware, format it for the other block size (nvme format), or choose another "
        "self-encrypting disk",
    ),
    "opal-alignment": _Says(
        "requires locking ranges from block {lowest_lba} on in steps of {alignment_bytes} bytes; "
        "the testbed's begins at byte {start_bytes} and is {length_bytes} bytes long",
        "set fde_extent_bytes to a multiple of the step if only its length does not fit, or choose "
        "another self-encrypting disk",
    ),
    "opal-no-encryption": _Says(
        "reports that it does not encrypt (media encryption: no)",
        "update its firmware, or choose another self-encrypting disk",
    ),
    "silent": _Says(
        "was made to lock by this testbed, or is to be, and does not say now whether it does "
        "({error}), so that nothing is cleared",
        "a SATA disk needs libata.allow_tpm=1 on the kernel's command line, any other its cable "
        "and power looked at",
    ),
    "no-opal": _Says(
        "offers no Opal, which a configuration needs{error}",
        "choose a self-encrypting disk, or take the opal configuration out of the inventory",
    ),
    "no-opal-on-sata": _Says(
        "offers no Opal, which a configuration needs{error}",
        "libata does not let Opal through to SATA disks by itself, so start the machine with "
        "libata.allow_tpm=1 on the kernel's command line; if that changes nothing, choose a "
        "self-encrypting disk",
    ),
    "unmarked": _Says(
        "does not carry the testbed's partition",
        "provision the target first",
        "Disk {role} ({by_id}) ",
    ),
    "changed": _Says(
        "changed since it was looked at ({differing})",
        f"find out who else writes it, then run {step('check')} again",
    ),
    "changed-since-check": _Says(
        "changed since it was checked", f"run {step('check')} again, and see what is on it now"
    ),
    "extent-begin": _Says(
        "the data would begin {found} bytes into the partition", "let it begin at {wanted}", ""
    ),
    "extent-size": _Says(
        "extent_bytes is {found}", "make it a positive multiple of {multiple}", ""
    ),
    "extent-large": _Says(
        "has {size_bytes} bytes, the extent needs {needed}",
        "choose a smaller extent_bytes",
        "Disk {role} ",
    ),
    "no-such-serial": _Says(
        "No disk of this inventory has the serial {serial!r}",
        "nothing was reverted; give the serial of the self-encrypting disk (one of {known})",
        "",
    ),
}


@dataclass(frozen=True)
class Refusal(Cause):
    """Why a disk is left alone."""

    @classmethod
    def of(cls, cause: str, disk: Disk, seen: DiskFacts, /, **facts: Fact) -> Refusal:
        """With what names the disk."""
        named = {"role": disk.role, "by_id": disk.by_id, "serial": disk.serial}
        named |= {"typed": shlex.quote(disk.serial), "path": seen.path or ""}
        return cls(cause, {**named, **facts})

    @property
    def what(self) -> str:
        """What stands against it, a clause."""
        return SAYS[self.cause].what.format(**self.facts)

    @property
    def sentence(self) -> str:
        """Which disk, what stands against it, and the way out."""
        says = SAYS[self.cause]
        way_out = says.way_out
        if way_out == _ALLOW and self.facts["expired"]:
            way_out = f"its erase was given for something else that lay there; {way_out}"
        return f"{says.subject}{says.what}: {way_out}.".format(**self.facts)


class GuardError(AgentError):
    """The disks must not be written: why, and the way out."""

    def __init__(self, *refusals: Refusal) -> None:
        super().__init__(" ".join(refusal.sentence for refusal in refusals))
        self.refusals = refusals


def refusals(disk: Disk, facts: DiskFacts, *, erase: bool = True) -> list[Refusal]:
    """Every reason not to write this disk; empty if it may be written.

    `erase`: whether the inventory's `erase` counts; who does not lay the disk out again says no.
    """
    if facts.path is None:
        if facts.given_away:
            controllers = ", ".join(facts.given_away)
            return [Refusal.of("given-away", disk, facts, controllers=controllers)]
        return [Refusal.of("absent", disk, facts)]
    allowed = erase and given_up(disk, facts)
    found = [*_identity(disk, facts), *_in_use(disk, facts), *_hidden(disk, facts)]
    return found + ([] if allowed or facts.read_error or facts.stale else foreign(disk, facts))


def refusals_to_revert(disk: Disk, facts: DiskFacts) -> list[Refusal]:
    """Reasons not to put a drive back by its PSID, which was asked for by its serial number.

    That its contents are locked or hidden is none: this is the way out of it.
    """
    if facts.path is None:
        return refusals(disk, facts)
    found = [*_identity(disk, facts), *_in_use(disk, facts)]
    if facts.read_error is None and not facts.shadowed and not given_up(disk, facts):
        found += foreign(disk, facts)
    return [*found, *shared(disk, facts)]


def given_up(disk: Disk, facts: DiskFacts) -> bool:
    """Whether the inventory's `erase` allows that what lies there now is lost.

    It is the serial number and what `make check` printed of the contents, and ends with these; the
    serial number alone, which is allowed in a lab only, gives up whatever lies there.
    """
    return disk.erase is not None and disk.erase_digits in ("", facts.print)


def shared(disk: Disk, facts: DiskFacts) -> list[Refusal]:
    """Reasons not to own or revert a drive: it would be done to its other namespaces as well."""
    if not facts.beside:
        return []
    return [Refusal.of("shared", disk, facts, beside=", ".join(facts.beside))]


def blocked(disk: Disk, facts: DiskFacts) -> list[Refusal]:
    """Reasons why nobody can take the drive now; it says so itself."""
    if facts.sid is None or not facts.sid.blocked or (facts.opal and facts.opal.locking_enabled):
        return []
    return [Refusal.of("blocked", disk, facts)]


def silent(disk: Disk, facts: DiskFacts, *, owned: bool) -> list[Refusal]:
    """Reasons not to take a disk for one without Opal; `owned`: we made it lock, or were to."""
    if facts.path is None or facts.opal is not None or not owned:
        return []
    error = facts.opal_error or "the kernel sees no Opal on it"
    return [Refusal.of("silent", disk, facts, error=error)]


def hidden(disk: Disk, facts: DiskFacts) -> list[Refusal]:
    """Reasons why nobody can say whether the disk is ours; empty if it can be told."""
    return [] if facts.path is None or facts.stale else _hidden(disk, facts)


def _identity(disk: Disk, facts: DiskFacts) -> Iterator[Refusal]:
    if not facts.whole_disk:
        yield Refusal.of("not-whole", disk, facts)
    if facts.serial != disk.serial:
        yield Refusal.of("other-serial", disk, facts, found=facts.serial or "unknown")
    if facts.size_bytes != disk.size_bytes:
        size = {"found": facts.size_bytes, "size_bytes": disk.size_bytes}
        yield Refusal.of("other-size", disk, facts, **size)
    if disk.erase is not None and disk.erase_digits is None:
        yield Refusal.of("other-erase", disk, facts, erase=disk.erase)
    if facts.same_identity:
        others = ", ".join(f"/dev/{name}" for name in facts.same_identity)
        yield Refusal.of("same-identity", disk, facts, others=others)


def _in_use(disk: Disk, facts: DiskFacts) -> Iterator[Refusal]:
    if facts.read_only:
        yield Refusal.of("write-protected", disk, facts)
    for use in facts.uses:
        if not (facts.partition and _our_use(use.how)):
            yield Refusal.of("in-use", disk, facts, device=use.device, how=use.how)


def _our_use(how: str) -> bool:
    """Our mapping, its helpers of the same name, or our mount."""
    held = f"held by {MAPPING}"
    exact = (f"mounted on {MOUNT_POINT}", held)
    return how in exact or how.startswith((f"{held}-", f"{held}_"))


def _hidden(disk: Disk, facts: DiskFacts) -> list[Refusal]:
    """What keeps us from knowing what is on it; `erase` is no way past these."""
    owned = facts.opal is not None and facts.opal.locking_enabled
    if facts.shadowed:
        return [Refusal.of("shadowed", disk, facts)]
    if facts.read_error is not None:
        cause = "locked" if owned else "dead" if facts.reverted else "unreadable"
        return [Refusal.of(cause, disk, facts, error=facts.read_error)]
    if owned and facts.partition is None and not facts.taking:
        return [Refusal.of("owned", disk, facts)]
    return [Refusal.of("stale", disk, facts)] if facts.stale else []


def foreign(disk: Disk, facts: DiskFacts) -> list[Refusal]:
    """What is on the disk that is not ours; `erase` in the inventory is the only way past it."""
    expired = disk.erase is not None and not given_up(disk, facts)

    def found(cause: str, **told: Fact) -> list[Refusal]:
        allowed = yaml_text(f"{disk.serial} {facts.print}")
        told |= {"print": facts.print, "allowed": allowed, "expired": int(expired)}
        return [Refusal.of(cause, disk, facts, **told)]

    if facts.signatures:
        return found("foreign-signature", types=_types(facts.signatures))
    if facts.partition is not None:
        strange = _types(facts.strange)
        return found("foreign-inside", types=strange) if strange else []
    if facts.unknown:
        return found("unknown-data", unknown=facts.unknown)
    if facts.blank:
        return []
    if any(p.has_marker for p in facts.partitions):
        return found("other-mark")
    inside = ", ".join(_types(p.signatures) or p.name or p.path for p in facts.partitions)
    return found("foreign-table", table=facts.table or "unknown", inside=inside or "empty")


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
        raise GuardError(Refusal.of("unmarked", disk, facts))
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
    # Who uses it is judged again, and Opal's state is the drive's, not its contents.
    same = replace(
        facts,
        uses=approved.uses,
        opal=approved.opal,
        discovery=approved.discovery,
        taking=approved.taking,
        reverted=approved.reverted,
    )
    if same != approved:
        differing = ", ".join(_differing(approved, same))
        raise GuardError(Refusal.of("changed", disk, facts, differing=differing))


def _differing(before: DiskFacts, after: DiskFacts) -> list[str]:
    words = {
        "edges": "first or last MiB",
        "samples": "what lies between",
        "headers": "what a volume notes of its use",
        "writes": "write commands counted by the drive",
        "kernel_writes": "written by the kernel",
        "diskseq": "connected again",
        "table_uuid": "disk GUID",
    }
    return [
        words.get(name, name.replace("_", " "))
        for name in before.__dataclass_fields__
        if getattr(before, name) != getattr(after, name)
    ]


def _refuse(found: list[Refusal]) -> None:
    if found:
        raise GuardError(*found)
