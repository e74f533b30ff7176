"""Command line of the agent: the disks, a suite and what belongs to it, the storage by hand."""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from agent import pack, requests
from agent.system import admission, lock, notify, packages, quiet
from agent.system.command import keep_private
from agent.system.limits import Stop
from contract import identity, journal, plan, strict_json
from contract.errors import AgentError
from contract.files import json_text
from contract.journal import Entry
from contract.names import sentence

TARGET = Path("/etc/fde-testbed/target.json")
# Exit codes beside 0, 1 and 2; all but the first two of sysexits.h's restart the service.
ABANDONED = 4
UNFORESEEN = 70
BUSY = 75

SECRETS = Path("/run/fde-testbed/secrets/secrets.json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 done, 1 refused or failed (one sentence on stderr), 2 usage.

    A refusal is printed as JSON as well: `problems`, each as `contract.problem.Problem` has it.
    4: no agent is left to close the journal that is followed. 70: something that was not foreseen,
    and 75: the suite or the disks are in use, or the machine goes down: a service starts again.
    """
    options = _parser().parse_args(arguments)
    try:
        if hasattr(options, "secrets"):
            keep_private()
        return int(options.command(options))
    except AgentError as error:
        print(f"fde: {sentence(str(error))}", file=sys.stderr)
        if error.code:
            print(json_text({"problems": [problem.document() for problem in error.problems]}))
        if isinstance(error, journal.AbandonedError):
            return ABANDONED
        # The service is started again: the reason may be gone by then.
        return BUSY if isinstance(error, lock.LockError) and notify.is_service() else 1
    except BrokenPipeError:
        # Whoever followed has gone; keep the interpreter from complaining when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (KeyboardInterrupt, Stop):
        print("fde: interrupted.", file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001 - a service must end with a code that restarts it
        if notify.is_service():
            traceback.print_exc()  # into the unit's log
        print(f"fde: internal error: {error!r}. Start it again to continue.", file=sys.stderr)
        return UNFORESEEN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m agent", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")

    check = _command(commands, "check", "list what is on the disks; touches nothing")
    check.add_argument("--target", type=Path, default=TARGET)

    prepare = _command(
        commands, "prepare", "partition the test disks and own the self-encrypting one"
    )
    prepare.add_argument(
        "--checked",
        type=_fingerprints,
        metavar="JSON",
        help="role to fingerprint as check prints them: refuse a disk that changed since",
    )
    teardown = _command(
        commands, "teardown", "revert the self-encrypting disk, remove our partitions"
    )
    teardown.add_argument(
        "--psid-revert",
        metavar="SERIAL",
        help="erase the drive with this serial by its PSID (sed_psid of the secrets)",
    )
    for command in (prepare, teardown):
        _add_storage_options(command)
        command.add_argument("--check", action="store_true", help="only print what would be done")

    run = _command(commands, "run", "execute the plan of a suite, or continue with it", _run)
    run.add_argument("--suite-dir", type=Path, required=True)
    _add_storage_options(run)

    follow = _command(commands, "follow", "print journal lines until the suite ends", _follow)
    follow.add_argument("--suite-dir", type=Path, required=True)
    follow.add_argument("--from", dest="start", type=int, default=0, metavar="N")

    _add_suite_commands(commands)

    storage = commands.add_parser("storage", help="move the storage by hand")
    steps = storage.add_subparsers(required=True, metavar="step")
    enter = _command(steps, "enter", "go to a configuration (formats it)")
    enter.add_argument("configuration")
    leave = _command(steps, "leave", "unmount, close and lock")
    prove = _command(steps, "prove", "enter each configuration in turn and prove it")
    prove.add_argument("configurations", nargs="*", metavar="configuration")
    prove.add_argument("--storage", metavar="SHA256", help="refuse where --target has another")
    for command in (enter, leave, prove):
        _add_storage_options(command)
    return parser


def _add_suite_commands(commands: Any) -> None:
    """Add what the controller asks of a suite beside running and following it."""
    held = _command(commands, "hold", "keep the agent from beginning the next run", _hold)
    held.add_argument("--reason", help="one sentence for people")
    held.add_argument("--for", dest="seconds", type=float, metavar="SECONDS")
    held.add_argument("--end", action="store_true", help="let go")

    def bound(options: argparse.Namespace) -> int:
        admission.store(options.suite_dir, options.bounds)
        return 0

    bounded = _command(commands, "bound", "set which runs of a suite may still begin", bound)
    bounded.add_argument("--suite-dir", type=Path, required=True)
    shape = partial(strict_json.parse, admission.Bounds)
    bounded.add_argument("bounds", type=shape, metavar="JSON", help="seconds, known_s and block")

    again = _command(commands, "request-repeat", "have a finished run repeated", _request_repeat)
    again.add_argument("--suite-dir", type=Path, required=True)
    again.add_argument("--run", required=True, metavar="ID")
    again.add_argument("--seq", type=int, required=True, help="number of its finished line")
    again.add_argument("--reason", required=True, help="one sentence for people")

    def print_identity(options: argparse.Namespace) -> int:
        print(json_text(asdict(identity.read_identity(options.suites))))
        return 0

    about = "print which machine this is and what it has run"
    who = _command(commands, "identity", about, print_identity)
    who.add_argument("--suites", type=Path, default=identity.SUITES)

    packed = _command(commands, "pack", "write a suite's folder as a tar, its sums first", _pack)
    packed.add_argument("--suite-dir", type=Path, required=True)
    packed.add_argument("--out", type=Path, help="a file instead of standard output")

    silence = _command(commands, "quiet", "list, stop or start again what would disturb", _quiet)
    silence.add_argument("what", choices=("list", "off", "back"))
    silence.add_argument("--suite-dir", type=Path, help="whose plan lists what is to be stopped")
    silence.add_argument("--target", type=Path, default=TARGET)

    provisioned = _command(
        commands, "packages", "record, install or remove what provisioning installs", _packages
    )
    provisioned.add_argument("what", choices=("note", "install", "remove"))
    provisioned.add_argument("--packages", nargs="*", default=())
    provisioned.add_argument("--files", nargs="*", default=())


def _command(
    commands: Any, name: str, about: str, does: Callable[[argparse.Namespace], int] | None = None
) -> argparse.ArgumentParser:
    """Add a command that calls `does`, or the function of its name in agent.storage.commands.

    The commands of a suite do not wait for the latter's modules.
    """
    parser: argparse.ArgumentParser = commands.add_parser(name, help=about)
    parser.set_defaults(command=does or partial(_on_disks, name))
    return parser


def _on_disks(name: str, options: argparse.Namespace) -> int:
    from agent.storage import commands

    status: int = getattr(commands, name)(options)
    return status


def _add_storage_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", type=Path, default=TARGET)
    parser.add_argument("--secrets", type=Path, default=SECRETS)


def _fingerprints(text: str) -> dict[str, str]:
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError(text)
    return document


def _run(options: argparse.Namespace) -> int:
    from agent import runner  # the other commands must not wait for what only runs need

    return runner.run_suite(options.suite_dir, options.secrets, options.target)


def _follow(options: argparse.Namespace) -> int:
    """Print the journal's lines from a number on, with the records of finished runs in between."""
    path = options.suite_dir / "journal.jsonl"
    entries = journal.follow(
        path, options.start, held=lambda: lock.holder(options.suite_dir) is not None
    )
    finished: list[str] = []
    for entry in journal.read(path)[: options.start]:
        _keep_finished(entry, finished)
    for entry in entries:
        for run_id in _keep_finished(entry, finished):
            record = options.suite_dir / "runs" / run_id / "run.json"
            with suppress(OSError):
                print(record.read_text(encoding="utf-8").replace("\n", " "))
        print(json_text(asdict(entry)), flush=True)
    return 0


def _keep_finished(entry: Entry, finished: list[str]) -> list[str]:
    """Collect in `finished` the runs since the configuration was switched last.

    Return them where it is switched again, the controller looks at them, or the suite ends.

    Nothing is measured then, so that sending their records disturbs no run.
    """
    if entry.state == "finished":
        finished.append(entry.run_id)
    if entry.state not in ("switching", *journal.TERMINAL) and entry.cause != journal.LOOK:
        return []
    sent = list(finished)
    finished.clear()
    return sent


def _hold(options: argparse.Namespace) -> int:
    if options.end:
        lock.end()
    elif options.reason is None or options.seconds is None:
        raise lock.HoldError("hold-without-reason")
    else:
        lock.take(options.reason, options.seconds)
    return 0


def _request_repeat(options: argparse.Namespace) -> int:
    request = requests.Request(options.run, options.seq, " ".join(options.reason.split()))
    print(json_text({"changed": requests.add(options.suite_dir, request)}))
    return 0


def _quiet(options: argparse.Namespace) -> int:
    if options.what == "list":
        print(json_text(quiet.disturbers()))
        return 0
    if options.what == "off":
        suite = options.suite_dir
        wanted = plan.load(suite / "plan.json").quiet if suite else None
        if suite and wanted != plan.read_target(options.target).quiet:
            raise plan.PlanError("services-not-allowed")
        units = quiet.off(wanted)
    else:
        units = quiet.back()
    print(json_text({"changed": bool(units), "units": units}))
    return 0


def _packages(options: argparse.Namespace) -> int:
    if options.what == "note":
        if options.packages:
            packages.update()
        changed, actions = packages.note(options.packages, options.files), []
    else:
        install = options.what == "install"
        actions = packages.install(options.packages) if install else packages.remove()
        changed = bool(actions)
    print(json_text({"changed": changed, "actions": actions}))
    return 0


def _pack(options: argparse.Namespace) -> int:
    if options.out is None:
        pack.pack(options.suite_dir, sys.stdout.buffer)
        sys.stdout.flush()
    else:
        with options.out.open("wb") as out:
            pack.pack(options.suite_dir, out)
    return 0
