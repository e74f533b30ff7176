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
        raise ControllerError(
            f"The suite {plan.suite_id} was begun on another target, with "
            f"{'; '.join(unlike)}: use the inventory that it was made with, take another suite "
            f"(fde resume …), or make a new plan."
        )


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
        raise ControllerError(
            f"On {plan.host} there is another plan under the name {plan.suite_id}: nothing was "
            f"touched; make a new plan with fde run."
        )
    path = suite_dir / IDENTITY
    if path.exists():
        try:
            kept = strict_json.parse(IdentityDocument, path.read_bytes())
        except (OSError, ValueError) as error:
            raise ControllerError(
                f"{path} cannot be read ({error}): restore it, or start a new suite."
            ) from None
        if kept.machine_id != identity.machine_id:
            raise ControllerError(
                f"{plan.host} is another machine than the one that {plan.suite_id} was begun on: "
                f"connect that one again, or start a new suite with fde run."
            )
        _require_whole_journal(plan, suite_dir, identity)
    else:
        kept = IdentityDocument("fde-identity/1", identity.machine_id, identity.boot_id)
        write_json(path, asdict(kept))


def _require_whole_journal(plan: Plan, suite_dir: Path, identity: Identity) -> None:
    copied = len(journal.read(suite_dir / "journal.jsonl"))
    lines = identity.journal_lines.get(plan.suite_id, 0)
    if lines is None:
        raise ControllerError(
            f"The journal of {plan.suite_id} on {plan.host} is damaged: seal what was measured "
            f"with python -m controller seal {suite_dir}, and start a new suite."
        )
    if lines < copied:
        raise ControllerError(
            f"The journal of {plan.suite_id} on {plan.host} has {lines} lines, the copy here "
            f"{copied}: the target was set up again or is another one. Seal what was measured with "
            f"`fde seal {suite_dir}`, and start a new suite with fde run."
        )
