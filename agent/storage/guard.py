"""Judge whether a disk may be written, by a pure function over gathered facts.

It is checked again right before every destructive step, for a disk may be replaced in between.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from agent.storage import devices
from agent.storage.facts import DiskFacts, Partition, Signature, gather
from contract.errors import AgentError
from contract.files import yaml_text
from contract.places import MOUNT_POINT
from contract.plan import Disk
from contract.problem import Fact, Problem, wordings_of

MAPPING = "fde-data"

SUBJECT = "Disk {role} ({by_id}, {path}) "
WORDINGS = wordings_of("agent/storage", "refusal")


_CHANGES = {
    "edges": "first or last MiB",
    "samples": "what is between",
    "headers": "what a volume notes of its use",
    "writes": "write commands counted by the drive",
    "kernel_writes": "written by the kernel",
    "diskseq": "connected again",
    "table_uuid": "disk GUID",
}


class GuardError(AgentError):
    """The disks must not be written."""


def refusal(code: str, disk: Disk, disk_facts: DiskFacts, /, **facts: Fact) -> Problem:
    """Build a refusal with the disk's role, path and serial filled in."""
    named: dict[str, Fact] = {"role": disk.role, "by_id": disk.by_id, "serial": disk.serial}
    named |= {"typed": shlex.quote(disk.serial), "path": disk_facts.path or ""}
    return Problem.from_wording(WORDINGS, code, {**named, **facts})


def reason(problem: Problem) -> str:
    """Return the reason of a refusal, as a clause."""
    return problem.sentence.removeprefix(SUBJECT.format(**problem.facts)).removesuffix(".")


def refusals(disk: Disk, facts: DiskFacts, *, erase: bool = True) -> list[Problem]:
    """Return every reason not to write this disk; empty if it may be written.

    `erase`: whether the inventory's `erase` counts; not if the disk is not laid out again.
    """
    if facts.path is None:
        if facts.given_away:
            controllers = ", ".join(facts.given_away)
            return [refusal("given-away", disk, facts, controllers=controllers)]
        return [refusal("absent", disk, facts)]
    allowed = erase and given_up(disk, facts)
    problems = [*_identity(disk, facts), *_in_use(disk, facts), *_hidden(disk, facts)]
    return problems + (
        [] if allowed or facts.read_error or facts.stale else foreign_refusals(disk, facts)
    )


def refusals_to_revert(disk: Disk, facts: DiskFacts) -> list[Problem]:
    """Return the reasons not to revert a drive by its PSID, which was requested by serial number.

    Locked or hidden contents are no reason: reverting is the remedy for them.
    """
    if facts.path is None:
        return refusals(disk, facts)
    problems = [*_identity(disk, facts), *_in_use(disk, facts)]
    if facts.opal_error is not None:
        return [*problems, *_hidden(disk, facts)]
    if facts.read_error is None and not facts.shadowed and not given_up(disk, facts):
        problems += foreign_refusals(disk, facts)
    return [*problems, *shared_refusals(disk, facts)]


def given_up(disk: Disk, facts: DiskFacts) -> bool:
    """Return whether the inventory's `erase` permits losing the present contents.

    It is the serial number and the digits that `fde check` printed for these contents; other
    contents end the permission. The serial number alone, allowed only in a lab, permits losing any
    contents.
    """
    return disk.erase is not None and disk.erase_digits in ("", facts.print)


def shared_refusals(disk: Disk, facts: DiskFacts) -> list[Problem]:
    """Refuse to own or revert a drive with other namespaces, which would be affected as well."""
    if not facts.beside:
        return []
    return [refusal("shared", disk, facts, beside=", ".join(facts.beside))]


def hidden_refusals(disk: Disk, facts: DiskFacts) -> list[Problem]:
    """Return the reasons why it is unknown whether the disk is ours; empty if it is known."""
    return [] if facts.path is None or facts.stale else _hidden(disk, facts)


def _identity(disk: Disk, facts: DiskFacts) -> Iterator[Problem]:
    if not facts.whole_disk:
        yield refusal("not-whole", disk, facts)
    if facts.serial != disk.serial or not facts.serial:
        yield refusal("other-serial", disk, facts, found=facts.serial or "unknown")
    if facts.size_bytes != disk.size_bytes:
        size = {"found": facts.size_bytes, "size_bytes": disk.size_bytes}
        yield refusal("other-size", disk, facts, **size)
    if disk.erase is not None and disk.erase_digits is None:
        yield refusal("other-erase", disk, facts, erase=disk.erase)
    if facts.same_identity:
        twins = ", ".join(f"/dev/{name}" for name in facts.same_identity)
        yield refusal("same-identity", disk, facts, others=twins)


def _in_use(disk: Disk, facts: DiskFacts) -> Iterator[Problem]:
    if facts.unsuited:
        yield refusal("unsuited", disk, facts, why=facts.unsuited)
    held = f"held by {MAPPING}"
    for use in facts.uses:
        # Our mapping, its helpers of the same name, or our mount.
        exact = use.how in (f"mounted on {MOUNT_POINT}", held)
        if not (facts.partition and (exact or use.how.startswith((f"{held}-", f"{held}_")))):
            yield refusal("in-use", disk, facts, device=use.device, how=use.how)


def _hidden(disk: Disk, facts: DiskFacts) -> list[Problem]:
    """Return the refusal of a disk whose contents cannot be known; `erase` does not lift it."""
    if facts.opal_error is not None:
        return [refusal("unanswered", disk, facts, error=facts.opal_error)]
    if facts.shadowed:
        return [refusal("shadowed", disk, facts)]
    if facts.read_error is not None:
        code = "locked" if facts.owned else "dead" if facts.reverted else "unreadable"
        return [refusal(code, disk, facts, error=facts.read_error)]
    if facts.owned and facts.partition is None and not facts.taking:
        return [refusal("owned", disk, facts)]
    return [refusal("stale", disk, facts)] if facts.stale else []


def foreign_refusals(disk: Disk, facts: DiskFacts) -> list[Problem]:
    """Refuse a disk with contents that are not ours.

    Only `erase` in the inventory permits losing them.
    """
    expired = disk.erase is not None and not given_up(disk, facts)

    def refused(code: str, **contents: Fact) -> list[Problem]:
        allowed = yaml_text(f"{disk.serial} {facts.print}")
        contents |= {"print": facts.print, "allowed": allowed, "expired": int(expired)}
        problem = refusal(code, disk, facts, **contents)
        if not expired:
            return [problem]
        outdated = "The inventory's erase was given for other contents of it."
        return [replace(problem, sentence=f"{problem.sentence} {outdated}")]

    if facts.signatures:
        return refused("foreign-signature", types=_types(facts.signatures))
    if facts.partition is not None:
        types = _types(facts.strange)
        return refused("foreign-inside", types=types) if types else []
    if facts.unknown:
        return refused("unknown-data", unknown=facts.unknown)
    if facts.blank:
        return []
    if any(p.has_marker for p in facts.partitions):
        return refused("other-mark")
    inside = ", ".join(_types(p.signatures) or p.name or p.path for p in facts.partitions)
    return refused("foreign-table", table=facts.table or "unknown", inside=inside or "empty")


def _types(signatures: Iterable[Signature]) -> str:
    return ", ".join(sorted({s.type for s in signatures}))


def check(disk: Disk) -> DiskFacts:
    """Gather the facts and judge them; raises GuardError with every reason."""
    facts = gather(disk)
    _refuse(refusals(disk, facts))
    return facts


def check_ours(disk: Disk) -> Partition:
    """Like `check`, and the disk must already be laid out as ours with nothing foreign inside."""
    facts = gather(disk)
    _refuse(refusals(disk, facts, erase=False))
    if facts.partition is None:
        raise GuardError(refusal("unmarked", disk, facts))
    return facts.partition


@contextmanager
def holding(disk: Disk) -> Iterator[None]:
    """Hold the disk, so that the block writes the same disk that it examined.

    At the end it waits for udev, which was kept waiting: it reads a written table again, and
    meanwhile the partitions are gone. Raises GuardError if the disk is missing or its path now
    leads elsewhere.
    """
    with ExitStack() as stack:
        name = devices.kernel_name(disk.by_id)
        try:
            stack.enter_context(devices.hold(name or ""))
        except OSError:
            name = None
        if name is None or devices.kernel_name(disk.by_id) != name:
            _refuse(refusals(disk, DiskFacts()))
        yield
    devices.settle()


def check_still(disk: Disk, approved: DiskFacts) -> DiskFacts:
    """Check right before a destructive step that only our own use differs from what was approved.

    Raises GuardError.
    """
    facts = gather(disk)
    if facts.path is None:  # it was unplugged while it was looked at: is another one there now?
        devices.settle()
        facts = gather(disk)
    _refuse(refusals(disk, facts))
    refuse_changed(disk, approved, facts)
    return facts


def refuse_changed(disk: Disk, approved: DiskFacts, facts: DiskFacts) -> None:
    """Refuse a disk that is not as it was approved; raises GuardError."""
    # Who uses it is judged again, and Opal's state is the drive's, not its contents.
    unjudged = ("uses", "opal", "discovery", "taking", "reverted")
    masked = replace(facts, **{name: getattr(approved, name) for name in unjudged})
    if masked != approved:
        names = [name for name, value in vars(masked).items() if value != getattr(approved, name)]
        differing = ", ".join(_CHANGES.get(name, name.replace("_", " ")) for name in names)
        raise GuardError(refusal("changed", disk, facts, differing=differing))


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise GuardError(*problems)
