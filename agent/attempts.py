"""How often runs were tried, by the journal alone; which is next, and which are asked for again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from contract import journal, plan
from contract.errors import AgentError
from contract.files import append_line
from contract.journal import BEGUN, CLOSED, INTERRUPTIONS, REPEAT, SKIPPED, TERMINAL, Entry
from contract.plan import Run

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
    entries = journal.read(suite_dir / "journal.jsonl")
    entry = entries[request.seq] if 0 <= request.seq < len(entries) else None
    if entry is None or (entry.state, entry.run_id) != ("finished", request.run_id):
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
    requests = []
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            document = json.loads(line)
            requests.append(
                Request(str(document["run_id"]), int(document["seq"]), str(document["reason"]))
            )
        except (ValueError, KeyError, TypeError):
            continue
    return requests


def pending(suite_dir: Path, entries: Sequence[Entry]) -> list[Request]:
    """Return requests whose `finished` line is still the last word on its run."""
    last = {entry.run_id: entry for entry in entries if entry.run_id}
    requests: dict[str, Request] = {}
    for request in read(suite_dir):
        entry = last.get(request.run_id)
        if entry is not None and entry.state == "finished" and entry.seq == request.seq:
            requests.setdefault(request.run_id, request)
    return list(requests.values())


# Power cuts in a night, and deaths of the agent at one and the same run: that is a crash loop.
MOST_INTERRUPTIONS = 60
MOST_IN_ONE_BOOT = 5


@dataclass
class Account:
    """What became of a run so far.

    `failed` counts tries that were void, and those asked to be repeated, since the suite was last
    begun again; `interrupted` those that were cut short, by the boot that they began in. `cannot`:
    its workload is missing here. `begun`: a try stands open, in this boot.
    """

    finished: bool = False
    cannot: bool = False
    failed: int = 0
    interrupted: dict[str, int] = field(default_factory=dict)
    begun: str = ""

    def given_up(self, boot_id: str) -> bool:
        """Whether it was cut short too often to be tried again in this boot."""
        return (
            sum(self.interrupted.values()) >= MOST_INTERRUPTIONS
            or self.interrupted.get(boot_id, 0) >= MOST_IN_ONE_BOOT
        )

    def due(self, attempts: int, boot_id: str) -> bool:
        """Whether it is to be tried (again)."""
        tried = self.cannot or self.failed >= attempts or self.given_up(boot_id)
        return not self.finished and not tried

    def restart(self) -> None:
        """Forget the tries of a run that is not finished."""
        if not self.finished:
            self.cannot, self.failed = False, 0
            self.interrupted.clear()


class Accounts:
    """The accounts of all runs, told line by line.

    Whoever starts a suite that had ended begins again: what was void gets all its tries again, but
    not where it was started only because a repetition was asked for.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._runs: dict[str, Account] = {}
        self._void_in_a_row: dict[str, None] = {}
        self._ended = False
        for entry in entries:
            self.tell(entry)

    def of(self, run_id: str) -> Account:
        """Return the account of a run; an empty one if it was never tried."""
        return self._runs.setdefault(run_id, Account())

    @property
    def void_in_a_row(self) -> int:
        """Distinct runs that were begun and void since one was finished: it is the machine."""
        return len(self._void_in_a_row)

    def open(self) -> list[str]:
        """Return runs whose try has no closing line."""
        return [run_id for run_id, account in self._runs.items() if account.begun]

    def next(self, runs: Sequence[Run], attempts: int, boot_id: str) -> Run | None:
        """Return the first run of the plan that is due."""
        return next((r for r in runs if self.of(r.run_id).due(attempts, boot_id)), None)

    def tell(self, entry: Entry) -> None:
        """Take one more line of the journal into account."""
        if entry.state in TERMINAL:
            self._ended = True
        elif entry.state == "suite-started":
            self._start()
        elif not entry.run_id:
            return
        elif entry.state in BEGUN:
            self.of(entry.run_id).begun = entry.boot_id
        elif entry.state in CLOSED:
            self._close(entry)

    def _start(self) -> None:
        if self._ended:
            self._ended = False
            self._void_in_a_row.clear()
            for account in self._runs.values():
                account.restart()

    def _close(self, entry: Entry) -> None:
        account = self.of(entry.run_id)
        begun, account.begun = account.begun, ""
        account.finished = entry.state == "finished"
        if account.finished:
            self._void_in_a_row.clear()
            return
        if entry.cause == REPEAT:
            self._ended = False
            account.failed += 1
            return
        if entry.cause in INTERRUPTIONS:
            boot_id = begun or entry.boot_id
            account.interrupted[boot_id] = account.interrupted.get(boot_id, 0) + 1
            if account.given_up(boot_id):
                self._void_in_a_row[entry.run_id] = None
            return
        account.failed += 1
        account.cannot = entry.cause == SKIPPED
        if begun:
            self._void_in_a_row[entry.run_id] = None
