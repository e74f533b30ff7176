"""In which state the disks were: precondition/<role>.json, or how they were without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.suite.documents import mappings, optional
from contract import names, steady_state
from contract.steady_state import Window

FOLDER = "precondition"
FORMAT = "fde-precondition/1"
MIB = 2**20
# More is not a number of a disk, and no number that a file may bring here.
MOST_BYTES, MOST_SECONDS = 2**63, 1e9
MOST_PASSES = 1000


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


def read(
    folder: Path, plan: Mapping[str, Any], problems: list[str]
) -> dict[str, Preconditioned | None]:
    """By the role of each disk that was to be preconditioned; None where there is no sound record.

    What is missing or cannot be read becomes a sentence in `problems`.
    """
    if not isinstance(plan.get("precondition"), Mapping):
        return {}
    disks = (str(entry.get("disk") or "") for entry in mappings(plan.get("configurations")))
    return {
        role: _one(folder, role, plan, problems)
        for role in dict.fromkeys(disks)
        if names.safe(role)
    }


def _one(
    folder: Path, role: str, plan: Mapping[str, Any], problems: list[str]
) -> Preconditioned | None:
    path = folder / FOLDER / f"{role}.json"
    document = optional(path, problems)
    if not document:
        problems.append(f"Disk {role} was to be preconditioned, and there is no record of it.")
        return None
    try:
        if document["format"] != FORMAT or document["plan_sha256"] != plan.get("sha256"):
            raise ValueError("it is of another plan or version")
        return _parse(role, document)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        problems.append(f"{FOLDER}/{path.name} tells nothing of its disk ({error}).")
        return None


def _parse(role: str, document: Mapping[str, Any]) -> Preconditioned:
    filled, written = ([_written(e) for e in document[key]] for key in ("filled", "written"))
    if len(filled) > MOST_PASSES or len(written) > steady_state.MOST_ROUNDS:
        raise ValueError("it has more rounds than there may be")
    found = Preconditioned(
        role=role,
        passes=len(filled),
        extent_bytes=int(document["size_bytes"]),
        access=str(document["access"]),
        rounds_mib_s=tuple(amount / seconds / MIB for amount, seconds in written),
        written_bytes=sum(amount for amount, _ in (*filled, *written)),
        interrupted=int(document["interrupted"]),
    )
    if not 0 < found.extent_bytes < MOST_BYTES:
        raise ValueError("its extent has no size")
    return found


def _written(entry: Any) -> tuple[int, float]:
    amount, seconds = entry["bytes"], entry["seconds"]
    if not (type(amount) is int and type(seconds) in (int, float)):
        raise TypeError("a round is not told in numbers")
    if not (0 < amount < MOST_BYTES and 1e-6 < seconds < MOST_SECONDS):
        raise ValueError("a round has written nothing, or took no time")
    return amount, float(seconds)
