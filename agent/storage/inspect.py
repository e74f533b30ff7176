"""The present state of the disks and what provisioning would do to each; nothing is written.

It needs no secret and tries no PIN, for a wrong try counts against the drive's limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent.checks import smart
from agent.storage import devices, disk_records, file_disk, guard, layout
from agent.storage import facts as disk_facts
from agent.storage.facts import DiskFacts
from agent.storage.provision import carries_opal, reasons_not_to_prepare
from agent.system.command import run
from contract import strict_json, system_text
from contract.disks import DiskAnswer, OpalState
from contract.plan import Disk, StorageSpec


def check(spec: StorageSpec) -> list[DiskAnswer]:
    """Describe every disk of the target. Raises CommandError."""
    return [_check(spec, disk) for disk in spec.disks.values()]


def _check(spec: StorageSpec, disk: Disk) -> DiskAnswer:
    if disk.file and not file_disk.find_loop(disk):
        return _check_file(spec, disk)
    facts = disk_facts.gather(disk)
    reasons = reasons_not_to_prepare(spec, disk, facts)
    model, transport = kind_of_disk(facts.path) if facts.path else ("", "")
    return DiskAnswer(
        role=disk.role,
        by_id=disk.by_id,
        path=facts.path,
        serial=facts.serial,
        size_bytes=facts.size_bytes,
        model=model,
        transport=transport,
        lifetime=smart.lifetime(Path(facts.path).name) if facts.path else None,
        found=describe(disk, facts, spec),
        opal=opal_state(facts),
        would=tuple(would(spec, disk, facts)) if not reasons else (),
        refusals=tuple(reasons),
        fingerprint=facts.checked_print,
        # As far as no PIN is tried.
        ready=not reasons
        and layout.ready(disk, facts, spec.extent)
        and (facts.owned or not carries_opal(spec, disk.role)),
        ours=facts.partition is not None or disk_records.left_by_us(disk, facts),
    )


def _check_file(spec: StorageSpec, disk: Disk) -> DiskAnswer:
    """Describe a disk whose file is not attached."""
    reasons = file_disk.refusals(disk, spec.extent)
    step = "attach" if not reasons and file_disk.exists(disk) else "create and attach"
    return DiskAnswer(
        role=disk.role,
        by_id=disk.by_id,
        serial=disk.serial,
        size_bytes=disk.size_bytes,
        transport="file",
        found=f"a file, {disk.file}, not attached",
        would=() if reasons else (f"{step} {disk.file}",),
        refusals=tuple(reasons),
        ours=True,
    )


def opal_state(facts: DiskFacts) -> OpalState | None:
    """Return the state of a drive's Opal; None without it."""
    if facts.opal is None:
        return OpalState(None, None, None, None) if facts.opal_error else None
    return OpalState(
        owned=facts.opal.locking_enabled or (facts.sid.taken if facts.sid else None),
        locked=facts.opal.locked,
        shadowed=facts.shadowed,
        sid_blocked=facts.sid.blocked if facts.sid else None,
    )


def describe(disk: Disk, facts: DiskFacts, spec: StorageSpec) -> str:
    """Describe the contents of the disk in words."""
    if facts.path is None:
        return "no block device stands there"
    if facts.read_error is not None:
        contents = f"its start or end cannot be read ({facts.read_error})"
    elif facts.shadowed:
        contents = "its start is hidden"
    elif facts.partition is not None:
        size_mib = facts.partition.size_bytes // layout.MIB
        fits = layout.matches(facts.partition, spec.extent)
        contents = f"the testbed's layout, {size_mib} MiB{'' if fits else ' (another extent)'}"
    elif facts.blank:
        count = len(facts.samples)
        contents = f"blank: its first and last MiB, {count} places between, and no known signature"
    elif disk_records.left_by_us(disk, facts):
        contents = "what an earlier teardown of this testbed left, and nothing else"
    else:
        contents = "; ".join(map(guard.reason, guard.foreign_refusals(disk, facts)))
    uses = [f"{use.device} {use.how}" for use in facts.uses]
    has_words = facts.opal or facts.opal_error or carries_opal(spec, disk.role)
    parts = [contents, *uses, *([opal_in_words(facts)] if has_words else [])]
    if facts.beside:
        parts.append(f"a drive with {', '.join(facts.beside)}")
    return "; ".join(parts)


def opal_in_words(facts: DiskFacts) -> str:
    """Return the state of a drive that has Opal, as far as known without a PIN."""
    status, sid = facts.opal, facts.sid
    if facts.opal_error:
        return f"no Opal answer ({facts.opal_error.rstrip('.')})"
    if status is None:
        return "no Opal"
    locked = "a range is locked" if status.locked else "nothing is locked"
    if status.locking_enabled and facts.partition is not None:
        state = f"owned, by this testbed by its mark, locking enabled, {locked}"
    elif status.locking_enabled and facts.taking:
        state = f"half-taken by a provisioning that was interrupted, locking enabled, {locked}"
    elif status.locking_enabled:
        state = f"owned by someone else, locking enabled, {locked}"
    elif facts.taking:
        state = "half-taken by a provisioning that was interrupted, nothing is locked"
    elif sid is not None and sid.taken:
        state = "half-taken: it has an owner's PIN, but locking is not enabled"
    else:
        state = "not owned, factory state" + ("" if sid else " as far as it reports")
    if sid is not None and sid.blocked:
        state += ", refuses ownership before a power cycle (Block SID)"
    shadow = "on" if status.mbr_enabled and not status.mbr_done else "off"
    return f"Opal: {state}, MBR shadow {shadow}"


def would(spec: StorageSpec, disk: Disk, facts: DiskFacts) -> list[str]:
    """List what provisioning would do to a disk that it may write.

    Empty if nothing is missing.
    """
    steps = []
    ready = layout.ready(disk, facts, spec.extent)
    if not ready:
        erased = guard.foreign_refusals(disk, facts)
        if disk_records.left_by_us(disk, facts):
            steps.append("blank what our own teardown left on it")
        elif erased:
            steps.append("erase what is on it (its erase allows that)")
        size_mib = layout.partition_bytes(spec.extent) // layout.MIB
        steps.append(f"write a GPT with one marked partition of {size_mib} MiB")
    if carries_opal(spec, disk.role):
        if not facts.owned:
            steps.append("take ownership with the PIN of the secrets, make and lock its range")
        elif not ready:
            steps.append("make its locking range again with the PIN of the secrets")
        else:
            steps.append("ask with the PIN whether the range is as it must be, and lock it")
    return steps


def kind_of_disk(path: str) -> tuple[str, str]:
    """Return model and transport as lsblk reports them; empty if unknown."""
    printed = run(["lsblk", "--json", "--nodeps", "--output", "MODEL,TRAN", path]).out
    (listed,) = strict_json.parse(_Listed, printed).blockdevices
    name = Path(path).name
    fabric = devices.controllers(Path(f"/sys/class/block/{name}/device"))[0] / "transport"
    if fabric.exists():
        return listed.model or "", f"nvme/{system_text.read(fabric).strip()}"
    return listed.model or "", listed.tran or ""


@dataclass(frozen=True)
class _Device:
    model: str | None
    tran: str | None


@dataclass(frozen=True)
class _Listed:
    """The output of `lsblk --json`."""

    blockdevices: tuple[_Device, ...]
