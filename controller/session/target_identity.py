"""Require the same target in all sessions of a suite, identified by its machine-id."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from contract import journal, strict_json
from contract.documents import IdentityDocument
from contract.errors import ControllerError
from contract.files import write_json
from contract.identity import Identity
from contract.plan import Plan, TargetDocument

IDENTITY = "identity.json"


def require_same_target(plan: Plan, target: TargetDocument) -> None:
    """Raise ControllerError if the plan was made for another host, other disks or another origin.

    Permission to erase a disk (`erase`) does not make it another one.
    """
    planned, actual = dict(_describe(plan)), dict(_describe(target))
    unlike = [
        f"{key} {planned.get(key, 'none')} (the inventory: {actual.get(key, 'none')})"
        for key in {**planned, **actual}
        if planned.get(key) != actual.get(key)
    ]
    if unlike:
        raise ControllerError("other-target", suite_id=plan.suite_id, unlike="; ".join(unlike))


def _describe(document: Plan | TargetDocument) -> Iterator[tuple[str, str]]:
    """Describe host, origin and disks of a plan or target, for people."""
    origins = {"measured": "measured (real hardware)", "modelled": "modelled (the virtual lab)"}
    yield "host", document.host
    yield "origin", origins.get(document.origin, repr(document.origin))
    for role, disk in document.disks.items():
        yield f"disk {role}", f"{disk.by_id}, serial {disk.serial}, {disk.size_bytes} bytes"


def require_same_machine(
    plan: Plan, suite_dir: Path, identity: Identity, plan_sha256: str | None
) -> None:
    """Store the machine's identity at the first start; later compare with it.

    `plan_sha256` is the hash of the target's plan. Raises ControllerError for another machine,
    another plan, or a journal on the target that is shorter than the copy here.
    """
    if plan_sha256 not in (None, plan.sha256):
        raise ControllerError("other-plan-there", host=plan.host, suite_id=plan.suite_id)
    path = suite_dir / IDENTITY
    if not path.exists():
        document = IdentityDocument("fde-identity/1", identity.machine_id, identity.boot_id)
        write_json(path, asdict(document))
        return
    try:
        first = strict_json.parse(IdentityDocument, path.read_bytes())
    except (OSError, ValueError) as error:
        raise ControllerError("identity-unread", path=path, error=error) from None
    if first.machine_id != identity.machine_id:
        raise ControllerError("other-machine", host=plan.host, suite_id=plan.suite_id)
    suite = {"suite_id": plan.suite_id, "host": plan.host, "suite_dir": suite_dir}
    copied = len(journal.read(suite_dir / "journal.jsonl"))
    lines = identity.journal_lines.get(plan.suite_id, 0)
    if lines is None:
        raise ControllerError("target-journal-damaged", **suite)
    if lines < copied:
        raise ControllerError("target-journal-shorter", **suite, lines=lines, copied=copied)
