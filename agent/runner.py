"""Executes a plan run by run; goes on after a crash, and voids what is not sound."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from agent import assets, lock, measure, plan, provenance, watermarks
from agent import journal as journals
from agent.errors import AgentError
from agent.files import write_json
from agent.plan import Plan, Run
from agent.storage import secrets
from agent.storage.stack import Stack
from instrumentation.sources.powercap import PowercapError, PowercapSource

# So many runs void in a row for a reason that is not the workload's absence: it is the machine.
MAX_FAILURES_IN_A_ROW = 5


class Stop(BaseException):
    """Asked to stop by a signal; no handler of ordinary failures may swallow it."""


def run_suite(suite_dir: Path, secrets_path: Path) -> int:
    """Execute `suite_dir/plan.json`; 0 once all runs were tried, 1 if the suite failed.

    Runs that are `finished` in the journal are not repeated. Raises AgentError before anything is
    touched if the plan, the secrets or a lock are not to be had.
    """
    with lock.suite(suite_dir), lock.disks(f"suite {suite_dir.name}"), _stoppable():
        suite = plan.load(suite_dir / "plan.json")
        stack = Stack(suite.storage, secrets.load(secrets_path))
        try:
            counters = PowercapSource.open()
        except PowercapError as error:
            raise AgentError(str(error)) from error
        journal = journals.Journal(suite_dir / "journal.jsonl")
        try:
            return Suite(suite, suite_dir, stack, journal, counters).execute()
        finally:
            journal.close()
            counters.close()


class Suite:
    """One execution of a plan, from wherever the journal says that it stands."""

    def __init__(
        self,
        suite: Plan,
        suite_dir: Path,
        stack: Stack,
        journal: journals.Journal,
        counters: PowercapSource,
    ) -> None:
        self.plan = suite
        self.folder = suite_dir
        self.stack = stack
        self.journal = journal
        self.bench = measure.Bench(suite, suite_dir, stack, counters)
        self._assets: dict[str, str] = {}
        self._failures = 0

    def execute(self) -> int:
        """Go through the runs; always ends with the storage bare and a closing line."""
        states = journals.last_states(self.journal.entries)
        left = [run for run in self.plan.runs if states.get(run.run_id) != "finished"]
        done = len(self.plan.runs) - len(left)
        ended = self.journal.entries and self.journal.entries[-1].state == "suite-finished"
        if not left and ended:
            return 0
        self.journal.append("suite-started", detail=f"{done} of {len(self.plan.runs)} are finished")
        try:
            self._assets = assets.check(self.plan)
            self._provenance("before")
            self.stack.leave()
            watermarks.play(self.plan.watermark, self.folder, "start")
            self._runs(left)
            self.stack.leave()
            watermarks.play(self.plan.watermark, self.folder, "end")
            self._provenance("after")
        except Stop:
            return self._fail("stopped by a signal; start the suite again to go on")
        except AgentError as error:
            return self._fail(str(error))
        except OSError as error:
            return self._fail(f"{error}: free room or mend the disk, then start the suite again.")
        states = journals.last_states(self.journal.entries)
        finished = sum(states.get(run.run_id) == "finished" for run in self.plan.runs)
        void = len(self.plan.runs) - finished
        self.journal.append("suite-finished", detail=f"{finished} finished, {void} void")
        return 0

    def _runs(self, left: list[Run]) -> None:
        for run in left:
            self._set_aside(run)
            try:
                self._one(run)
            except Stop:
                self._void(run, "stopped by a signal")
                raise
            if self._failures >= MAX_FAILURES_IN_A_ROW:
                raise AgentError(
                    f"{self._failures} runs in a row were void: see their void_reason, mend it, "
                    "then start the suite again."
                )

    def _one(self, run: Run) -> None:
        """One run from switching to its closing line."""
        missing = self.bench.missing(run)
        if missing:
            # The workload cannot run on this machine: that says nothing about the machine's health.
            self._void(run, " ".join(missing))
            return
        try:
            self._switch(run)
            self.journal.append("running", run.run_id)
            reason = self.bench.measure(
                run,
                waiting=lambda what: self._journal("waiting", run, what),
                before_proof=lambda: self._journal("proving", run),
            )
        except AgentError as error:
            reason = str(error)
            self.stack.leave()
        if reason:
            self._failures += 1
            self._void(run, reason)
        else:
            self._failures = 0
            self.journal.append("finished", run.run_id)

    def _journal(self, state: str, run: Run, detail: str = "") -> None:
        self.journal.append(state, run.run_id, detail)

    def _switch(self, run: Run) -> None:
        """Enter the run's configuration, unless it stands since the run before in this block."""
        entered = self.stack.entered
        stands = entered is not None and entered.configuration.name == run.configuration
        if stands and self.bench.block == run.block:
            return
        self.journal.append("switching", run.run_id, run.configuration)
        self.stack.enter(run.configuration)
        self.bench.block = run.block

    def _void(self, run: Run, reason: str) -> None:
        self.bench.write_void(run, reason)
        self.journal.append("void", run.run_id, reason)

    def _set_aside(self, run: Run) -> None:
        """A run that is repeated starts in an empty folder; what was there is kept beside it."""
        folder = self.folder / "runs" / run.run_id
        if folder.exists():
            number = 1
            while (aside := folder.with_name(f"{run.run_id}.void-{number}")).exists():
                number += 1
            folder.rename(aside)
        folder.mkdir(parents=True)

    def _provenance(self, when: str) -> None:
        folder = self.folder / "provenance"
        folder.mkdir(exist_ok=True)
        path = folder / f"{when}.json"
        number = 1
        while when == "before" and path.exists():
            path = folder / f"before-resumed-{number}.json"
            number += 1
        write_json(path, {**provenance.gather(self.plan.storage), "assets": self._assets})

    def _fail(self, reason: str) -> int:
        try:
            self.stack.leave()
        except AgentError as error:
            reason = f"{reason} The storage could not be taken down: {error}"
        self.journal.append("suite-failed", detail=reason)
        return 1


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM and SIGINT raise Stop, once: while it tidies up, a second one is not heard."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGINT)

    def stop(_number: int, _frame: FrameType | None) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise Stop

    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
