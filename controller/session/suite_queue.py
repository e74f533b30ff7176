"""A queue of planned suites, measured one after the other, over as many evenings as it takes."""

from __future__ import annotations

import fcntl
import shlex
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from analysis.suite.group import is_group, members
from contract import strict_json
from contract.command_results import QueuedSuite
from contract.errors import ControllerError
from contract.files import write, write_json
from contract.interrupts import deferred_interrupts, outliving_the_terminal
from contract.places import module_command, state_folder
from controller.session.evening import Window
from controller.session.seal import MANIFEST

Say = Callable[[str], None]
UNITS = Path(".config/systemd/user")
POLL_S = 0.5
# With less time left no session is begun, which would take the end for that of the next day.
LEAST_S = 120.0


@dataclass(frozen=True)
class Entry:
    """A suite's or group's folder, the inventory that it was planned with, and what came of it.

    `outcome` is the exit status of its last session; None before the first.
    """

    folder: str
    inventory: str
    until_settled: bool = False
    outcome: int | None = None

    @property
    def queued(self) -> QueuedSuite:
        """The same for people and programs."""
        if is_sealed(Path(self.folder)):
            return QueuedSuite(self.folder, "sealed")
        if self.outcome is None:
            return QueuedSuite(self.folder, "waiting")
        # An interrupted one is not at fault.
        return QueuedSuite(self.folder, "continues" if self.outcome in (0, 130) else "failed")


@dataclass(frozen=True)
class Queue:
    """queue.json, in the user's state folder."""

    format: Literal["fde-queue/1"] = "fde-queue/1"
    entries: tuple[Entry, ...] = ()


def is_sealed(folder: Path) -> bool:
    """Whether a suite is complete, or each of a group."""
    parts = members(folder) if is_group(folder) else [folder]
    return all((part / MANIFEST).exists() for part in parts)


def read() -> Queue:
    """Read the queue; raises ControllerError where its file is damaged."""
    path = state_folder() / "queue.json"
    try:
        return strict_json.parse(Queue, path.read_bytes())
    except FileNotFoundError:
        return Queue()
    except ValueError as error:
        raise ControllerError("queue-damaged", path=path, error=error) from None


def add(entry: Entry) -> None:
    """Append a suite; those that are sealed are dropped."""
    with _changed() as entries:
        entries[:] = [*(each for each in entries if each.queued.state != "sealed"), entry]


def remove(folder: Path) -> None:
    """Take a suite out of the queue; its folder stays. Raises ControllerError without one."""
    with _changed() as entries:
        kept = [each for each in entries if each.folder != str(folder.resolve())]
        if len(kept) == len(entries):
            raise ControllerError("not-queued", folder=folder)
        entries[:] = kept


def run(options: Sequence[str], window: Window | None, say: Say) -> bool:
    """Measure every suite that is not sealed, in order; whether none failed.

    A suite that fails does not stop the next. `options` are the times that each session is given;
    it ends where the window closes with runs left. Raises ControllerError where another process
    works on the queue.
    """
    tried: set[str] = set()
    end_s = window.open_until(time.time()) if window and window.begin is None else None
    with outliving_the_terminal(), _locked("runner"), deferred_interrupts() as interrupts:
        while entry := _next(tried):
            if end_s is not None and time.time() > end_s - LEAST_S:
                break
            tried.add(entry.folder)
            say(f"{entry.folder}: begins")
            argv = module_command("controller", "run", entry.folder, "-i", entry.inventory)
            settled = ["--until-settled"] if entry.until_settled else []
            status = _wait_for([*argv, *settled, *options], interrupts)
            with _changed() as entries:
                entries[:] = [
                    replace(each, outcome=status) if each.folder == entry.folder else each
                    for each in entries
                ]
            say(f"{entry.folder}: {replace(entry, outcome=status).queued.state}")
            if interrupts or (status == 0 and not is_sealed(Path(entry.folder))):
                break  # its time is over, or a person has stopped it
    return all(each.queued.state != "failed" for each in read().entries if each.folder in tried)


def _next(tried: Collection[str]) -> Entry | None:
    """Return the first suite that is not sealed, without those that were `tried`."""
    left = (each for each in read().entries if each.folder not in tried)
    return next((each for each in left if each.queued.state != "sealed"), None)


def _wait_for(argv: Sequence[str], interrupts: Sequence[int]) -> int:
    """Run a session to its end, which an interrupt brings about in order; its exit status."""
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
    handed_on = 0
    while process.poll() is None:
        if len(interrupts) > handed_on:
            handed_on = len(interrupts)
            process.terminate()
        time.sleep(POLL_S)
    return process.returncode


def units(window: Window) -> dict[str, str]:
    """Return systemd units of the user, by name, that measure the queue in a window of each day."""
    command = module_command(
        "controller", "queue", "run", "--between", f"{window.begin}-{window.end}"
    )
    place, start = (text.replace("%", "%%") for text in (str(Path.cwd()), shlex.join(command)))
    return {
        "fde-queue.service": (
            "[Unit]\nDescription=Measure the suites in the queue of fde\n\n[Service]\n"
            f"WorkingDirectory={place}\nExecStart={start}\n"
            "KillSignal=SIGTERM\nTimeoutStopSec=300\n"
        ),
        "fde-queue.timer": (
            "[Unit]\nDescription=Begin with the queue of fde each day, and after a start\n\n"
            f"[Timer]\nOnCalendar=*-*-* {window.begin}:00\nOnStartupSec=60\n\n"
            "[Install]\nWantedBy=timers.target\n"
        ),
    }


def install(window: Window) -> None:
    """Write the units and enable the timer; raises ControllerError where that fails."""
    folder = Path.home() / UNITS
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in units(window).items():
        write(folder / name, [text.encode()])
    for command in (["daemon-reload"], ["enable", "--now", "fde-queue.timer"]):
        argv = ["systemctl", "--user", *command]
        try:
            subprocess.run(argv, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            reason = getattr(error, "stderr", "") or error
            raise ControllerError("timer-not-enabled", reason=str(reason).strip()) from None


@contextmanager
def _locked(name: str) -> Iterator[None]:
    path = state_folder() / f"queue.{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if name == "runner" else 0))
        except BlockingIOError:
            raise ControllerError("queue-in-use", path=path) from None
        yield


@contextmanager
def _changed() -> Iterator[list[Entry]]:
    """Yield the entries as a list, which is written back at the end."""
    with _locked("file"):
        entries = list(read().entries)
        yield entries
        write_json(state_folder() / "queue.json", asdict(Queue(entries=tuple(entries))))
