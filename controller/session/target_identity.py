"""One target for all sessions of a suite, known by its machine-id."""

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
    """ControllerError if the plan was made for another host, other disks or another origin.

    A disk is the same one, whether or not what lay on it was given up with `erase`.
    """
    mine, its = dict(_place(plan)), dict(_place(target))
    unlike = [
        f"{what} {mine.get(what, 'none')} (the inventory: {its.get(what, 'none')})"
        for what in {**mine, **its}
        if mine.get(what) != its.get(what)
    ]
    if unlike:
        raise ControllerError("other-target", suite_id=plan.suite_id, unlike="; ".join(unlike))


def _place(document: Plan | TargetDocument) -> Iterator[tuple[str, str]]:
    """Describe host, origin and disks of a plan or target, for people."""
    origins = {"measured": "measured (real hardware)", "modelled": "modelled (the virtual lab)"}
    yield "host", document.host
    yield "origin", origins.get(document.origin, repr(document.origin))
    for role, disk in document.disks.items():
        named = f"{disk.by_id}, serial {disk.serial}, {disk.size_bytes} bytes"
        yield f"disk {role}", named


def require_same_machine(
    plan: Plan, suite_dir: Path, identity: Identity, plan_sha256: str | None
) -> None:
    """Keep the machine's identity at the first start; later compare with it.

    `plan_sha256` is the hash of the target's plan. Raises ControllerError on another
    machine, another plan, or a journal that is shorter than the copy here.
    """
    if plan_sha256 not in (None, plan.sha256):
        raise ControllerError("other-plan-there", host=plan.host, suite_id=plan.suite_id)
    path = suite_dir / IDENTITY
    if path.exists():
        try:
            kept = strict_json.parse(IdentityDocument, path.read_bytes())
        except (OSError, ValueError) as error:
            raise ControllerError("identity-unread", path=path, error=error) from None
        if kept.machine_id != identity.machine_id:
            raise ControllerError("other-machine", host=plan.host, suite_id=plan.suite_id)
        _require_whole_journal(plan, suite_dir, identity)
    else:
        kept = IdentityDocument("fde-identity/1", identity.machine_id, identity.boot_id)
        write_json(path, asdict(kept))


def _require_whole_journal(plan: Plan, suite_dir: Path, identity: Identity) -> None:
    copied = len(journal.read(suite_dir / "journal.jsonl"))
    lines = identity.journal_lines.get(plan.suite_id, 0)
    if lines is None:
        raise ControllerError(
            "target-journal-damaged", suite_id=plan.suite_id, host=plan.host, suite_dir=suite_dir
        )
    if lines < copied:
        raise ControllerError(
            "target-journal-shorter",
            suite_id=plan.suite_id,
            host=plan.host,
            lines=lines,
            copied=copied,
            suite_dir=suite_dir,
        )
