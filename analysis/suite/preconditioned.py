"""Records of how the disks were preconditioned: precondition/<role>.json."""

from __future__ import annotations

from pathlib import Path

from analysis.suite.documents import read_document
from contract import steady_state
from contract.documents import PreconditionDocument
from contract.plan import MOST_PASSES, SuitePlan

FOLDER = "precondition"
Records = dict[str, PreconditionDocument | None]


def read(folder: Path, plan: SuitePlan, problems: list[str]) -> Records:
    """Read the record of each disk that the plan preconditions, by role; None if it is unsound.

    Missing and unreadable records become sentences in `problems`.
    """
    if plan.precondition is None:
        return {}
    records: Records = {}
    for role in dict.fromkeys(entry.disk for entry in plan.configurations):
        name = f"{FOLDER}/{role}.json"
        record = read_document(PreconditionDocument, folder / name, problems)
        fault = ""
        if record is None:
            fault = f"Disk {role} was to be preconditioned, and there is no record of it."
        elif record.plan_sha256 != plan.sha256:
            fault = f"{name} is of another plan: it is left out."
        elif len(record.filled) > MOST_PASSES or len(record.written) > steady_state.MOST_ROUNDS:
            fault = f"{name} has more rounds than there may be: it is left out."
        problems += [fault] * bool(fault)
        records[role] = None if fault else record
    return records
