"""Watch and stop running suites: by the status that a local session writes, or over SSH."""

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
        """Return whether the suite still runs."""

    @abstractmethod
    def outcome(self) -> tuple[bool, str]:
        """Return whether an ended suite succeeded, and a sentence with the next step."""

    def read(self) -> SuiteStatus | None:
        """Return its status; None before the first, and for one that cannot be shown."""
        status = strict_json.load(SuiteStatus, self.status / "status.json")
        try:
            return status if status and rows(status) else None
        except (ValueError, ArithmeticError):  # its times are invalid
            return None


class LocalSuite(Source):
    """A suite in a folder on this machine."""

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
    """A suite on a target, followed by its journal over SSH; without power and gaps of meters."""

    def __init__(self, target: TargetDocument, suite_id: str, folder: Path) -> None:
        self.name, self.host = suite_id, target.host
        self.status = folder / "status"
        self._command = partial(follow_command, target, suite_id)
        self._entries: list[Entry] = []
        self._failure = ""
        self._stop = threading.Event()
        completed = connection.run(target, ["cat", f"{connection.suite_dir(suite_id)}/plan.json"])
        (folder / "plan.json").write_bytes(connection.require_output(target, completed))
        suite = plan.load(folder / "plan.json")
        self._board = Board(suite, folder, lambda _: None, screen=None)
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
        shown = 0  # entries
        try:
            for entry in follow(self._command, events, stop=self._stop):
                if entry is not None:
                    self._entries.append(entry)
                    if not shown:  # the old lines arrive at once, and are shown together
                        continue
                if shown == len(self._entries):
                    self._board.tick()
                else:
                    self._board.entry(self._entries)
                    shown = len(self._entries)
            if shown < len(self._entries):
                self._board.entry(self._entries)
        except ControllerError as error:
            self._failure = str(error)


def run(folder: Path | None, inventory_path: Path | None, say: Say) -> bool:
    """Show suites until they have ended; return whether all succeeded.

    Those of a suite's or group's `folder`; else all that sessions on this machine run; else those
    on the inventory's targets. Raises ControllerError if no suite runs.
    """
    with tempfile.TemporaryDirectory(prefix="fde-watch-") as scratch:
        sources: Sequence[Source] = [LocalSuite(path) for path in _list_folders(folder)]
        sources = sources or (_remote(inventory_path, Path(scratch)) if inventory_path else [])
        if not sources:
            nor = f", nor on the targets of {inventory_path}" if inventory_path else ""
            raise ControllerError("nothing-runs", nor=nor)
        _show(sources)
        outcomes = [source.outcome() for source in sources]
        for _, sentence in outcomes:
            say(sentence)
    return all(succeeded for succeeded, _ in outcomes)


def stop(folder: Path | None, say: Say, *, at_once: bool) -> None:
    """End the sessions on this machine after their run, or `at_once`; wait for that.

    Raises ControllerError if no session runs.
    """
    holders = {path: lock.holder(path / suite_folder.LOCK) for path in _list_folders(folder)}
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


def _list_folders(folder: Path | None) -> list[Path]:
    """List a suite's folder, the folders of a group, or those that local sessions work on."""
    if folder and is_group(folder):
        return list(members(folder))
    if folder:
        return [folder]
    planned = sorted(path.parent for path in suites_folder().glob("*/plan.json"))
    return [path for path in planned if lock.holder(path / suite_folder.LOCK)]


def _remote(path: Path, scratch: Path) -> list[RemoteSuite]:
    """Return the suites whose agent is active on a target of the inventory."""
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
    """Show the suites until all have ended: redrawn on a terminal, else a line for each change."""
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
