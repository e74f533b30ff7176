"""Run one session of a suite: start recorders, clock and agent, follow it, fetch and seal."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path

from agent.permissions import require_own
from agent.system import quiet
from agent.system.admission import boottime_ns
from contract import journal
from contract import plan as plans
from contract.attempts import NS, History
from contract.errors import ControllerError
from contract.interrupts import lasting, outliving_the_terminal
from contract.journal import Entry
from contract.places import command_line
from contract.plan import Plan, TargetDocument
from controller.planning import plan_folders
from controller.session import fetch, meter_losses, session_times, suite_folder, target_identity
from controller.session.agent_client import AgentClient
from controller.session.ending import STOP, Ending, TimeOverError, next_time
from controller.session.follow_loop import FollowLoop
from controller.session.hold import Hold
from controller.session.messenger import Messenger
from controller.session.progress import unfinished
from controller.session.recorders import Recorders, end_leftovers
from controller.session.report import make_report
from controller.session.running_answer import RunningAnswers
from controller.session.seal import MANIFEST, decode, seal, unseal
from controller.session.sleep_inhibitor import awake
from controller.session.status import Board
from controller.targets import connection, fitness, playbook
from instrumentation.clock_link import ClockLink

log = logging.getLogger(__name__)

Say = Callable[[str], None]

MOST_FETCHES = 3
AWAY_S = 5.0
ENDED = {"until": "the time is over", "stopped": "stopped as asked"}


@dataclass
class Session:
    """The parts of a running session; `seconds` are the controller's own steps, for timing.json."""

    suite_dir: Path
    target: TargetDocument
    inventory: Path
    plan: Plan
    agent: AgentClient
    board: Board
    ending: Ending
    seconds: dict[str, float] = field(default_factory=dict)

    def cpu_timed(self, *, less: bool = False) -> AbstractContextManager[None]:
        """Measure the controller's CPU time if it runs on the target."""
        if connection.is_local(self.target):
            return session_times.cpu_timed(self.seconds, less=less)
        return nullcontext()

    @property
    def archive(self) -> Path:
        """The file into which the play fetches the results."""
        return self.suite_dir.resolve() / ".fetched.tar"


def run(
    suite_dir: Path,
    target: TargetDocument,
    inventory: Path,
    say: Say,
    until: datetime | None = None,
    *,
    report: bool = False,
    confirm: Collection[str] = (),
) -> Path | None:
    """Run a planned suite or resume an interrupted one; return the manifest's path.

    None if runs remain: at the time of day of `until`, or because a person asked to stop.

    A sealed suite is resumed if runs are void or not recorded. Raises ControllerError, PlanError (a
    plan that was changed) or ClockError. On Ctrl-C the agent is stopped and its results are fetched
    before KeyboardInterrupt continues; closing the terminal does not end the session. With `report`
    the sealed suite is verified and its report is made. `confirm` are serials of disks that a plan
    from elsewhere may precondition.
    """
    suite_folder.require_plain(suite_dir)
    say = lasting(say)
    plan = plans.load(suite_dir / "plan.json")
    say(f"suite {plan.suite_id} of {plan.host}, in {suite_dir}")
    target_identity.require_same_target(plan, target)
    require_own(plan, target)
    agent = AgentClient(target, plan.suite_id)
    is_foreign = plan_folders.needs_consent(suite_dir, plan, target)
    if is_foreign and agent.plan_sha256() != plan.sha256:
        plan_folders.require_consent(suite_dir, plan, target, confirm, say)
    with (
        outliving_the_terminal(),
        suite_folder.locked(suite_dir),
        suite_folder.logged(suite_dir),
        Messenger(plan.suite_id, target) as messenger,
    ):
        stop = suite_dir / STOP
        try:
            stop.unlink(missing_ok=True)
            end_ns = None
            if until is not None:
                remaining_s = next_time(time.time(), until) - time.time()
                end_ns = boottime_ns() + round(remaining_s * NS)
                say(f"no run begins that would not end by {until:%H:%M}")
            manifest = _session(
                suite_dir, target, inventory, plan, say, messenger=messenger, end_ns=end_ns
            )
            if manifest is not None:
                outcome = make_report(suite_dir, say) if report else "sealed"
                messenger.send("sealed", outcome)
            return manifest
        except OSError as error:
            raise ControllerError(
                "suite-unwritable",
                path=error.filename or suite_dir,
                reason=error.strerror,
                command=command_line("resume", suite_dir),
            ) from error
        finally:
            stop.unlink(missing_ok=True)


def _session(
    suite_dir: Path,
    target: TargetDocument,
    inventory: Path,
    plan: Plan,
    say: Say,
    *,
    messenger: Messenger,
    end_ns: int | None,
) -> Path | None:
    """Measure; return the manifest if the suite is sealed."""
    is_sealed = (suite_dir / MANIFEST).exists()
    agent = AgentClient(target, plan.suite_id)
    meters = [meter.name for meter in target.meters]
    losses = meter_losses.review(plan, suite_dir, meters) if is_sealed else None
    if losses is not None and not (losses.void or losses.repeat):
        raise ControllerError("suite-sealed", suite_dir=suite_dir)
    suite_folder.require_room(suite_dir)
    identity = agent.identity()
    unit = agent.unit()
    if unit is None or not unit.active:  # else a load would disturb a run
        end_leftovers(suite_dir)  # they may hold the ports of meters
        fitness.require_following(target)
    fetch.clean_up_after_kill(suite_dir)
    target_identity.require_same_machine(plan, suite_dir, identity, agent.plan_sha256())
    with closing(Board(plan, suite_dir, say, messenger=messenger)) as board:
        ending = Ending(plan, suite_dir, agent, end_ns)
        session = Session(suite_dir, target, inventory, plan, agent, board, ending)
        board.note(f"suite {plan.suite_id}: {len(plan.runs)} runs")
        messenger.send("started", f"{len(plan.runs)} runs")
        for line in quiet.describe_disturbers(agent.disturbers(), plan.quiet.stop):
            board.note(line)
        by = partial(connection.command, target) if connection.is_local(target) else list
        with (
            awake(board.warn, by=by),
            session_times.recorded(suite_dir, session.seconds, lambda: ending.code),
        ):
            if losses is not None:
                unseal(suite_dir)
                board.note(
                    f"the seal is broken, to repeat {len(losses.void)} void runs and "
                    f"{len(losses.repeat)} without a whole recording; should that fail, "
                    "`python -m controller seal` puts it back"
                )
                meter_losses.ask(agent, losses, board.note)
            with suppress(TimeOverError):
                _until_complete(session)
        if ending.code:
            runs = unfinished(plan, History(journal.read(suite_dir / "journal.jsonl")))
            outcome = f"{ENDED[ending.code]}: {len(runs)} of {len(plan.runs)} runs are left"
            board.note(outcome)
            messenger.send("stopped", outcome)
            return None
    return seal(suite_dir, decoded=True)


def _until_complete(session: Session) -> None:
    """Measure all runs, and again those that were not recorded."""
    suite_dir = session.suite_dir
    meters = [meter.name for meter in session.target.meters]
    while True:
        last = _measure(session)
        decode(suite_dir)
        if last.state == "suite-failed":
            reason = last.detail or "it gave no reason"
            raise ControllerError("agent-gave-up", reason=reason, suite_dir=suite_dir)
        if session.ending.conclude(journal.read(suite_dir / "journal.jsonl")):
            return
        losses = meter_losses.review(session.plan, suite_dir, meters)
        meter_losses.ask(session.agent, losses, session.board.note)
        if not losses.repeat:
            return


def _measure(session: Session) -> Entry:
    """Start the agent, follow it to the journal's last line and fetch all; return that line."""
    suite_dir, board = session.suite_dir, session.board
    clock = connection.python(session.target, "-m", "instrumentation.clock", "respond")
    with (
        session.cpu_timed(),
        Recorders(session.target.meters, suite_dir, board.warn) as recorders,
        ClockLink(clock, suite_dir / "clock.jsonl") as link,
        # If the target is this machine, the computation would be measured too.
        nullcontext()
        if connection.is_local(session.target)
        else RunningAnswers(session.plan, suite_dir) as answers,
    ):
        link.burst()
        old_entries = session.agent.journal(session.plan.most_journal_bytes)

        def reason() -> str:
            silence = recorders.silence()
            board.alarm("meter-silent", silence)
            return suite_folder.lack_of_room(suite_dir) or silence

        loop = FollowLoop(
            session.plan, session.target, session.agent, board, recorders, session.ending, answers
        )
        session.ending.begin(old_entries)
        with Hold(session.agent, reason, board.warn):
            try:
                with session_times.timed(session.seconds, "start_s"):
                    unit = session.agent.unit()
                    if unit is None or not unit.active:  # else it is still running
                        _play(session, "start")
                with loop.clock(link):
                    last = loop.follow(old_entries)
            except BaseException:
                _salvage(session)
                raise
        _fetch(session)
    return last


def _salvage(session: Session) -> None:
    """Try to stop the agent and to fetch its results."""
    warn = session.board.warn
    warn("stopping the agent and bringing over what it has measured")
    try:
        is_stopped = session.agent.stop()
        is_fetched = fetch.salvage(session.target, session.suite_dir)
    except KeyboardInterrupt:
        is_stopped = is_fetched = False
    if not is_stopped:
        warn(f"{session.plan.host} could not be reached: the agent continues there")
    if not is_fetched:
        warn("nothing more was brought over; it stays on the target until fde resume")


def _fetch(session: Session) -> None:
    """Fetch the results by the play or else by SSH only, however long the target is away.

    Results that are not complete are fetched again.
    """
    attempts = 0
    with session_times.timed(session.seconds, "fetch_s"):
        while True:
            try:
                _play(session, "fetch")
                fetch.unpack(session.archive, session.suite_dir)
                break
            except ControllerError as error:
                if session.agent.reached():
                    attempts += 1
                    # The play packs into a file on the target, whose disk may have no room for it.
                    if fetch.salvage(session.target, session.suite_dir):
                        break
                    if attempts >= MOST_FETCHES:
                        raise
                    session.board.warn(f"the results did not come whole ({error}); again")
                else:
                    session.board.warn("the target is away; its results follow once it answers")
                    while not session.agent.reached():
                        session.board.tick()
                        time.sleep(AWAY_S)
            finally:
                session.archive.unlink(missing_ok=True)
    log.info("the results are here")


def _play(session: Session, tag: str) -> None:
    with session.cpu_timed(less=True):
        playbook.suite(
            tag,
            inventory=session.inventory,
            target=session.target,
            output_file=session.suite_dir / f".ansible-{tag}.log",
            variables={
                "suite_id": session.plan.suite_id,
                "suite_plan_file": str(session.suite_dir.resolve() / "plan.json"),
                "suite_archive_file": str(session.archive),
            },
            most_bytes=fetch.most_archive_bytes(session.plan, session.suite_dir),
        )
