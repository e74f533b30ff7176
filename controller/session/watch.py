"""Watch and stop the running suites of this machine, by the status that their sessions write."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from agent.system import lock
from analysis.suite.group import is_group, members
from contract import journal, plan, strict_json
from contract.attempts import History
from contract.errors import ControllerError
from contract.places import command_line, suites_folder
from contract.plan import PlanHead
from contract.status import SuiteStatus
from controller.session import suite_folder
from controller.session.ending import STOP
from controller.session.progress import unfinished
from controller.session.seal import MANIFEST
from controller.session.status import Hosts, Lines, Screen, rows

POLL_S = 1.0

Say = Callable[[str], None]


class RunningSuite:
    """A suite in a folder on this machine that a session works on, or has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        suite_folder.require_plain(folder)
        head = strict_json.load(PlanHead, folder / "plan.json")
        if head is None:
            raise ControllerError("no-plan", folder=folder)
        self.name, self.host = head.suite_id, head.host

    def alive(self) -> bool:
        """Return whether a session works on the suite."""
        return lock.holder(self.folder / suite_folder.LOCK) is not None

    def read(self) -> SuiteStatus | None:
        """Return its status; None before the first, and for one that cannot be shown."""
        status = strict_json.load(SuiteStatus, self.folder / "status" / "status.json")
        try:
            return status if status and rows(status) else None
        except (ValueError, ArithmeticError):  # its times are invalid
            return None

    def outcome(self) -> tuple[bool, str]:
        """Return whether an ended suite succeeded, and a sentence with the next step."""
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


def run(folder: Path | None, say: Say) -> bool:
    """Show suites until they have ended; return whether all succeeded.

    `folder` is of a suite or group; without it all suites that run on this machine are shown.
    Raises ControllerError if none runs.
    """
    suites = [RunningSuite(path) for path in _list_folders(folder)]
    if not suites:
        raise ControllerError("nothing-runs")
    _show(suites)
    outcomes = [suite.outcome() for suite in suites]
    for _, sentence in outcomes:
        say(sentence)
    return all(succeeded for succeeded, _ in outcomes)


def stop(folder: Path | None, say: Say, *, at_once: bool) -> None:
    """End the sessions on this machine after their run, or `at_once`; wait for that.

    Raises ControllerError if no session runs.
    """
    holders = {path: lock.holder(path / suite_folder.LOCK) for path in _list_folders(folder)}
    running = {RunningSuite(path): pid for path, pid in holders.items() if pid}
    if not running:
        raise ControllerError("nothing-runs")
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


def _show(sources: Sequence[RunningSuite]) -> None:
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
