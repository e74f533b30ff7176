"""Requests to repeat a finished run: written by the controller, folded by the agent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from contract import journal, plan
from contract.errors import AgentError
from contract.files import append_line
from contract.journal import Entry

FILE = "requests.jsonl"


class RequestError(AgentError):
    """A request that means nothing here."""


@dataclass(frozen=True)
class Request:
    """`seq` is the number of the `finished` line that is rejected."""

    run_id: str
    seq: int
    reason: str


def add(suite_dir: Path, request: Request) -> bool:
    """Ask for a run to be repeated; False if that was asked before. On the medium on return."""
    if all(run.run_id != request.run_id for run in plan.load(suite_dir / "plan.json").runs):
        raise RequestError(f"The plan has no run {request.run_id!r}: see plan.json for its runs.")
    if not _rejects(request, journal.read(suite_dir / "journal.jsonl")):
        raise RequestError(
            f"Line {request.seq} of the journal does not finish {request.run_id}: "
            "name the number (seq) of its last line with the state finished."
        )
    if any((r.run_id, r.seq) == (request.run_id, request.seq) for r in read(suite_dir)):
        return False
    append_line(suite_dir / FILE, asdict(request))
    return True


def read(suite_dir: Path) -> list[Request]:
    """All whole requests; a line that a power cut has torn was never acknowledged."""
    path = suite_dir / FILE
    found = []
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            document = json.loads(line)
            found.append(
                Request(str(document["run_id"]), int(document["seq"]), str(document["reason"]))
            )
        except (ValueError, KeyError, TypeError):
            continue
    return found


def pending(suite_dir: Path, entries: Sequence[Entry]) -> list[Request]:
    """Requests whose `finished` line is still the last word on its run."""
    last = {entry.run_id: entry for entry in entries if entry.run_id}
    found: dict[str, Request] = {}
    for request in read(suite_dir):
        entry = last.get(request.run_id)
        if entry is not None and entry.state == "finished" and entry.seq == request.seq:
            found.setdefault(request.run_id, request)
    return list(found.values())


def _rejects(request: Request, entries: Sequence[Entry]) -> bool:
    if not 0 <= request.seq < len(entries):
        return False
    entry = entries[request.seq]
    return entry.state == "finished" and entry.run_id == request.run_id
