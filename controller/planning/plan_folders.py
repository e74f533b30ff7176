"""Make a frozen plan, in a new folder, of a suite's name and the options of a command."""

from __future__ import annotations

import functools
import secrets
import shutil
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from agent import needs
from contract import derived
from contract.errors import ControllerError
from contract.files import write_json
from contract.places import suites_folder
from contract.plan import Plan, TargetDocument
from controller.planning import past_durations, sizing, wear
from controller.planning.suites import at_scale, load_suite
from controller.targets import first_writes, survey

Say = Callable[[str], None]
# What the keyed sum of a plan is of whose wear its user has permitted (contract/derived.py).
CONSENT = "consent"


@dataclass
class Options:
    """What a plan is made of, and whom a session is with.

    `target` is the file of a resolved target, `targets` are those that are meant once
    `group.several` has read them; `confirm` are serials of disks that may be preconditioned. With
    `report` a sealed suite is reported and verified at once.
    """

    suite: str = ""
    suite_dir: Path | None = None
    inventory: Path | None = None
    target: Path | None = None
    out: Path = field(default_factory=suites_folder)
    seed: int | None = None
    scale: str | None = None
    blocks: int | None = None
    hours: float | None = None
    configurations: Sequence[str] = ()
    skip: Sequence[str] = ()
    confirm: Sequence[str] = ()
    report: bool = True
    targets: Sequence[TargetDocument] = ()
    until: datetime | None = None


def freeze(
    options: Options, say: Say, group: str | None = None, now: datetime | None = None
) -> Plan:
    """Return the plan for `options.target`. Raises ControllerError."""
    # NumPy comes with it: not at the start of every command.
    from controller.planning.compiler import Fitted, compile_plan

    seed = secrets.randbits(32) if options.seed is None else options.seed
    suite = at_scale(load_suite(options.suite), options.scale)
    compiled = functools.partial(
        compile_plan,
        options.suite,
        suite,
        target_of(options),
        seed=seed,
        configurations=options.configurations,
        skip=options.skip,
        group=group,
        now=now,
    )
    if options.hours is None:
        return _with_wear(compiled(blocks=options.blocks), options, say)
    shortest = compiled(blocks=1)
    known = past_durations.read_durations(options.out, shortest.host, shortest.origin)
    fit = sizing.fit(shortest, known, options.hours)
    fitted = Fitted(options.hours, fit.basis)
    if options.blocks is not None:  # as many as a slower host of the group has time for
        return compiled(blocks=options.blocks, fitted=fitted)
    for sentence in fit.sentences:
        say(sentence)
    return _with_wear(compiled(blocks=fit.blocks, fitted=fitted), options, say)


def _with_wear(plan: Plan, options: Options, say: Say) -> Plan:
    """Return the plan once the cost of its preconditioning is printed, and all of it permitted."""
    if _wears(plan, target_of(options)):
        costs = _require_wear(plan, target_of(options), options.out, options.confirm, say)
        if options.hours is not None and costs:
            say("How long preconditioning takes is not known before, and HOURS does not count it.")
    return plan


def _wears(plan: Plan, target: TargetDocument) -> bool:
    """Whether a plan writes what the owner must permit, or has bounded."""
    disks = (target.disks.get(disk.role) for disk in plan.disks_used)
    return bool(plan.precondition) or any(disk and disk.max_written_bytes for disk in disks)


def _require_wear(
    plan: Plan, target: TargetDocument, out: Path, confirm: Collection[str], say: Say
) -> Sequence[wear.Cost]:
    """Require the owner's limits and consent; return what preconditioning costs each disk."""
    look = survey.look(target)
    if look.error:
        raise ControllerError("wear-unknown", error=look.error)
    if any(disk.max_written_bytes is not None for disk in target.disks.values()):
        run_bytes = past_durations.read_writes(out, plan, survey.read_writes(target, plan))
        written = wear.written(look.disks)
        needs.require_within_limits(plan, target.disks, written, run_bytes)
    costs = wear.costs(plan, look.disks)
    for cost in costs:
        say(cost.sentences)
    ask = first_writes.at_terminal if sys.stdin.isatty() else None
    if not target.lab:  # a virtual disk does not wear
        wear.require_allowed(costs, confirm, ask)
    return costs


def needs_consent(suite_dir: Path, plan: Plan, target: TargetDocument) -> bool:
    """Whether a plan that wears disks was made by another user or on another machine."""
    return _wears(plan, target) and not derived.is_ours(suite_dir, "plan.json", CONSENT)


def require_consent(
    suite_dir: Path, plan: Plan, target: TargetDocument, confirm: Collection[str], say: Say
) -> None:
    """Require of such a plan what planning requires; what is permitted is not asked for again.

    Raises AgentError.
    """
    _require_wear(plan, target, suite_dir.parent, confirm, say)
    derived.mark(suite_dir, ["plan.json"], CONSENT)


def write(options: Options, say: Say) -> Path:
    """Write a new plan for one host and return its folder. Raises ControllerError."""
    now = datetime.now(UTC)
    (plan,) = keep([freeze(options, say, now=now)], options.out, now)
    return options.out / plan.suite_id


def keep(plans: Sequence[Plan], out: Path, now: datetime) -> Sequence[Plan]:
    """Write plans made at `now` to new folders below `out`, with one for their group; return them.

    Where another command has planned in the same second, they are dated to the next one.
    """
    from controller.planning.compiler import redate

    while True:
        names = [plan.suite_id for plan in plans] + [plan.group for plan in plans if plan.group]
        made: list[Path] = []
        try:
            for name in dict.fromkeys(names):
                (out / name).mkdir(parents=True)
                made.append(out / name)
            for plan in plans:
                write_json(out / plan.suite_id / "plan.json", plan.document())
                derived.mark(out / plan.suite_id, ["plan.json"], CONSENT)
        except BaseException as error:
            for folder in made:
                shutil.rmtree(folder, ignore_errors=True)
            if not isinstance(error, FileExistsError):
                raise
            now += timedelta(seconds=1)
            plans = [redate(plan, now) for plan in plans]
        else:
            return plans


def target_of(options: Options) -> TargetDocument:
    """Return the one resolved target that is meant, which `group.several` has read."""
    (target,) = options.targets
    return target
