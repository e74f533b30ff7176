"""How often runs were tried, by the journal alone, and which one is next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from contract.journal import TERMINAL, Entry
from contract.plan import Run

# How the detail of `void` begins where the run itself was not at fault.
INTERRUPTED = "interrupted: "
REPEAT = "repeat: "
# How it begins where the workload cannot run here.
SKIPPED = "skipped: "
# Power cuts in a night, and deaths of the agent at one and the same run: that is a crash loop.
MOST_INTERRUPTIONS = 60
MOST_IN_ONE_BOOT = 5

BEGUN = frozenset({"switching", "running", "proving"})
CLOSED = frozenset({"finished", "void"})


@dataclass
class Account:
    """What became of a run so far.

    `failed` counts tries that were void, and those asked to be repeated, since the suite was last
    begun anew; `interrupted` those that were cut short, by the boot that they began in. `cannot`:
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

    def anew(self) -> None:
        """Forget the tries of a run that is not finished."""
        if not self.finished:
            self.cannot, self.failed = False, 0
            self.interrupted.clear()


class Accounts:
    """The accounts of all runs, told line by line.

    Whoever starts a suite that had ended begins anew: what was void gets all its tries again, but
    not where it was started only because a repetition was asked for.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._runs: dict[str, Account] = {}
        self._void_in_a_row: dict[str, None] = {}
        self._ended = False
        for entry in entries:
            self.tell(entry)

    def of(self, run_id: str) -> Account:
        """The account of a run; an empty one if it was never tried."""
        return self._runs.setdefault(run_id, Account())

    @property
    def void_in_a_row(self) -> int:
        """Distinct runs that were begun and void since one was finished: it is the machine."""
        return len(self._void_in_a_row)

    def open(self) -> list[str]:
        """Runs whose try has no closing line."""
        return [run_id for run_id, account in self._runs.items() if account.begun]

    def next(self, runs: Sequence[Run], attempts: int, boot_id: str) -> Run | None:
        """The first run of the plan that is due."""
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
                account.anew()

    def _close(self, entry: Entry) -> None:
        account = self.of(entry.run_id)
        begun, account.begun = account.begun, ""
        account.finished = entry.state == "finished"
        if account.finished:
            self._void_in_a_row.clear()
            return
        if entry.detail.startswith(REPEAT):
            self._ended = False
            account.failed += 1
            return
        if entry.detail.startswith(INTERRUPTED):
            boot_id = begun or entry.boot_id
            account.interrupted[boot_id] = account.interrupted.get(boot_id, 0) + 1
            if account.given_up(boot_id):
                self._void_in_a_row[entry.run_id] = None
            return
        account.failed += 1
        # Older journals have no word for it: such a run was void without being begun.
        account.cannot = entry.detail.startswith(SKIPPED) or not begun
        if begun:
            self._void_in_a_row[entry.run_id] = None
