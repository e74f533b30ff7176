"""Requests of the controller to repeat a finished run (requests.jsonl)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from contract import journal, plan, strict_json
from contract.attempts import History
from contract.errors import AgentError
from contract.files import append_line
from contract.journal import Entry

FILE = "requests.jsonl"


class RequestError(AgentError):
    """An invalid request."""


@dataclass(frozen=True)
class Request:
    """A request to repeat a run; `seq` is the number of the `finished` line that it rejects."""

    run_id: str
    seq: int
    reason: str


def add(suite_dir: Path, request: Request) -> bool:
    """Ask for a run to be repeated; False if that was asked before. On the medium on return."""
    if all(run.run_id != request.run_id for run in plan.load(suite_dir / "plan.json").runs):
        raise RequestError("unknown-run", run=request.run_id)
    entries = journal.read(suite_dir / "journal.jsonl")
    entry = entries[request.seq] if 0 <= request.seq < len(entries) else None
    if entry is None or (entry.state, entry.run_id) != ("finished", request.run_id):
        raise RequestError("run-not-finished", seq=request.seq, run=request.run_id)
    if any((r.run_id, r.seq) == (request.run_id, request.seq) for r in read(suite_dir)):
        return False
    append_line(suite_dir / FILE, asdict(request))
    return True


def read(suite_dir: Path) -> list[Request]:
    """Return all whole requests; a line that a power cut has torn was never acknowledged."""
    return list(strict_json.lines(Request, suite_dir / FILE))


def pending(suite_dir: Path, entries: Sequence[Entry]) -> list[Request]:
    """Return requests whose `finished` line is still the last of its run."""
    latest = History(entries).latest
    finished = {a.run_id: a.finished.seq for a in latest if a.finished and not a.void}
    requests: dict[str, Request] = {}
    for request in read(suite_dir):
        if finished.get(request.run_id) == request.seq:
            requests.setdefault(request.run_id, request)
    return list(requests.values())
