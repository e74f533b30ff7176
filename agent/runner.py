"""Execute a plan run by run; continue after a crash, and void runs that are not sound."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from agent import assets, marks, measure, needs, permissions, precondition, provenance
from agent.checks import CheckContext, smart
from agent.checks.disks import links
from agent.readiness import PATIENCE_S, NotYetError, Waits
from agent.requests import pending
from agent.storage import devices
from agent.storage.stack import Stack
from agent.system import admission, limits, lock, notify
from agent.system.command import listening
from agent.system.limits import Stop
from agent.system.notify import Watchdog
from contract import journal, plan, strict_json
from contract.attempts import History
from contract.documents import AfterDocument, LockedRead
from contract.errors import AgentError
from contract.files import sync_path, write_json
from contract.journal import Journal
from contract.plan import Disk, Plan, Run
from instrumentation.sources.powercap import PowercapError, PowercapSource

# So many distinct runs void in a row for a reason that is not the workload's absence: it is the
# machine.
MAX_FAILURES_IN_A_ROW = 5
_CUT_SHORT = {
    journal.AGENT_KILLED: "the agent was killed",
    journal.TARGET_DOWN: "the target went down",
    journal.SHUT_DOWN: "the target was shut down",
    journal.STOPPED: "stopped by a signal",
}
# Exit status where the machine goes down: the suite is not at its end.
GOING_DOWN = 75
# How long a step without a separate limit may take before systemd is to start the agent again.
STEP_S = 900.0
# Once a session, before its runs: long enough to see a counter that pauses now and then.
WATCH_S, MANY_UPDATES = 1.0, 10_000


Equip = Callable[[Waits], AbstractContextManager[tuple[Stack, PowercapSource]]]


def run_suite(suite_dir: Path, secrets_path: Path, target_path: Path) -> int:
    """Execute `suite_dir/plan.json`; return 0 at its end, 1 if it failed, 75 to be started again.

    The target's own description in `target_path` must allow all that the plan asks for. Runs that
    are `finished` in the journal are not repeated. Raises AgentError before anything is touched if
    the plan or the suite's lock is not available. Missing secrets, disks and counters are waited
    for.
    """
    with lock.suite(suite_dir), limits.stoppable(), notify.Watchdog() as watchdog:
        suite = plan.load(suite_dir / "plan.json")
        limits.adopt_orphans()

        def go_on(clause: str) -> None:
            watchdog.within(STEP_S)
            notify.tell(f"STATUS={clause}")

        def open_counters() -> PowercapSource:
            try:
                return PowercapSource.open(watch_s=WATCH_S, enough=MANY_UPDATES)
            except PowercapError as error:
                raise NotYetError(error) from error

        @contextmanager
        def equip(waits: Waits) -> Iterator[tuple[Stack, PowercapSource]]:
            target = plan.read_target(target_path)
            permissions.require_own(suite, target)
            execution.allowed = target.disks
            secrets = waits.for_secrets(secrets_path)
            waits.for_disks(suite.storage.disks.values())
            counters = waits.until("counters", open_counters, limit_s=PATIENCE_S)
            try:
                with ExitStack() as held:

                    def hold() -> None:
                        held.enter_context(lock.disks(f"suite {suite_dir.name}"))

                    waits.until("disks", hold, limit_s=PATIENCE_S)
                    watchdog.within(STEP_S)
                    with listening(go_on):
                        yield Stack(suite.storage, secrets), counters
            finally:
                counters.close()

        writer = Journal(suite_dir / "journal.jsonl")
        try:
            notify.start_after_boot(True)
            notify.tell("READY=1")
            execution = Suite(suite, suite_dir, writer, watchdog)
            status = execution.execute(equip)
            if status != GOING_DOWN:
                notify.start_after_boot(False)
            return status
        finally:
            writer.close()


class Suite:
    """One execution of a plan, from wherever the journal left it."""

    def __init__(self, suite: Plan, suite_dir: Path, writer: Journal, watchdog: Watchdog) -> None:
        self.plan = suite
        self.folder = suite_dir
        self.journal = writer
        self.watchdog = watchdog
        self.waits = Waits(writer, watchdog)
        self.history = History(writer.entries)
        self.allowed: Mapping[str, Disk] = {}  # the inventory's disks, with what they may write
        self._stack: Stack | None = None
        # By role and diskseq, what SMART counts beyond the kernel, which begins at 0.
        self._written_before: dict[tuple[str, int], int] = {}
        self._assets: dict[str, str] = {}

    def execute(self, equip: Equip) -> int:
        """Execute the runs; end with the storage bare and a closing line.

        If the machine itself goes down there is no closing line.
        """
        entries = self.journal.entries
        ended = entries and entries[-1].state == "suite-finished"
        # What an agent that died, or a machine that did, left open.
        for attempt in self.history.begun():
            self._set_aside(attempt.run_id, renew=False)
            same_boot = attempt.begun is not None and attempt.begun.boot_id == journal.boot_id()
            cause = journal.AGENT_KILLED if same_boot else journal.TARGET_DOWN
            self._tell("void", attempt.run_id, _CUT_SHORT[cause], cause, attempt.cut_short)
        self._fold_requests()
        if ended and self._finished() == len(self.plan.runs):
            self._say_finished()
            return 0
        self._tell("suite-started", detail=f"{self._finished()} of {len(self.plan.runs)} finished")
        try:
            with equip(self.waits) as (stack, counters), measure.no_scratch_left():
                self._stack = stack
                self._all(stack, counters)
                return 0
        except Stop:
            if notify.going_down():
                self._leave()
                return GOING_DOWN
            return self._fail("stopped by a signal; start the suite again to continue")
        except AgentError as error:
            return self._fail(str(error))
        except OSError as error:
            return self._fail(f"{error}: free room or repair the disk, then start the suite again.")
        except BaseException:
            self._leave()  # an internal error: the service starts again, and may not come so far
            raise

    def _all(self, stack: Stack, counters: PowercapSource) -> None:
        self.watchdog.within(STEP_S)
        self.waits.for_room(self.folder)
        self._assets = assets.check(self.plan)
        if not self._finished():
            # Later on, what earlier runs left for it to find again would count as taken.
            needs.check(self.plan, measure.SCRATCH_ROOT)
        self.require_within_limits()
        self._provenance("before")
        stack.leave()
        precondition.all_disks(
            *(self.plan, self.folder, stack, self.journal.entries),
            tell=self._tell,
            watchdog=self.watchdog,
        )
        self.watchdog.within(STEP_S)
        marks.play(self.plan.watermark, self.folder, "start")
        bench = measure.Bench(self.plan, self.folder, stack, counters, self.watchdog)
        while True:
            self._runs(stack, bench)
            self.watchdog.within(STEP_S)
            stack.leave()
            self.waits.for_room(self.folder)
            marks.play(self.plan.watermark, self.folder, "end")
            # Once a suite, also where runs were repeated after its end.
            after = strict_json.load(AfterDocument, self.folder / "provenance" / "after.json")
            earlier_reads = after and after.locked_reads
            reads = (earlier_reads or read_locked(stack, bench.context())).items()
            self._provenance("after", locked_reads={name: asdict(read) for name, read in reads})
            if not self._fold_requests():
                break
        self._say_finished()

    def _runs(self, stack: Stack, bench: measure.Bench) -> None:
        while True:
            self._fold_requests()
            run = self.history.next_due(self.plan.runs, self.plan.attempts, journal.boot_id())
            if run is None:
                return
            self.waits.for_room(self.folder, run.run_id)
            self.journal.reserve.keep()
            self.waits.for_controller(run.run_id)
            self.waits.for_disks(self.plan.storage.disks.values(), run.run_id)
            self.require_within_limits()
            bounds = admission.load(self.folder)
            if bounds.seconds is not None and not bounds.admit(self.plan, self.history, run):
                return
            self.watchdog.within(STEP_S)
            self._set_aside(run.run_id)
            self._attempt(run, stack, bench)
            if self.history.void_in_a_row >= MAX_FAILURES_IN_A_ROW:
                runs, entries = self.history.void_in_a_row, reversed(self.journal.entries)
                reason = next(entry.detail for entry in entries if entry.state in journal.CLOSED)
                raise AgentError("too-many-void", runs=runs, reason=reason)

    def require_within_limits(self) -> None:
        """Raise AgentError where a disk has written, or would, more than it may in its life."""
        disks = [disk for disk in self.allowed.values() if disk.max_written_bytes is not None]
        if disks:
            written = {disk.role: self._written_bytes(disk) for disk in disks}
            run_bytes = needs.written_bytes(self.plan)
            entries = self.journal.entries
            needs.require_within_limits(self.plan, self.allowed, written, run_bytes, entries)

    def _written_bytes(self, disk: Disk) -> int | None:
        """Return what a disk has written in its life: SMART's count and the kernel's since.

        A disk that fails to answer once does not end a suite: None.
        """
        name = devices.kernel_name(disk.by_id)
        if name is None:
            return None
        appearance, kernel_bytes = None, 0
        with suppress(OSError):
            kernel_bytes = marks.written_bytes(Path(name))
            appearance = (disk.role, devices.diskseq(name))
        if appearance in self._written_before:
            return self._written_before[appearance] + kernel_bytes
        life = smart.lifetime(name)
        if life is None or life.written_bytes is None:
            return None
        if appearance:
            self._written_before[appearance] = life.written_bytes - kernel_bytes
        return life.written_bytes

    def _attempt(self, run: Run, stack: Stack, bench: measure.Bench) -> None:
        """Make one attempt at a run, from switching to its closing line."""
        missing = bench.reasons_to_skip(run)
        if missing:
            # The workload cannot run on this machine: that says nothing about the machine's health.
            self._void(run, " ".join(missing), bench, journal.SKIPPED)
            return
        try:
            entered = stack.entered and stack.entered.configuration.name
            if (entered, bench.block) != (run.configuration, run.block):
                self._tell("switching", run.run_id, run.configuration)
                stack.enter(run.configuration)
                bench.block = run.block
            self._tell("running", run.run_id)
            fault = bench.measure(
                run,
                waiting=lambda cause, detail: self._tell(
                    "waiting" if cause else "running", run.run_id, detail, cause
                ),
                before_proof=lambda: self._tell("proving", run.run_id),
            )
        except Stop:
            cause = journal.SHUT_DOWN if notify.going_down() else journal.STOPPED
            self._void(run, _CUT_SHORT[cause], bench, cause)
            raise
        except AgentError as error:
            facts: dict[str, journal.Fact] = {"error": type(error).__name__}
            if error.code:
                facts["cause"] = error.code
            fault = measure.Fault("storage", str(error), facts)
        except OSError as error:
            code = errno.errorcode.get(error.errno or 0, "")
            sentence = f"{error}: free room or repair the disk."
            fault = measure.Fault("files", sentence, {"error": code})
        if fault is None:
            self._tell("finished", run.run_id, facts={"sha256": bench.sha256})
            return
        self._void(run, fault.sentence, bench, journal.FAILED, {"at": fault.at, **fault.facts})
        # Whatever it left on the file system: the next run gets a fresh one.
        with suppress(AgentError):
            stack.leave()

    def _void(
        self,
        run: Run,
        reason: str,
        bench: measure.Bench,
        cause: str,
        facts: Mapping[str, journal.Fact] | None = None,
    ) -> None:
        # Without room for it, the journal still has the line.
        with suppress(OSError):
            bench.write(run, "skipped" if cause == journal.SKIPPED else "void", reason)
        attempt = self.history.account(run.run_id).open
        if cause in journal.INTERRUPTIONS and attempt:
            facts = attempt.cut_short
        self._tell("void", run.run_id, reason, cause, facts)

    def _tell(
        self,
        state: str,
        run_id: str = "",
        detail: str = "",
        cause: str = "",
        facts: Mapping[str, journal.Fact] | None = None,
    ) -> None:
        self.history.add(self.journal.append(state, run_id, detail, cause, facts))

    def _fold_requests(self) -> bool:
        """Void runs that are asked to be repeated, but never a run without attempts left."""
        folded = False
        for request in pending(self.folder, self.journal.entries):
            if self.history.account(request.run_id).failed + 1 < self.plan.attempts:
                self._tell("void", request.run_id, request.reason, journal.REPEAT)
                folded = True
        return folded

    def _set_aside(self, run_id: str, renew: bool = True) -> None:
        """Give a run an empty folder; rename an existing one beside it."""
        folder = self.folder / "runs" / run_id
        if folder.exists():
            number = 1
            while (aside := folder.with_name(f"{run_id}.void-{number}")).exists():
                number += 1
            folder.rename(aside)
        if renew:
            folder.mkdir(parents=True)
        if folder.parent.exists():
            sync_path(folder.parent)
            sync_path(self.folder)

    def _provenance(self, when: str, **additions: object) -> None:
        """Write provenance, once a boot before the runs, and after them with `additions`."""
        folder = self.folder / "provenance"
        folder.mkdir(exist_ok=True)
        path = folder / f"{when}.json"
        number = 1
        while when == "before" and path.exists():
            if strict_json.read_object(path).get("boot_id") == journal.boot_id():
                return
            path = folder / f"before-resumed-{number}.json"
            number += 1
        provenance_document = {**provenance.gather(self.plan.storage), "assets": self._assets}
        write_json(path, provenance_document | additions)

    def _finished(self) -> int:
        return sum(self.history.account(run.run_id).finished for run in self.plan.runs)

    def _say_finished(self) -> None:
        finished = self._finished()
        accounts = [self.history.account(run.run_id) for run in self.plan.runs]
        skipped = sum(account.cannot for account in accounts)
        remaining = sum(account.due(self.plan.attempts, journal.boot_id()) for account in accounts)
        void = len(self.plan.runs) - finished - skipped - remaining
        skips = f", {skipped} skipped" if skipped else ""
        due = f", {remaining} left" if remaining else ""
        self._tell("suite-finished", detail=f"{finished} finished, {void} void{skips}{due}")

    def _leave(self) -> str:
        """Take the storage down to bare; return the error if that fails."""
        self.watchdog.within(STEP_S)
        try:
            if self._stack:
                self._stack.leave()
        except Exception as error:  # noqa: BLE001 - whatever it was, what is done goes on
            return str(error)
        return ""

    def _fail(self, reason: str) -> int:
        leave_error = self._leave()
        if leave_error and leave_error != reason:  # a refused PIN is not tried again
            reason = f"{reason} The storage could not be taken down: {leave_error}"
        self._tell("suite-failed", detail=reason)
        return 1


def read_locked(stack: Stack, context: CheckContext) -> dict[str, LockedRead]:
    """Try one direct read of every locked range, as the host's own test of what a drive reports.

    Returns `{error, link_before, link_after}` by serial number; `error` is the kernel's name for
    it.

    A refused read starts the kernel's error handling, after which libata may switch native command
    queuing off or slow the link down (drivers/ata/libata-eh.c). So it is tried after the last run,
    and the result includes the links before and after. The storage must be bare. Raises AgentError
    if a locked range could be read.
    """
    before = links(context.unread()) or {}
    errors = stack.locked_reads()
    after = links(context.unread()) or {}
    if readable := sorted(serial for serial, error in errors.items() if error is None):
        raise AgentError("range-readable", readable=" and ".join(readable))
    return {
        serial: LockedRead(error, before.get(serial), after.get(serial))
        for serial, error in errors.items()
    }
