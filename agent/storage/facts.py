"""Facts about a disk: its contents and users, gathered by few programs, so that it stays cheap.

A disk is ours if its GPT carries our type and name, and the UUIDs that follow from its own serial
number: a table that was copied from another disk does not make it ours.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import tempfile
import uuid
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from agent.storage import devices, disk_records, nvme, opal_ioctl, samples, uses
from agent.storage.devices import SECTOR_BYTES
from agent.storage.plaintext_probe import locked_read
from agent.storage.uses import Use
from agent.system.command import CommandError, run
from agent.system.lock import RUN
from contract import strict_json
from contract.plan import DATA_OFFSET_BYTES, Disk

MARKER_TYPE = "6ba54ad2-4c4c-4b5e-9d1c-fde7e57bed01"
MARKER_NAME = "fde-testbed"
LUKS_LABEL = "fde-testbed"
_NAMESPACE = uuid.UUID(MARKER_TYPE)
_TABLES = frozenset({"gpt", "PMBR", "dos"})


def disk_uuid(serial: str) -> str:
    """Return the GPT disk GUID that marks the disk of a serial number as ours (UUID version 5)."""
    return str(uuid.uuid5(_NAMESPACE, f"disk {serial}"))


def partition_uuid(serial: str) -> str:
    """Return the UUID of our partition on the disk of this serial number."""
    return str(uuid.uuid5(_NAMESPACE, f"partition {serial}"))


@dataclass(frozen=True)
class Signature:
    """A magic that libblkid knows; `type` in its words, `offset_bytes` where it was found."""

    type: str
    offset_bytes: int
    label: str | None = None
    uuid: str | None = None


@dataclass(frozen=True)
class Partition:
    """One partition: kernel path, GPT type and name, place in bytes, UUID, signatures inside."""

    path: str
    type_guid: str
    name: str
    start_bytes: int
    size_bytes: int
    uuid: str = ""
    signatures: tuple[Signature, ...] = ()

    @property
    def has_marker(self) -> bool:
        """Whether it claims to be ours; the UUIDs of its disk show whether it is."""
        return self.type_guid.lower() == MARKER_TYPE and self.name == MARKER_NAME


@dataclass(frozen=True)
class DiskFacts:
    """Facts about the disk at a by-id path; `path` is None if there is no block device.

    `table`: type of the partition table, also of a damaged one. `table_uuid`: the GPT's own.
    `signatures`: those of the whole disk that are no table. `edges`: sums of first and last MiB,
    `samples`: of places between (empty for a blank one), `unknown`: contents there without a known
    signature, in words; `headers`: sums of what changes as a volume is used (`samples.headers`);
    `writes`: write commands that an NVMe disk has counted in its life, `kernel_writes` those of the
    kernel since it started; these are read only if the disk is not ours or has something else in
    it. `read_error`: the error's name if first or last block cannot be read. `stale`: the kernel
    shows other partitions than the table. `opal`: None without Opal. `opal_error`: the drive did
    not answer the Opal request; `opal` and `discovery` are then meaningless. `discovery`: further
    reports without a PIN. `taking`: an ownership that we began is recorded as unfinished,
    `reverted`: a revert is recorded as not cleaned up. `beside`: other namespaces of the same
    drive, which share its security. `given_away`: storage controllers that programs drive, listed
    only without a disk.
    """

    path: str | None = None
    whole_disk: bool = False
    unsuited: str = ""
    serial: str = ""
    size_bytes: int = 0
    diskseq: int = 0
    uses: tuple[Use, ...] = ()
    same_identity: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    table: str | None = None
    table_uuid: str = ""
    signatures: tuple[Signature, ...] = ()
    partitions: tuple[Partition, ...] = ()
    stale: bool = False
    edges: tuple[str, ...] = ()
    samples: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    writes: int | None = None
    kernel_writes: str = ""
    unknown: str = ""
    read_error: str | None = None
    opal: opal_ioctl.Status | None = None
    opal_error: str | None = None
    discovery: opal_ioctl.Discovery = opal_ioctl.SILENT
    block_bytes: int = 0
    taking: bool = False
    reverted: bool = False
    given_away: tuple[str, ...] = ()

    @property
    def owned(self) -> bool:
        """Whether the drive locks: it has an owner, whose PIN is in force."""
        return self.opal is not None and self.opal.locking_enabled

    @property
    def sid(self) -> opal_ioctl.Sid | None:
        """State of the owner's PIN, if the drive reports it."""
        return self.discovery.sid

    @property
    def partition(self) -> Partition | None:
        """Our partition, if this disk is laid out as ours."""
        if self.table != "gpt" or self.stale or len(self.partitions) != 1:
            return None
        (only,) = self.partitions
        marks = (self.table_uuid.lower(), only.uuid.lower())
        expected_marks = (disk_uuid(self.serial), partition_uuid(self.serial))
        return only if only.has_marker and marks == expected_marks else None

    @property
    def strange(self) -> tuple[Signature, ...]:
        """Signatures in our partition other than our LUKS header: somebody else wrote them.

        A LUKS1 header has no label: ours has the partition's own UUID.

        The data of a configuration begin behind the header area, where no magic of a file system is
        searched, and random headers show none.
        """
        if self.partition is None:
            return ()
        uuid = self.partition.uuid.lower()
        return tuple(
            s
            for s in self.partition.signatures
            if s.type != "crypto_LUKS"
            or (s.label != LUKS_LABEL and (s.label or (s.uuid or "").lower() != uuid))
            or s.offset_bytes >= DATA_OFFSET_BYTES
        )

    @property
    def blank(self) -> bool:
        """Whether the disk is empty, as far as can be known."""
        return not (self.table or self.signatures or self.partitions or self.unknown)

    @property
    def shadowed(self) -> bool:
        """Whether an Opal drive shows something else in place of its first blocks."""
        return self.opal is not None and self.opal.mbr_enabled and not self.opal.mbr_done

    @property
    def bare(self) -> bool:
        """Whether first and last MiB are blank and nothing known is on it."""
        edges = bool(self.edges) and set(self.edges) <= samples.BLANK_EDGES
        return edges and not (self.table or self.signatures or self.partitions)

    @property
    def print(self) -> str:
        """The start of the fingerprint, as people copy it into an inventory; empty if unknown."""
        return (self.fingerprint or "")[:12]

    @property
    def fingerprint(self) -> str | None:
        """SHA-256 over identity and contents as far as known; None if it could not be read.

        A restart of the target does not change it. `erase` is bound to its first digits.
        """
        if self.path is None or self.read_error is not None:
            return None
        parts = [
            (p.type_guid, p.name, p.start_bytes, p.size_bytes, p.uuid, _plain(p.signatures))
            for p in self.partitions
        ]
        content = (self.serial, self.size_bytes, self.table, self.table_uuid, parts)
        signatures = _plain(self.signatures)
        document = [content, signatures, self.edges, self.samples, self.headers, self.writes]
        return hashlib.sha256(json.dumps(document).encode()).hexdigest()

    @property
    def checked_print(self) -> str | None:
        """The fingerprint, and a sum that ends with any write and with a restart of the target."""
        if self.fingerprint is None:
            return None
        return f"{self.fingerprint}-{hashlib.sha256(self.kernel_writes.encode()).hexdigest()[:12]}"


def _plain(signatures: tuple[Signature, ...]) -> list[tuple[str, int, str | None, str | None]]:
    return [(s.type, s.offset_bytes, s.label, s.uuid) for s in signatures]


def gather(disk: Disk) -> DiskFacts:
    """Gather the facts: sysfs, mounts, swap, an exclusive open, wipefs, sfdisk (read only)."""
    name = devices.kernel_name(disk.by_id)
    if name is not None:
        with ExitStack() as stack:
            with suppress(OSError):  # reading it will say what is wrong
                stack.enter_context(devices.hold(name))
            try:
                return _gather(disk, name)
            except (CommandError, FileNotFoundError):
                # It keeps its number while it is held, even if it is unplugged.
                if (devices.BLOCK / name).exists():
                    raise
    return DiskFacts(given_away=tuple(devices.given_away()))


def _gather(disk: Disk, name: str) -> DiskFacts:
    path, size = f"/dev/{name}", devices.size_bytes(name)
    is_whole = devices.is_whole_disk(name)
    serial, names = devices.serial(name), devices.partitions(name) if is_whole else []
    read_error = locked_read(path, 0)
    opal, opal_error, discovery = None, None, opal_ioctl.SILENT
    try:
        opal = opal_ioctl.find_status(path)
        discovery = opal_ioctl.discover(path) if opal else discovery
    except opal_ioctl.OpalError as error:
        opal, opal_error = None, str(error)
    signatures: dict[str, list[Signature]] = {n: [] for n in (name, *names)}
    if read_error is None and (opal_error or (opal and opal.locked)):
        signatures = _signatures([path]) | {n: _header_signatures(n) for n in names}
    elif read_error is None:
        signatures = _signatures([f"/dev/{n}" for n in signatures])
    types = [signature.type for signature in signatures[name]]
    table = read_table(path) if "gpt" in types else None
    entries, unit = (table.partitions, table.sectorsize) if table else ((), 0)
    shown = [(devices.partition_start_bytes(n), devices.size_bytes(n)) for n in names]
    listed = {(e.start * unit, e.size * unit): e for e in entries}
    disk_uses = uses.find_uses(name)
    if not disk_uses and uses.is_busy(path):
        disk_uses = [uses.explain_busy(name)]
    facts = DiskFacts(
        path=path,
        whole_disk=is_whole,
        unsuited=devices.unsuited(name),
        serial=serial,
        size_bytes=size,
        diskseq=devices.diskseq(name) if is_whole else 0,
        uses=tuple(disk_uses),
        same_identity=tuple(devices.same_identity(name)) if is_whole else (),
        beside=tuple(devices.sibling_namespaces(name)) if is_whole else (),
        # A table that can be seen but not read is one all the same.
        table="gpt" if table else next((t for t in types if t in _TABLES), None),
        table_uuid=table.id if table else "",
        signatures=tuple(s for s in signatures[name] if s.type not in _TABLES),
        partitions=tuple(
            Partition(f"/dev/{n}", e.type, e.name, *place, e.uuid, tuple(signatures[n]))
            for n, place in zip(names, shown, strict=True)
            for e in (listed.get(place, _UNLISTED),)
        ),
        stale=bool(table) and sorted(shown) != sorted(listed),
        read_error=read_error,
        opal=opal,
        opal_error=opal_error,
        discovery=discovery,
        block_bytes=devices.block_bytes(name),
        taking=disk_records.taking(disk),
        reverted=disk_records.reverted(disk),
    )
    is_ours = facts.partition is not None and not facts.strange and not facts.signatures
    return facts if is_ours or not is_whole else with_contents(facts)


def with_contents(facts: DiskFacts) -> DiskFacts:
    """Return the facts with the contents of the edges and of places between them."""
    if facts.path is None or facts.read_error is not None:
        return facts
    try:
        length = min(devices.EDGE_BYTES, facts.size_bytes)
        with devices.opened(facts.path, os.O_RDONLY | os.O_DIRECT) as fd:
            last = facts.size_bytes - length
            edges = devices.read(fd, 0, length), devices.read(fd, last, length)
        sums, offsets = samples.take(facts.path, facts.size_bytes, facts.serial)
        volumes = [(p.start_bytes, p.size_bytes) for p in facts.partitions]
        recognised = facts.table or facts.signatures
        volumes += [(at, 0) for at in (() if recognised else samples.without_table(offsets))]
        headers = samples.headers(facts.path, facts.size_bytes, volumes)
    except OSError as error:
        return replace(facts, read_error=errno.errorcode.get(error.errno or 0, str(error.errno)))
    writes = None  # others that share the drive would be counted as well
    if not facts.beside:
        with suppress(OSError):
            writes = nvme.writes(facts.path)
    return replace(
        facts,
        edges=tuple(hashlib.sha256(edge).hexdigest() for edge in edges),
        samples=sums,
        headers=headers,
        writes=writes,
        kernel_writes=devices.writes(Path(facts.path).name),
        unknown="" if recognised else _unknown(facts.path, edges, offsets),
    )


def _unknown(path: str, edges: tuple[bytes, bytes], offsets: tuple[int, ...]) -> str:
    """Describe the contents of a disk without signatures, in words that follow "holds".

    Empty if nothing.
    """
    names = [f"{kind} at {at // samples.MIB} MiB" for kind, at in samples.find_types(path, offsets)]
    if names:
        return f"{', '.join(names)} without a partition table"
    clauses = [
        f"its {end} MiB is not blank"
        for end, edge in zip(("first", "last"), edges, strict=True)
        if not samples.blank(edge)
    ]
    clauses += [f"there is data at byte {at}" for at in offsets[:1]]
    if not clauses:
        return ""
    return f"unrecognised data ({' and '.join(clauses)}; an encrypted volume looks like that)"


def _header_signatures(name: str) -> list[Signature]:
    """Find signatures in front of a partition's data, the rest of which a drive locks.

    Each read that a drive refuses may slow its link down, so the unlocked part is copied and
    examined. Empty if that cannot be read either.
    """
    RUN.mkdir(parents=True, exist_ok=True)
    unread = min(DATA_OFFSET_BYTES, devices.size_bytes(name))
    try:
        with (
            devices.opened(f"/dev/{name}", os.O_RDONLY | os.O_DIRECT) as fd,
            tempfile.NamedTemporaryFile(dir=RUN) as copy,
        ):
            while unread:
                unread -= copy.write(devices.read(fd, copy.tell(), min(unread, devices.EDGE_BYTES)))
            copy.flush()
            return _signatures([copy.name])[Path(copy.name).name]
    except OSError:
        return []


def _signatures(paths: list[str]) -> dict[str, list[Signature]]:
    """Return all signatures of these devices by kernel name.

    Those at the end and those that hide one another are included.
    """
    signatures: dict[str, list[Signature]] = {Path(path).name: [] for path in paths}
    printed = run(["wipefs", "--no-act", "--json", *paths]).out
    for wiped in strict_json.parse(_Wipefs, printed or "{}").signatures:
        signature = Signature(wiped.type, int(wiped.offset, 0), wiped.label, wiped.uuid)
        signatures[wiped.device].append(signature)
    return signatures


@dataclass(frozen=True)
class _Entry:
    """A partition as `sfdisk --json` prints it; `start` and `size` in sectors."""

    node: str
    type: str
    start: int
    size: int
    name: str = ""
    uuid: str = ""


_UNLISTED = _Entry("", "", 0, 0)  # of a partition that the kernel shows and the table has not


@dataclass(frozen=True)
class Table:
    """The partition table as `sfdisk --json` prints it."""

    label: str
    id: str = ""
    sectorsize: int = SECTOR_BYTES
    partitions: tuple[_Entry, ...] = ()


@dataclass(frozen=True)
class _Sfdisk:
    partitiontable: Table


def read_table(path: str, sector_bytes: int | None = None) -> Table | None:
    """Return the GPT of a disk or file as sfdisk reads it; None if it cannot.

    `sector_bytes` are those of a file, 512 by default.
    """
    unit = ["--sector-size", str(sector_bytes)] if sector_bytes else []
    output = run(["sfdisk", "--json", *unit, path], ok=(0, 1))
    if output.code or not output.out:
        return None
    table = strict_json.parse(_Sfdisk, output.out).partitiontable
    return table if table.label == "gpt" else None


@dataclass(frozen=True)
class _Wiped:
    """A signature as `wipefs --json` prints it; `offset` is text, hexadecimal."""

    device: str
    offset: str
    type: str
    label: str | None = None
    uuid: str | None = None


@dataclass(frozen=True)
class _Wipefs:
    signatures: tuple[_Wiped, ...] = ()
