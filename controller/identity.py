"""Which machine a suite was begun on: it goes on there, with the journal that it has, or not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contract import journal, strict_json
from contract.errors import ControllerError
from contract.files import write_json
from contract.plan import Plan

FILE = "identity.json"
FORMAT = "fde-identity/1"


def require_same(plan: Plan, suite_dir: Path, found: Mapping[str, Any], there: str | None) -> None:
    """Keep the machine's identity at the first start; later compare with it.

    `found` is what `python3 -m agent identity` said, `there` the hash of the plan that lies on the
    target. Raises ControllerError on another machine, another plan, or a journal that is shorter
    than the copy here.
    """
    if there not in (None, plan.sha256):
        raise ControllerError(
            f"On {plan.host} there is another plan under the name {plan.suite_id}: nothing was "
            "touched; make a new plan with make run."
        )
    path = suite_dir / FILE
    if path.exists():
        kept = _read(path)
        if kept.get("machine_id") != found["machine_id"]:
            raise ControllerError(
                f"{plan.host} is another machine than the one that {plan.suite_id} was begun on: "
                "connect that one again, or start a new suite with make run."
            )
        _require_whole_journal(plan, suite_dir, found)
    else:
        write_json(
            path,
            {"format": FORMAT, "machine_id": found["machine_id"], "boot_id": found.get("boot_id")},
        )


def _require_whole_journal(plan: Plan, suite_dir: Path, found: Mapping[str, Any]) -> None:
    copied = len(journal.read(suite_dir / "journal.jsonl"))
    lines = dict(found.get("journal_lines") or {}).get(plan.suite_id, 0)
    if lines is None:
        raise ControllerError(
            f"The journal of {plan.suite_id} on {plan.host} is damaged: seal what was measured "
            f"with python -m controller seal {suite_dir}, and start a new suite."
        )
    if lines < copied:
        raise ControllerError(
            f"The journal of {plan.suite_id} on {plan.host} has {lines} lines, the copy here "
            f"{copied}: the target was set up anew or is another one. Seal what was measured with "
            f"python -m controller seal {suite_dir}, and start a new suite with make run."
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        found = strict_json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ControllerError(f"{path} cannot be read: restore it, or start a new suite.") from None
    if not isinstance(found, dict):
        raise ControllerError(f"{path} is damaged: restore it, or start a new suite.")
    return found
