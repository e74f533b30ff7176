"""One suite on several hosts at once: a plan and a process for each, told together."""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from contract import strict_json
from contract.errors import ControllerError
from contract.files import write_json
from contract.interrupts import deferred_interrupts
from controller import group, inventory
from controller.many_view import View
from controller.playbook import ROOT
from controller.seal import MANIFEST

SESSION = (sys.executable, "-m", "controller", "run")
LOG = ".session.log"
POLL_S = 0.5

Options = argparse.Namespace
Freeze = Callable[..., dict[str, Any]]


@dataclass
class Session:
    """A host's own process, and how much of its log has been told."""

    host: str
    folder: Path
    process: subprocess.Popen[bytes]
    told_bytes: int
    last: str = ""

    def new_lines(self) -> Iterator[str]:
        """Whole lines of its log since the last call."""
        with (self.folder / LOG).open("rb") as file:
            file.seek(self.told_bytes)
            whole, newline, _ = file.read().rpartition(b"\n")
        self.told_bytes += len(whole + newline)
        for line in whole.decode(errors="replace").splitlines():
            self.last = line or self.last
            yield line


def several(options: Options) -> bool:
    """Whether what is asked is for several hosts; for one, `options.target` is set to its file.

    A resume of one suite is for that suite's host, whatever else is in the inventory. Raises
    ControllerError where the inventory cannot be resolved.
    """
    if options.target is not None:
        return False
    if options.inventory is None:
        raise ControllerError("Name the inventory (--inventory) or a resolved target (--target).")
    targets = hosts(options.inventory)
    folder = getattr(options, "suite_dir", None)
    if folder is not None and (folder / group.FILE).exists():
        options.targets = targets
        return True
    if folder is not None and len(targets) > 1:
        targets = [_of_host(targets, _planned_host(folder), options.inventory)]
    options.targets = targets
    if len(targets) == 1:
        options.target = inventory.target_file(targets[0]["host"])
    return len(targets) > 1


def hosts(path: Path) -> list[dict[str, Any]]:
    """Every resolved target of an inventory. Raises ControllerError if any host is refused."""
    found = inventory.resolve(path)
    if found.refused:
        told = "; ".join(
            f"{host}: {reason}" for host, reasons in found.refused.items() for reason in reasons
        )
        raise ControllerError(f"The inventory {path} is refused. {told}")
    return found.targets


def plan(options: Options, freeze: Freeze) -> Path:
    """Freeze a plan for every host, alike in all that matters; the group's folder.

    `freeze(options, group, now)` gives the plan of `options.target`. Nothing is written before all
    plans are made and agree. Raises ControllerError.
    """
    group.require_apart(options.targets)
    now = datetime.now(UTC)
    name = f"{options.suite}-{now:%Y%m%dT%H%M%SZ}"
    seed = secrets.randbits(32) if options.seed is None else options.seed

    def frozen(**changes: Any) -> list[dict[str, Any]]:
        found = []
        for host in (target["host"] for target in options.targets):
            own = {"seed": seed, "target": inventory.target_file(host), **changes}
            try:
                found.append(freeze(Options(**{**vars(options), **own}), group=name, now=now))
            except ControllerError as error:
                raise ControllerError(f"{host}: {error}") from error
        return found

    plans = frozen()
    slowest = min(plans, key=lambda each: int(each["blocks"]))
    if any(each["blocks"] > slowest["blocks"] for each in plans):  # fitted to the time
        print(f"{slowest['host']} is the slowest: {slowest['blocks']} blocks on every host")
        plans = frozen(blocks=slowest["blocks"])
    group.require_alike(plans)
    for each in plans:
        folder = options.out / each["suite_id"]
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            raise ControllerError(f"{folder} exists: wait a second and plan again.") from None
        write_json(folder / "plan.json", each)
    group.write(options.out / name, plans)
    return Path(options.out / name)


def run(options: Options) -> bool:
    """Run or go on with every suite of the group in `options.suite_dir`; whether all came through.

    A host that fails does not stop the others. Ctrl-C is handed on to each session, which ends in
    order; KeyboardInterrupt is raised when all have.
    """
    folder: Path = options.suite_dir
    group.require_apart(options.targets)
    waiting = [path for path in group.suites(folder) if not (path / MANIFEST).exists()]
    if not waiting:
        raise ControllerError(f"{folder} is sealed on every host: make report shows it.")
    named = {_planned_host(path): path for path in waiting}
    for host in named:
        _of_host(options.targets, host, options.inventory)
    with deferred_interrupts() as interrupts:
        sessions = [_start(host, path, options.inventory) for host, path in named.items()]
        view = View(sys.stdout, list(named))
        view.say(f"group {folder.name}: {', '.join(named)}")
        _follow(sessions, view, interrupts)
        os.utime(folder)  # the newest, for `make report`
        for session in sessions:
            view.say(f"{session.host}: {_outcome(session, options.inventory)}")
    failed = any(session.process.returncode for session in sessions)
    if not failed:
        view.say(f"all hosts came through: make report SUITE_DIR={folder}")
    return not failed


def _start(host: str, folder: Path, path: Path) -> Session:
    """The session writes to a file, not to us: it goes on if this process ends."""
    argv = [*SESSION, str(folder), "--inventory", str(path)]
    argv += ["--target", str(inventory.target_file(host))]
    with (folder / LOG).open("ab") as log:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        return Session(host, folder, process, log.tell())


def _follow(sessions: Sequence[Session], view: View, interrupts: Sequence[int]) -> None:
    """Tell what the sessions say until all have ended; each interrupt is handed on to them."""
    handed_on = 0
    while True:
        ended = [session.process.poll() is not None for session in sessions]
        for session in sessions:
            for line in session.new_lines():
                view.line(session.host, line)
            view.status(session.host, _status(session))
        view.draw()
        if all(ended):
            return
        if len(interrupts) > handed_on:
            handed_on = len(interrupts)
            view.say("interrupted: every host's session is told to end in order")
            for session in sessions:
                if session.process.poll() is None:
                    # Not SIGINT: what a shell started in the background does not hear it.
                    session.process.terminate()
        time.sleep(POLL_S)


def _status(session: Session) -> Mapping[str, Any] | None:
    code = session.process.poll()
    if code is not None:
        return {"state": "did-not-come-through" if code else "sealed"}
    try:
        found = strict_json.loads(
            (session.folder / "status" / "status.json").read_text(encoding="utf-8")
        )
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _outcome(session: Session, path: Path) -> str:
    if session.process.returncode == 0:
        return f"sealed, {session.folder}"
    said = session.last.removeprefix("fde: ") or "it said nothing"
    way = f"make resume SUITE_DIR={session.folder} INVENTORY={path}"
    return f"did not come through: {said}\n  go on with: {way}"


def _planned_host(folder: Path) -> str:
    try:
        return str(strict_json.loads((folder / "plan.json").read_text(encoding="utf-8"))["host"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ControllerError(f"There is no planned suite in {folder}: name another.") from None


def _of_host(targets: Sequence[dict[str, Any]], host: str, path: Path) -> dict[str, Any]:
    for target in targets:
        if target["host"] == host:
            return target
    known = ", ".join(target["host"] for target in targets)
    raise ControllerError(
        f"The plan was made for the host {host}, which {path} does not name (it has {known}): use "
        "the inventory that it was made with."
    )
