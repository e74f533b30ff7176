"""May this disk be written? Facts are gathered, then judged by a pure function.

Checked again right before every destructive step, for a disk may change hands in between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.command import run
from agent.errors import AgentError
from agent.plan import Disk
from agent.storage import devices
from agent.storage.canary import locked_read
from agent.storage.devices import Use

MARKER_TYPE = "6ba54ad2-4c4c-4b5e-9d1c-fde7e57bed01"
MARKER_NAME = "fde-testbed"
LUKS_LABEL = "fde-testbed"
MAPPING = "fde-data"
MOUNT_POINT = "/run/fde-testbed/disk"

_BLKID_NOTHING, _BLKID_AMBIVALENT = 2, 8


class GuardError(AgentError):
    """The disk must not be written: which, why, and the way out."""


@dataclass(frozen=True)
class Partition:
    """One partition: kernel path, GPT type and name, place in bytes, signature found inside."""

    path: str
    type_guid: str
    name: str
    start_bytes: int
    size_bytes: int
    signature: str | None
    label: str | None

    @property
    def has_marker(self) -> bool:
        return self.type_guid.lower() == MARKER_TYPE and self.name == MARKER_NAME


@dataclass(frozen=True)
class DiskFacts:
    """What was found at a by-id path; `path` is None if no block device stands there.

    `read_error` is the error's name if the first block cannot be read, so that nothing is known.
    """

    path: str | None
    whole_disk: bool
    serial: str
    size_bytes: int
    uses: tuple[Use, ...]
    table: str | None
    signature: str | None
    partitions: tuple[Partition, ...]
    read_error: str | None = None

    @property
    def partition(self) -> Partition | None:
        """Our partition, if this disk is laid out as ours."""
        if self.table == "gpt" and len(self.partitions) == 1 and self.partitions[0].has_marker:
            return self.partitions[0]
        return None

    @property
    def blank(self) -> bool:
        return self.table is None and self.signature is None and not self.partitions


def gather(disk: Disk, serial_of: Callable[[str], str] = devices.serial) -> DiskFacts:
    """Look at the disk: sysfs, mounts, swap, and signatures by direct probing (blkid -p)."""
    name = devices.kernel_name(disk.by_id)
    if name is None:
        return DiskFacts(None, False, "", 0, (), None, None, ())
    names = devices.partitions(name)
    probed = {path: _probe(path) for path in (f"/dev/{n}" for n in (name, *names))}
    whole = probed[f"/dev/{name}"]
    return DiskFacts(
        path=f"/dev/{name}",
        whole_disk=devices.is_whole_disk(name),
        serial=serial_of(name),
        size_bytes=devices.size_bytes(name),
        uses=tuple(devices.uses(name)),
        table=whole.get("PTTYPE"),
        signature=whole.get("TYPE"),
        partitions=tuple(_partition(n, probed[f"/dev/{n}"]) for n in names),
        read_error=locked_read(f"/dev/{name}", 0),
    )


def _partition(name: str, probed: dict[str, str]) -> Partition:
    return Partition(
        path=f"/dev/{name}",
        type_guid=probed.get("PART_ENTRY_TYPE", ""),
        name=probed.get("PART_ENTRY_NAME", ""),
        start_bytes=devices.partition_start_bytes(name),
        size_bytes=devices.size_bytes(name),
        signature=probed.get("TYPE") or probed.get("PTTYPE"),
        label=probed.get("LABEL"),
    )


def _probe(path: str) -> dict[str, str]:
    output = run(["blkid", "-p", "-o", "export", path], ok=(0, _BLKID_NOTHING, _BLKID_AMBIVALENT))
    found = dict(line.split("=", 1) for line in output.out.splitlines() if "=" in line)
    if output.code == _BLKID_AMBIVALENT:
        found["TYPE"] = "more than one signature"
    # blkid -o export escapes blanks for the shell.
    return {key: value.replace("\\ ", " ") for key, value in found.items()}


def refusals(disk: Disk, facts: DiskFacts) -> list[str]:
    """Every reason not to write this disk, each with the way out; empty if it may be written."""
    if facts.path is None:
        return [
            f"Disk {disk.role}: there is no block device at {disk.by_id}: "
            "connect it, or correct by_id in the inventory."
        ]
    who = f"Disk {disk.role} ({disk.by_id}, {facts.path})"
    return [
        f"{who} {reason}" for reason in [*_identity(disk, facts), *_in_use(facts), *_foreign(facts)]
    ]


def _identity(disk: Disk, facts: DiskFacts) -> list[str]:
    reasons = []
    if not facts.whole_disk:
        reasons.append("is a partition or a mapping, not a whole disk: name the disk's by-id path.")
    if facts.serial != disk.serial:
        reasons.append(
            f"has serial {facts.serial or 'unknown'!r}, the inventory says {disk.serial!r}: "
            "correct the inventory if this is really the disk to be erased."
        )
    if facts.size_bytes != disk.size_bytes:
        reasons.append(
            f"has {facts.size_bytes} bytes, the inventory says {disk.size_bytes}: "
            "correct the inventory if this is really the disk to be erased."
        )
    return reasons


def _in_use(facts: DiskFacts) -> list[str]:
    ours = {f"held by {MAPPING}", f"mounted on {MOUNT_POINT}"}
    ours = ours if facts.partition else set()
    return [
        f"is in use ({use.device}: {use.how}): choose another disk, or free this one first."
        for use in facts.uses
        if use.how not in ours
    ]


def _foreign(facts: DiskFacts) -> list[str]:
    way_out = "if nothing on it is needed, clear it yourself (wipefs -a), then try again."
    if facts.read_error is not None:
        # Probing a locked disk finds nothing, which is not the same as an empty disk.
        return [
            f"cannot be read ({facts.read_error}), so nobody knows what is on it: unlock it, or "
            "revert it by its PSID if nothing on it is needed."
        ]
    if facts.signature is not None:
        return [f"carries a signature that is not ours ({facts.signature}): {way_out}"]
    ours = facts.partition
    if ours is None:
        if facts.blank:
            return []
        inside = ", ".join(p.signature or p.name or p.path for p in facts.partitions) or "empty"
        return [
            f"carries a partition table that is not ours ({facts.table or 'unknown'}, {inside}): "
            f"{way_out}"
        ]
    if ours.signature is None or (ours.signature == "crypto_LUKS" and ours.label == LUKS_LABEL):
        return []
    return [f"carries a signature that is not ours in its partition ({ours.signature}): {way_out}"]


def check(disk: Disk, serial_of: Callable[[str], str] = devices.serial) -> DiskFacts:
    """Gather and judge; raises GuardError with every reason."""
    facts = gather(disk, serial_of)
    reasons = refusals(disk, facts)
    if reasons:
        raise GuardError(" ".join(reasons))
    return facts


def check_ours(disk: Disk, serial_of: Callable[[str], str] = devices.serial) -> Partition:
    """Like `check`, and the disk must already be laid out as ours; its partition."""
    partition = check(disk, serial_of).partition
    if partition is None:
        raise GuardError(
            f"Disk {disk.role} ({disk.by_id}) does not carry the testbed's partition: "
            "provision the target first."
        )
    return partition
