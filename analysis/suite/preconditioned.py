"""In which state the disks were: precondition/<role>.json, or how they were without it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analysis.suite.documents import read_document
from contract import steady_state
from contract.documents import PreconditionDocument
from contract.plan import MOST_PASSES, SuitePlan
from contract.steady_state import Window

FOLDER = "precondition"
MIB = 2**20


@dataclass(frozen=True)
class Preconditioned:
    """What was written to a disk before the first run.

    `rounds_mib_s` are the rates of the rounds in the order of time; `window` is the specification's
    measurement window, None with fewer than five.
    """

    role: str
    passes: int
    extent_bytes: int
    access: str
    rounds_mib_s: tuple[float, ...]
    written_bytes: int
    interrupted: int

    @property
    def window(self) -> Window | None:
        return steady_state.window(self.rounds_mib_s)


def read(folder: Path, plan: SuitePlan, problems: list[str]) -> dict[str, Preconditioned | None]:
    """Read the record of each disk that was to be preconditioned, by role.

    None where it is not sound; what is missing or cannot be read becomes a sentence in `problems`.
    """
    if plan.precondition is None:
        return {}
    roles = dict.fromkeys(entry.disk for entry in plan.configurations)
    return {role: _read_disk(folder, role, plan, problems) for role in roles}


def _read_disk(
    folder: Path, role: str, plan: SuitePlan, problems: list[str]
) -> Preconditioned | None:
    path = folder / FOLDER / f"{role}.json"
    record = read_document(PreconditionDocument, path, problems)
    if record is None:
        problems.append(f"Disk {role} was to be preconditioned, and there is no record of it.")
        return None
    if record.plan_sha256 != plan.sha256:
        problems.append(f"{FOLDER}/{path.name} is of another plan: it is left out.")
        return None
    if len(record.filled) > MOST_PASSES or len(record.written) > steady_state.MOST_ROUNDS:
        problems.append(f"{FOLDER}/{path.name} has more rounds than there may be: it is left out.")
        return None
    return Preconditioned(
        role=role,
        passes=len(record.filled),
        extent_bytes=record.size_bytes,
        access=record.access,
        rounds_mib_s=tuple(part.bytes / part.seconds / MIB for part in record.written),
        written_bytes=sum(part.bytes for part in (*record.filled, *record.written)),
        interrupted=record.interrupted,
    )
