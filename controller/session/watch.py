"""Attach to running suites from anywhere: by the status that a session keeps, or by SSH."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from agent.system import lock
from analysis.suite.group import is_group, members
from contract import journal, names, plan, strict_json
from contract.attempts import History
from contract.errors import ControllerError
from contract.journal import Entry
from contract.places import command_line, suites_folder
from contract.plan import PlanHead, TargetDocument
from contract.status import SuiteStatus
from controller.session import suite_folder
from controller.session.ending import STOP
from controller.session.journal_link import LinkEvents, follow, follow_command
from controller.session.progress import unfinished
from controller.session.seal import MANIFEST
from controller.session.status import Board, Hosts, Lines, Screen, rows
from controller.targets import connection, playbook

POLL_S = 1.0
UNIT, SERVICE = "fde-agent@", ".service"

Say = Callable[[str], None]


class Source(ABC):
    """A suite that is watched; `status` is a folder with its status.json."""

    name: str
    host: str
    status: Path

    @abstractmethod
    def alive(self) -> bool:
        """Whether there is something to wait for."""

    @abstractmethod
    def outcome(self) -> tuple[bool, str]:
        """Once it is not alive: whether all went well, and a sentence with what to do now."""

    def read(self) -> SuiteStatus | None:
        """Return its status; None before the first, and where it is none that can be shown."""
        status = strict_json.load(SuiteStatus, self.status / "status.json")
        try:
            return status if status and rows(status) else None
        except (ValueError, ArithmeticError):  # its times are none
            return None


class LocalSuite(Source):
    """A suite that a session on this machine works on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.status = folder / "status"
        suite_folder.require_plain(folder)
        head = strict_json.load(PlanHead, folder / "plan.json")
        if head is None:
            raise ControllerError("no-plan", folder=folder)
        self.name, self.host = head.suite_id, head.host

    def alive(self) -> bool:
        return lock.holder(self.folder / suite_folder.LOCK) is not None

    def outcome(self) -> tuple[bool, str]:
        folder = self.folder
        if (folder / MANIFEST).exists():
            return True, (
                f"{folder} has ended: {command_line('summary', folder)} lists what ran, "
                f"{command_line('report', folder)} what it took."
            )
        return False, (
            f"No session works on {folder}, and it is not sealed: "
            f"{command_line('resume', folder)} continues with it."
        )


class RemoteSuite(Source):
    """A suite that runs on a target, by its journal over SSH: no power, no gaps of meters."""

    def __init__(self, target: TargetDocument, suite_id: str, folder: Path) -> None:
        self.name, self.host = suite_id, target.host
        self.status = folder / "status"
        self._command = partial(follow_command, target, suite_id)
        self._entries: list[Entry] = []
        self._failure = ""
        self._stop = threading.Event()
        done = connection.run(target, ["cat", f"{connection.suite_dir(suite_id)}/plan.json"])
        (folder / "plan.json").write_bytes(connection.require_output(target, done))
        suite = plan.load(folder / "plan.json")
        self._board = Board(suite, folder, lambda _: None, screen=False)
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def alive(self) -> bool:
        return self._thread.is_alive()

    def outcome(self) -> tuple[bool, str]:
        if self._failure:
            return False, self._failure
        last = self._entries[-1]
        return last.state == "suite-finished", (
            f"{self.name} has ended on {self.host} ({last.detail or last.state}): "
            f"see fde summary and fde report on the controller."
        )

    def _follow(self) -> None:
        note = self._board.note
        note("no session runs here: power and gaps are known to the controller's alone")
        events = LinkEvents(
            dropped=lambda reason: note(f"the target does not answer ({reason}); trying again"),
            up=lambda: None,
            abandoned=note,
        )
        begun = new = False
        try:
            for entry in follow(self._command, events, stop=self._stop):
                if entry is not None:
                    self._entries.append(entry)
                    new = True
                if entry is None or begun:
                    # What was there before comes at once, and is shown as one.
                    self._tell(new)
                    begun, new = begun or new, False
            self._tell(new)
        except ControllerError as error:
            self._failure = str(error)

    def _tell(self, new: bool) -> None:
        if new:
            self._board.entry(self._entries, {}, {})
        else:
            self._board.tick({}, {})


def run(folder: Path | None, inventory_path: Path | None, say: Say) -> bool:
    """Show suites until they have ended; whether all went well.

    `folder` of a suite or a group; else all that sessions on this machine work on; else what runs
    on the inventory's targets. Raises ControllerError if there is nothing to watch.
    """
    with tempfile.TemporaryDirectory(prefix="fde-watch-") as scratch:
        sources: Sequence[Source] = [LocalSuite(path) for path in _chosen(folder)]
        sources = sources or (_remote(inventory_path, Path(scratch)) if inventory_path else [])
        if not sources:
            nor = f", nor on the targets of {inventory_path}" if inventory_path else ""
            raise ControllerError("nothing-runs", nor=nor)
        _show(sources)
        outcomes = [source.outcome() for source in sources]
        for _, sentence in outcomes:
            say(sentence)
    return all(well for well, _ in outcomes)


def stop(folder: Path | None, say: Say, *, at_once: bool) -> None:
    """Have sessions on this machine end after their run, or `at_once`, and wait for that.

    Raises ControllerError where none runs.
    """
    holders = {path: lock.holder(path / suite_folder.LOCK) for path in _chosen(folder)}
    running = {LocalSuite(path): pid for path, pid in holders.items() if pid}
    if not running:
        raise ControllerError("nothing-runs", nor="")
    for source, pid in running.items():
        if at_once:
            os.kill(pid, signal.SIGTERM)
        else:
            (source.folder / STOP).touch()
        say(f"{source.name} on {source.host} is asked to end{'' if at_once else ' after its run'}")
    while any(source.alive() for source in running):
        time.sleep(POLL_S)
    for source in running:
        suite = plan.load(source.folder / "plan.json")
        history = History(journal.read(source.folder / "journal.jsonl"))
        say(f"{len(unfinished(suite, history))} of {len(suite.runs)} runs are left.")
        say(source.outcome()[1])


def _chosen(folder: Path | None) -> list[Path]:
    """Return a suite's folder, those of a group, or what sessions on this machine work on now."""
    if folder and is_group(folder):
        return list(members(folder))
    if folder:
        return [folder]
    planned = sorted(path.parent for path in suites_folder().glob("*/plan.json"))
    return [path for path in planned if lock.holder(path / suite_folder.LOCK)]


def _remote(path: Path, scratch: Path) -> list[RemoteSuite]:
    """Suites whose agent is active on a target of the inventory."""
    suites = []
    resolved = playbook.resolve(path)
    for host, problems in resolved.refused.items():
        reasons = " ".join(str(problem) for problem in problems)
        raise ControllerError("host-refused", host=host, path=path, reasons=reasons)
    for target in resolved.targets:
        command = ["systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating"]
        listed = connection.require_output(
            target, connection.run(target, [*command, f"{UNIT}*"])
        ).decode()
        for unit in (line.split()[0] for line in listed.splitlines() if line.strip()):
            suite_id = unit.removeprefix(UNIT).removesuffix(SERVICE)
            if not names.safe(suite_id):
                continue  # no suite of ours
            folder = scratch / suite_id
            folder.mkdir()
            suites.append(RemoteSuite(target, suite_id, folder))
    return suites


def _show(sources: Sequence[Source]) -> None:
    """Until none is alive: a view in place on a terminal, else a line where something changes."""
    lines = {source.name: Lines() for source in sources}
    with (
        closing(Screen()) as single,
        closing(Hosts([source.host for source in sources])) as several,
    ):
        while True:
            alive = [source for source in sources if source.alive()]
            for source in sources:
                status = source.read()
                if status is None:
                    continue
                if single.live and len(sources) == 1:
                    single.show(rows(status))
                    continue
                several.status(source.host, status)
                for line in () if single.live else lines[source.name].next(status):
                    several.line(source.host, line)
            if len(sources) > 1:
                several.draw()
            if not alive:
                return
            time.sleep(POLL_S)
