"""`python -m controller`: check and prove targets; plan, run, resume and seal suites."""

from __future__ import annotations

import argparse
import functools
import io
import json
import secrets
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from contract import names
from contract import plan as plans
from contract.errors import AgentError, ControllerError
from contract.files import write_json
from contract.interrupts import term_interrupts
from controller import (
    check,
    confirm,
    look,
    many,
    prove,
    remote,
    session,
    sizing,
    suite_folder,
    timing,
    watch,
)
from controller.seal import seal
from controller.suites import load_suite, scaled
from instrumentation.clock import ClockError


class Parser(argparse.ArgumentParser):
    """Tells what is wrong in one line: people call it by `make`, not by its own usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"fde: {message.removeprefix('argument ')}\n")


@term_interrupts()
def main(arguments: Sequence[str] | None = None) -> int:
    """0 done, 1 refused or failed (one sentence on stderr), 2 usage, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):  # no session ends for a letter that a terminal lacks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    options = _parser().parse_args(arguments)
    try:
        return 0 if options.command(options) is not False else 1
    except (AgentError, ClockError) as error:
        print(f"fde: {names.sentence(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        where = getattr(options, "suite_dir", None)
        hint = f"; continue with make resume SUITE_DIR={where}" if where else ""
        print(f"fde: interrupted, what was measured is kept{hint}.", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m controller", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")

    plan = commands.add_parser("plan", help="freeze a plan for each host; prints the folder")
    plan.add_argument("--inventory", type=Path)
    _plan_options(plan)
    plan.set_defaults(command=_plan)

    run = commands.add_parser("run", help="run a planned suite, or plan one (--suite) and run it")
    run.add_argument("suite_dir", type=Path, nargs="?", help="folder of a planned suite")
    run.add_argument("--inventory", type=Path, required=True)
    _plan_options(run, suite_required=False)
    run.set_defaults(command=_run)

    resume = commands.add_parser("resume", help="continue with an interrupted suite")
    resume.add_argument("suite_dir", type=Path)
    resume.add_argument("--inventory", type=Path, required=True)
    resume.add_argument("--target", type=Path)
    resume.set_defaults(command=_resume)

    watching = commands.add_parser("watch", help="show a running suite, wherever it was started")
    watching.add_argument("suite_dir", type=Path, nargs="?", help="default: what runs now")
    watching.add_argument("--inventory", type=Path, help="whose targets to ask, if none runs here")
    watching.add_argument("--out", type=Path, default=Path("data/suites"))
    watching.add_argument("--serve", metavar="PORT", help="the page for a phone; or ADDRESS:PORT")
    watching.set_defaults(command=_watch)

    checking = commands.add_parser("check", help="say what would happen to a target's disks")
    checking.add_argument("--inventory", type=Path, required=True)
    checking.add_argument("--suite", help="say what its preconditioning would cost each disk")
    checking.add_argument("--scale", help="one of the suite's scales, as lab")
    checking.set_defaults(command=_check)

    confirming = commands.add_parser("confirm", help="ask before a disk is first written")
    confirming.add_argument("--inventory", type=Path, required=True)
    confirming.add_argument("serials", nargs="*", metavar="serial")
    confirming.set_defaults(command=_confirm)

    proving = commands.add_parser("prove", help="enter, prove and leave each configuration")
    proving.add_argument("--target", type=Path, help="the resolved target")
    proving.add_argument("--inventory", type=Path, help="instead: every host of it")
    proving.add_argument("configurations", nargs="*", metavar="configuration")
    proving.set_defaults(command=_prove)

    sealing = commands.add_parser("seal", help="seal what an interrupted suite has measured")
    sealing.add_argument("suite_dir", type=Path)
    sealing.set_defaults(command=_seal)
    return parser


def _plan_options(parser: argparse.ArgumentParser, suite_required: bool = True) -> None:
    parser.add_argument("--suite", required=suite_required, help="name of a suite")
    parser.add_argument(
        "--target", type=Path, help="the resolved target (default: every host of the inventory)"
    )
    parser.add_argument("--out", type=Path, default=Path("data/suites"))
    parser.add_argument(
        "--seed", type=int, help="of the shuffle (default: random, kept in the plan)"
    )
    parser.add_argument("--scale", help="one of the suite's scales, as lab")
    count = parser.add_mutually_exclusive_group()
    count.add_argument("--blocks", type=int, help="instead of the suite's own number")
    count.add_argument("--hours", type=float, help="as many blocks as end within so long")
    count.add_argument("--pilot", type=Path, help="an earlier suite, whose report says how many")
    parser.add_argument(
        "--skip", nargs="+", default=(), help="entries that may be left out if they cannot run"
    )
    parser.add_argument(
        *("--configurations", "-c"), nargs="+", default=(), help="instead of the suite's own"
    )

    parser.add_argument(
        "--confirm", nargs="+", default=(), help="serials of disks that may be preconditioned"
    )


def _plan(options: argparse.Namespace) -> None:
    several = many.several(options)
    print(many.plan(options, _frozen) if several else _write_plan(options))


def _run(options: argparse.Namespace) -> bool:
    if (options.suite_dir is None) == (options.suite is None):
        raise ControllerError("Name either the folder of a planned suite or --suite, not both.")
    several = many.several(options)
    if options.suite_dir is None:
        options.suite_dir = many.plan(options, _frozen) if several else _write_plan(options)
    return many.run(options) if several else _session(options)


def _resume(options: argparse.Namespace) -> bool:
    return many.run(options) if many.several(options) else _session(options)


def _session(options: argparse.Namespace) -> bool:
    target = remote.read_target(options.target)
    suite_folder.require_plain(options.suite_dir)
    try:
        manifest = session.run(options.suite_dir, target, options.inventory, _say)
        print(f"sealed: {manifest}")
    finally:
        _say_where_time_went(options.suite_dir)
    return True


def _say_where_time_went(suite_dir: Path) -> None:
    """The table of timing.json, also of a suite that was interrupted; nothing where none ran."""
    with suppress(AgentError, OSError, KeyError, TypeError, ValueError):
        plans.load(suite_dir / "plan.json")  # its names are safe then
        for line in timing.table(timing.of_suite(suite_dir)):
            _say(line)


def _watch(options: argparse.Namespace) -> bool:
    try:
        return watch.run(options.suite_dir, options.out, options.inventory, options.serve, _say)
    except KeyboardInterrupt:  # nothing was interrupted but the looking
        return True


def _check(options: argparse.Namespace) -> bool:
    return check.run(options.inventory, _say, suite=options.suite, scale=options.scale)


def _confirm(options: argparse.Namespace) -> None:
    ask = confirm.at_terminal if sys.stdin.isatty() else None
    print(json.dumps({"fde_confirm": confirm.run(options.inventory, options.serials, ask)}))


def _prove(options: argparse.Namespace) -> bool:
    several = many.several(options)
    targets = options.targets if several else [remote.read_target(options.target)]
    proven = [prove.run(target, options.configurations, _say) for target in targets]
    return all(proven)


def _seal(options: argparse.Namespace) -> None:
    with suite_folder.locked(options.suite_dir):
        plans.load(options.suite_dir / "plan.json")
        print(f"sealed: {seal(options.suite_dir)}")


def _frozen(
    options: argparse.Namespace, group: str | None = None, now: datetime | None = None
) -> dict[str, Any]:
    from controller.compile import compile_plan  # NumPy: not at the start of every command

    seed = secrets.randbits(32) if options.seed is None else options.seed
    earlier = None if options.pilot is None else sizing.read_pilot(options.pilot)
    compiled = functools.partial(
        compile_plan,
        options.suite,
        scaled(load_suite(options.suite), options.scale),
        remote.read_target(options.target),
        seed=seed,
        pilot=None if earlier is None else earlier.suite_id,
        configurations=options.configurations,
        skip=options.skip,
        group=group,
        now=now,
    )
    if options.hours is None:
        blocks = options.blocks if earlier is None else earlier.blocks
        return _wear_told(compiled(blocks=blocks), options)
    one = compiled(blocks=1)
    known = sizing.seen(options.out, one["host"], one["origin"])
    fit = sizing.fit(one, known, options.hours)
    fitted = {"hours": options.hours, "basis": fit.basis}
    if options.blocks is not None:  # as many as a slower host of the group has time for
        return compiled(blocks=options.blocks, fitted=fitted)
    for sentence in fit.sentences:
        _say(sentence)
    return _wear_told(compiled(blocks=fit.blocks, fitted=fitted), options)


def _wear_told(plan: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """The plan, once it is said what its preconditioning costs each disk, and allowed."""
    if "precondition" not in plan:
        return plan
    target = remote.read_target(options.target)
    seen = look.look(target)
    if seen.error:
        raise ControllerError(f"What preconditioning would cost is unknown: {seen.error}.")
    found = confirm.costs(plan, seen.disks)
    for cost in found:
        _say(cost.sentences)
    if options.hours is not None:
        _say("How long the preconditioning takes is not known before, and HOURS does not count it.")
    ask = confirm.at_terminal if sys.stdin.isatty() else None
    if not target.get("lab"):  # a virtual disk does not wear
        confirm.require_allowed(found, options.confirm, ask)
    return plan


def _write_plan(options: argparse.Namespace) -> Path:
    plan = _frozen(options)
    folder: Path = options.out / plan["suite_id"]
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise ControllerError(f"{folder} exists already: wait a second and plan again.") from None
    write_json(folder / "plan.json", plan)
    return folder


def _say(line: str) -> None:
    print(names.printable(line), flush=True)


if __name__ == "__main__":
    sys.exit(main())
