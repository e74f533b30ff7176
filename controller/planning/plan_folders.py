"""Planning: the options of a command become a frozen plan in a new folder."""

from __future__ import annotations

import functools
import secrets
import shutil
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from agent import needs
from analysis.suite.group import is_group
from contract import derived
from contract.errors import ControllerError
from contract.files import write_json
from contract.places import suites_folder
from contract.plan import Plan, TargetDocument
from controller.planning import past_durations, sizing, wear
from controller.planning.known_names import require_known
from controller.planning.suites import at_scale, load_suite
from controller.targets import first_writes, survey

Say = Callable[[str], None]
# Purpose of the keyed sum of a plan whose wear the user has permitted (contract/derived.py).
CONSENT = "consent"


@dataclass
class Options:
    """The options of planning and of a session.

    `target` is the file of a resolved target; `targets` are the selected ones, which
    `group.several` reads. Entries of the suite in `left_out` are not planned, those in `skip` may
    be skipped; `confirm` are serials of disks that may be preconditioned. With `report` a sealed
    suite is reported and verified at once.
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
    left_out: Sequence[str] = ()
    confirm: Sequence[str] = ()
    report: bool = True
    targets: Sequence[TargetDocument] = ()
    until: datetime | None = None


def require_valid(options: Options) -> None:
    """Check names and folder before Ansible reads the inventory. Raises AgentError."""
    folder = options.suite_dir
    if folder is not None and not (is_group(folder) or (folder / "plan.json").is_file()):
        raise ControllerError("suite-folder-unusable", suite_dir=folder, reason="no plan.json")
    if options.suite:
        suite = at_scale(load_suite(options.suite), options.scale)
        entry_names = [entry.name for entry in suite.workloads]
        require_known("workload in SKIP", options.skip, entry_names)


def freeze(
    options: Options, say: Say, group: str | None = None, created: datetime | None = None
) -> Plan:
    """Compile the plan for the selected target; raises ControllerError."""
    # It imports NumPy, which most commands do not need.
    from controller.planning.compiler import Fitted, compile_plan

    seed = secrets.randbits(32) if options.seed is None else options.seed
    suite = at_scale(load_suite(options.suite), options.scale)
    workloads = tuple(entry for entry in suite.workloads if entry.name not in options.left_out)
    suite = replace(suite, workloads=workloads)
    compiled = functools.partial(
        compile_plan,
        options.suite,
        suite,
        target_of(options),
        seed=seed,
        configurations=options.configurations,
        skip=options.skip,
        group=group,
        created=created,
    )
    if options.hours is None:
        return _with_wear(compiled(blocks=options.blocks), options, say)
    shortest = compiled(blocks=1)
    durations = past_durations.read_durations(options.out, shortest.host, shortest.origin)
    fit = sizing.fit(shortest, durations, options.hours)
    fitted = Fitted(options.hours, fit.basis)
    if options.blocks is not None:  # the number that fits on the slowest host of the group
        return compiled(blocks=options.blocks, fitted=fitted)
    for sentence in fit.sentences:
        say(sentence)
    return _with_wear(compiled(blocks=fit.blocks, fitted=fitted), options, say)


def _with_wear(plan: Plan, options: Options, say: Say) -> Plan:
    """Print the cost of a plan's preconditioning, require consent to it, and return the plan."""
    if _wears(plan, target_of(options)):
        costs = _require_wear(plan, target_of(options), options.out, options.confirm, say)
        if options.hours is not None and costs:
            say("How long preconditioning takes is not known before, and HOURS does not count it.")
    return plan


def _wears(plan: Plan, target: TargetDocument) -> bool:
    """Return whether a plan preconditions disks, or uses one whose written bytes are limited."""
    disks = (target.disks.get(disk.role) for disk in plan.disks_used)
    return bool(plan.precondition) or any(disk and disk.max_written_bytes for disk in disks)


def _require_wear(
    plan: Plan, target: TargetDocument, out: Path, confirm: Collection[str], say: Say
) -> Sequence[wear.Cost]:
    """Require the limits and consent of the owner; return the cost for each disk."""
    answer = survey.look(target)
    if answer.error:
        raise ControllerError("wear-unknown", error=answer.error)
    if any(disk.max_written_bytes is not None for disk in target.disks.values()):
        run_bytes = past_durations.read_writes(out, plan, survey.read_writes(target, plan))
        written = wear.written(answer.disks)
        needs.require_within_limits(plan, target.disks, written, run_bytes)
    costs = wear.costs(plan, answer.disks)
    for cost in costs:
        say(cost.sentences)
    ask = first_writes.at_terminal if sys.stdin.isatty() else None
    if not target.lab:  # a virtual disk does not wear
        wear.require_allowed(costs, confirm, ask)
    return costs


def needs_consent(suite_dir: Path, plan: Plan, target: TargetDocument) -> bool:
    """Return whether a plan that wears disks comes from another user or machine."""
    return _wears(plan, target) and not derived.is_ours(suite_dir, "plan.json", CONSENT)


def require_consent(
    suite_dir: Path, plan: Plan, target: TargetDocument, confirm: Collection[str], say: Say
) -> None:
    """Require the consent that planning requires, and record it; raises AgentError."""
    _require_wear(plan, target, suite_dir.parent, confirm, say)
    derived.mark(suite_dir, ["plan.json"], CONSENT)


def write(options: Options, say: Say) -> Path:
    """Write a new plan for one host and return its folder; raises ControllerError."""
    created = datetime.now(UTC)
    (plan,) = write_folders([freeze(options, say, created=created)], options.out, created)
    return options.out / plan.suite_id


def write_folders(plans: Sequence[Plan], out: Path, created: datetime) -> Sequence[Plan]:
    """Write plans to new folders below `out`, with one for their group; return the plans.

    If a folder already exists because another command planned in the same second, `created` and
    the names advance by a second.
    """
    from controller.planning.compiler import redate

    while True:
        names = [plan.suite_id for plan in plans] + [plan.group for plan in plans if plan.group]
        folders: list[Path] = []
        try:
            for name in dict.fromkeys(names):
                (out / name).mkdir(parents=True)
                folders.append(out / name)
            for plan in plans:
                write_json(out / plan.suite_id / "plan.json", plan.document())
                derived.mark(out / plan.suite_id, ["plan.json"], CONSENT)
        except BaseException as error:
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)
            if not isinstance(error, FileExistsError):
                raise
            created += timedelta(seconds=1)
            plans = [redate(plan, created) for plan in plans]
        else:
            return plans


def target_of(options: Options) -> TargetDocument:
    """Return the only selected target."""
    (target,) = options.targets
    return target
