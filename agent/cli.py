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
from pathlib import Path
from typing import Any

from agent import pack, requests
from agent.system import admission, lock, notify, packages, quiet
from agent.system.command import keep_private
from agent.system.limits import Stop
from contract import identity, journal, plan
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
    """Run one command and return its exit code.

    0: done; 1: refused or failed, with one sentence on stderr; 2: usage. A refusal is printed as
    JSON as well: `problems`, each as `contract.problem.Problem` has it. 4: no agent is left to
    close the journal that is followed. 70: an unforeseen error, and 75: the suite or the disks are
    in use, or the machine goes down: a service starts again.
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
    target, suite = (argparse.ArgumentParser(add_help=False) for _ in range(2))
    target.add_argument("--target", type=Path, default=TARGET)
    storage = argparse.ArgumentParser(add_help=False, parents=[target])
    storage.add_argument("--secrets", type=Path, default=SECRETS)
    suite.add_argument("--suite-dir", type=Path, required=True)

    parser = argparse.ArgumentParser(prog="python3 -m agent", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")

    _command(commands, "check", "list what is on the disks; touches nothing", parents=[target])
    about = "partition the test disks and own the self-encrypting one"
    prepare = _command(commands, "prepare", about, parents=[storage])
    prepare.add_argument(
        "--checked",
        type=json.loads,
        metavar="JSON",
        help="role to fingerprint as check prints them: refuse a disk that changed since",
    )
    about = "revert the self-encrypting disk, remove our partitions"
    teardown = _command(commands, "teardown", about, parents=[storage])
    teardown.add_argument(
        "--psid-revert",
        metavar="SERIAL",
        help="erase the drive with this serial by its PSID (sed_psid of the secrets)",
    )
    for command in (prepare, teardown):
        command.add_argument("--check", action="store_true", help="only print what would be done")

    about = "execute the plan of a suite, or continue with it"
    _command(commands, "run", about, _run_suite, parents=[suite, storage])

    about = "print journal lines until the suite ends"
    follow = _command(commands, "follow", about, _follow, parents=[suite])
    follow.add_argument("--from", dest="start", type=int, default=0, metavar="N")

    held = _command(commands, "hold", "keep the agent from beginning the next run", _hold)
    held.add_argument("--reason", help="one sentence for people")
    held.add_argument("--for", dest="seconds", type=float, metavar="SECONDS")
    held.add_argument("--end", action="store_true", help="let go")

    def bound(options: argparse.Namespace) -> int:
        admission.store(options.suite_dir, options.bounds)
        return 0

    about = "set which runs of a suite may still begin"
    bounded = _command(commands, "bound", about, bound, parents=[suite])
    bounded.add_argument(
        "bounds", type=admission.parse, metavar="JSON", help="seconds, known_s and block"
    )

    about = "have a finished run repeated"
    repeat = _command(commands, "request-repeat", about, _request, parents=[suite])
    repeat.add_argument("--run", required=True, metavar="ID")
    repeat.add_argument("--seq", type=int, required=True, help="number of its finished line")
    repeat.add_argument("--reason", required=True, help="one sentence for people")

    about = "print which machine this is and what it has run"
    identify = _command(
        *(commands, "identity", about),
        lambda options: _print(asdict(identity.read_identity(options.suites))),
    )
    identify.add_argument("--suites", type=Path, default=identity.SUITES)

    about = "write a suite's folder as a tar, its sums first"
    packed = _command(commands, "pack", about, _pack, parents=[suite])
    packed.add_argument("--out", type=Path, help="a file instead of standard output")

    about = "list, stop or start again what would disturb"
    silence = _command(commands, "quiet", about, _quiet, parents=[target])
    silence.add_argument("what", choices=("list", "off", "back"))
    silence.add_argument("--suite-dir", type=Path, help="whose plan lists what is to be stopped")

    about = "record, install or remove what provisioning installs"
    provisioned = _command(commands, "packages", about, _packages)
    provisioned.add_argument("what", choices=("note", "install", "remove"))
    provisioned.add_argument("--packages", nargs="*", default=())
    provisioned.add_argument("--files", nargs="*", default=())

    _add_storage_steps(commands, storage)
    return parser


def _add_storage_steps(commands: Any, storage: argparse.ArgumentParser) -> None:
    by_hand = commands.add_parser("storage", help="move the storage by hand")
    steps = by_hand.add_subparsers(required=True, metavar="step")
    enter = _command(steps, "enter", "go to a configuration (formats it)", parents=[storage])
    enter.add_argument("configuration")
    _command(steps, "attach", "attach the disks that are files", parents=[storage])
    _command(steps, "leave", "unmount, close and lock", parents=[storage])
    about = "enter each configuration in turn and prove it"
    prove = _command(steps, "prove", about, parents=[storage])
    prove.add_argument("configurations", nargs="*", metavar="configuration")
    prove.add_argument("--storage", metavar="SHA256", help="refuse where --target has another")


def _command(
    commands: Any,
    name: str,
    about: str,
    does: Callable[[argparse.Namespace], int] | None = None,
    **options: Any,
) -> argparse.ArgumentParser:
    """Add a command that calls `does`, by default its namesake in agent.storage.commands.

    That module is imported only when such a command runs: a suite's commands do not wait for it.
    """

    def on_disks(options: argparse.Namespace) -> int:
        from agent.storage import commands

        return int(getattr(commands, name)(options))

    parser: argparse.ArgumentParser = commands.add_parser(name, help=about, **options)
    parser.set_defaults(command=does or on_disks)
    return parser


def _run_suite(options: argparse.Namespace) -> int:
    from agent import runner  # the other commands must not wait for what only runs need

    return runner.run_suite(options.suite_dir, options.secrets, options.target)


def _request(options: argparse.Namespace) -> int:
    request = requests.Request(options.run, options.seq, " ".join(options.reason.split()))
    return _print({"changed": requests.add(options.suite_dir, request)})


def _print(answer: object) -> int:
    """Print an answer as JSON; return 0, as every command that succeeded."""
    print(json_text(answer))
    return 0


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
    """Collect in `finished` the runs since the configuration was last switched.

    Return them once it is switched again: nothing is measured then, so sending their records
    disturbs no run.
    """
    if entry.state == "finished":
        finished.append(entry.run_id)
    if entry.state != "switching":
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


def _quiet(options: argparse.Namespace) -> int:
    if options.what == "list":
        return _print(quiet.disturbers())
    if options.what == "off":
        suite = options.suite_dir
        planned_quiet = plan.load(suite / "plan.json").quiet if suite else None
        if suite and planned_quiet != plan.read_target(options.target).quiet:
            raise plan.PlanError("services-not-allowed")
        units = quiet.stop(planned_quiet)
    else:
        units = quiet.restart()
    return _print({"changed": bool(units), "units": units})


def _packages(options: argparse.Namespace) -> int:
    if options.what == "note":
        if options.packages:
            packages.update()
        changed, actions = packages.note(options.packages, options.files), []
    else:
        install = options.what == "install"
        actions = packages.install(options.packages) if install else packages.remove()
        changed = bool(actions)
    return _print({"changed": changed, "actions": actions})


def _pack(options: argparse.Namespace) -> int:
    if options.out is None:
        pack.pack(options.suite_dir, sys.stdout.buffer)
        sys.stdout.flush()
    else:
        with options.out.open("wb") as out:
            pack.pack(options.suite_dir, out)
    return 0
