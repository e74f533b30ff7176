"""One session of a suite: recorders and clock on, agent started, followed, fetched, sealed."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent import journal
from agent import plan as plans
from agent.controller import fetch, playbook, progress, remote
from agent.controller.errors import ControllerError
from agent.controller.follow import follow
from agent.controller.recorders import Recorders
from agent.controller.seal import MANIFEST, seal
from agent.journal import Entry
from agent.plan import Plan
from instrumentation.clock import ClockError
from instrumentation.clock_link import ClockLink, keep_measuring

Say = Callable[[str], None]

CLOCK_PERIOD_S = 30.0
# A run of the paper's sizes takes minutes; asking the target more often would disturb it.
SILENCE_NS = 300 * 10**9
TOLD_STATES = frozenset({"suite-started", "running", "void", "suite-finished", "suite-failed"})


@dataclass
class Session:
    """What a session works on; `seconds` are the controller's own steps, for timing.json."""

    suite_dir: Path
    target: Mapping[str, Any]
    inventory: Path
    say: Say
    plan: Plan
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """What suite.yml needs to know."""
        return {
            "suite_id": self.plan.suite_id,
            "suite_plan_file": str(self.suite_dir.resolve() / "plan.json"),
            "suite_archive_file": str(self.suite_dir.resolve() / ".fetched.tar"),
        }


def run(suite_dir: Path, target: Mapping[str, Any], inventory: Path, say: Say) -> Path:
    """Run a planned suite, or go on with an interrupted one; returns the manifest's path.

    Raises ControllerError, PlanError (a plan that was changed) or ClockError. On Ctrl-C the agent
    is stopped and what it has measured is brought over before KeyboardInterrupt goes on.
    """
    plan = plans.load(suite_dir / "plan.json")
    require_same_target(json.loads((suite_dir / "plan.json").read_text("utf-8")), target)
    if (suite_dir / MANIFEST).exists():
        raise ControllerError(
            f"{suite_dir} is sealed, nothing is left to run: make report shows it."
        )
    require_same_boot(suite_dir)
    session = Session(suite_dir, target, inventory, say, plan)
    with locked(suite_dir):
        _clean_up_after_kill(suite_dir)
        with _timed(session, "wall_s", keep=True):
            _measure(session)
        return seal(suite_dir)


def _measure(session: Session) -> None:
    suite_dir, target = session.suite_dir, session.target
    session.say(f"suite {session.plan.suite_id}: {len(session.plan.runs)} runs, in {suite_dir}")
    clock = remote.python(target, "-m", "instrumentation.clock", "respond")
    with (
        Recorders(target["meters"], suite_dir) as recorders,
        ClockLink(clock, suite_dir / "clock.jsonl") as link,
    ):
        link.burst()
        known = _journal_there(session)
        try:
            with _timed(session, "start_s"):
                _play(session, "start")
            with _ticking_clock(link, session.say):
                last = _follow(session, recorders, known)
        except BaseException:
            session.say("stopping the agent and bringing over what it has measured")
            _stop_agent(session)
            fetch.salvage(target, suite_dir)
            raise
        link.burst()
    with _timed(session, "fetch_s"):
        _play(session, "fetch")
        archive = Path(session.variables["suite_archive_file"])
        fetch.unpack(archive, suite_dir)
        archive.unlink()
    if last.state == "suite-failed":
        raise ControllerError(
            f"The agent gave up: {last.detail or 'it gave no reason'} What was measured is in "
            f"{suite_dir}; mend it and go on with make resume."
        )


def _follow(session: Session, recorders: Recorders, known: list[Entry]) -> Entry:
    """Show progress until the suite has ended; the journal's last line."""
    entries = list(known)
    stop = threading.Event()
    path = remote.suite_dir(session.plan.suite_id)
    heard_ns = time.monotonic_ns()

    def command(start: int) -> list[str]:
        arguments = ("-m", "agent", "follow", "--suite-dir", path, "--from", str(start))
        return remote.python(session.target, *arguments)

    def dropped(reason: str) -> None:
        session.say(f"the link to the target dropped ({reason}); the agent goes on, reconnecting")

    for entry in follow(command, start=len(known), stop=stop, on_drop=dropped):
        recorders.check()
        if entry is None:
            if time.monotonic_ns() - heard_ns > SILENCE_NS:
                _require_agent(session)
                heard_ns = time.monotonic_ns()
            continue
        heard_ns = time.monotonic_ns()
        entries.append(entry)
        if entry.state in TOLD_STATES:
            session.say(progress.line(session.plan, entries, recorders.watts()))
    return entries[-1]


def _play(session: Session, tag: str) -> None:
    playbook.suite(
        tag,
        inventory=session.inventory,
        host=session.plan.host,
        log=session.suite_dir / f".ansible-{tag}.log",
        variables=session.variables,
    )


def _journal_there(session: Session) -> list[Entry]:
    """What the target's journal holds already; empty for a suite that was never started there."""
    path = f"{remote.suite_dir(session.plan.suite_id)}/journal.jsonl"
    script = f"if [ -e '{path}' ]; then cat '{path}'; fi"
    done = _ask(session, ["sh", "-c", script])
    if done.returncode:
        raise ControllerError(
            f"The target does not answer by SSH ({done.stderr.strip() or 'no reason given'}): "
            "see that it is up and provisioned."
        )
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as copy:
        copy.write(done.stdout)
        copy.flush()
        return journal.read(Path(copy.name))


def _require_agent(session: Session) -> None:
    """ControllerError where the service is not active any more: it died without a last line."""
    unit = f"fde-agent@{session.plan.suite_id}.service"
    done = _ask(session, ["systemctl", "is-active", unit])
    if done.stdout.strip() in ("inactive", "failed"):
        said = _ask(session, ["journalctl", "-u", unit, "-n", "5", "-o", "cat", "--no-pager"])
        raise ControllerError(
            f"The agent on {session.plan.host} ended without closing its journal "
            f"({said.stdout.strip() or 'it said nothing'}): go on with make resume."
        )


def _stop_agent(session: Session) -> None:
    _ask(session, ["systemctl", "stop", f"fde-agent@{session.plan.suite_id}.service"])


def _ask(
    session: Session, command: list[str], timeout_s: float = 60.0
) -> subprocess.CompletedProcess[str]:
    argv = remote.ssh(session.target, command)
    try:
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 255, "", f"no answer in {timeout_s:g} s")


@contextmanager
def _ticking_clock(link: ClockLink, say: Say) -> Iterator[None]:
    """Clock readings every 30 s, in a thread of their own, until the suite has ended."""
    stop = threading.Event()

    def lost(error: ClockError) -> None:
        say(str(error))

    thread = threading.Thread(target=keep_measuring, args=(link, CLOCK_PERIOD_S, stop, lost))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def _timed(session: Session, key: str, keep: bool = False) -> Iterator[None]:
    """Seconds spent within; `keep` adds all of the session's to sessions.jsonl, come what may."""
    start_ns = time.monotonic_ns()
    try:
        yield
    finally:
        session.seconds[key] = (time.monotonic_ns() - start_ns) / 1e9
        if keep:
            with (session.suite_dir / "sessions.jsonl").open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(session.seconds) + "\n")


@contextmanager
def locked(suite_dir: Path) -> Iterator[None]:
    """One session at a time; the kernel lets go of the lock if the holder dies."""
    with (suite_dir / ".lock").open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ControllerError(
                f"{suite_dir} is in use by process {file.read().strip()}: wait for it, or stop it."
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def require_same_target(plan: Mapping[str, Any], target: Mapping[str, Any]) -> None:
    """ControllerError if the plan was made for another host, other disks or another origin."""
    for key in ("host", "origin", "disks"):
        if _identity(plan[key]) != _identity(target[key]):
            raise ControllerError(
                f"The plan {plan['suite_id']} was made for another target ({key} differs): use the "
                "inventory that it was made with, or make a new plan."
            )


def _identity(value: Any) -> Any:
    """A disk is the same one, whether or not what lay on it was given up with `erase`."""
    if isinstance(value, Mapping):
        return {key: _identity(entry) for key, entry in value.items() if key != "erase"}
    return value


def require_same_boot(suite_dir: Path) -> None:
    """ControllerError if an earlier session was of another boot of this controller."""
    for path in sorted((suite_dir / "meters").glob("*/meter.json")):
        before = json.loads(path.read_text(encoding="utf-8")).get("controller_boot_id")
        if before and before != journal.boot_id():
            raise ControllerError(
                f"This controller was restarted since {suite_dir} was begun, and its clock began "
                "anew: make report shows what was measured; start a new suite with make run."
            )


def _clean_up_after_kill(suite_dir: Path) -> None:
    """Remove what a session that was killed had half unpacked."""
    for leftover in suite_dir.glob(".salvage-*"):
        leftover.unlink()
    for leftover in suite_dir.glob(".incoming-*"):
        subprocess.run(["rm", "-rf", str(leftover)], check=True)
