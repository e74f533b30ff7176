"""`fde check`: checks a target and lists what provisioning would do, without changing anything."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from agent import needs
from contract.command_results import CheckOutcome, CheckResult, HostChecks
from contract.disks import DiskAnswer
from contract.errors import AgentError
from contract.places import command_line, suites_folder
from contract.plan import Disk, TargetDocument
from controller.planning import past_durations, wear
from controller.planning.plan_folders import Options, require_valid
from controller.planning.suites import at_scale, load_suite
from controller.targets import connection, first_writes, fitness, playbook, survey
from controller.targets import inventory as stacks
from controller.targets.fitness.diagnosis import FIRST_SUITE, passed, problem_of, refused
from controller.targets.survey import TargetAnswer, write_record

ONE_DISK = "one-disk"
WIDTH = 80
LABEL = 25
MARKS = {"pass": "pass", "warn": "warn", "fail": "FAIL", "not_made": "  - "}

Say = Callable[[str], None]


def run(
    path: Path,
    say: Say,
    *,
    suite: str | None = None,
    scale: str | None = None,
    noise_s: float = 0.0,
) -> CheckResult:
    """Check every host of an inventory and print a page for each.

    With a `suite` the page lists what that writes to each disk. With `noise_s` the power is
    measured at rest and under load, for that many seconds each. Raises ControllerError if the
    inventory cannot be read.
    """
    say(f"CHECK of {path}: nothing is installed, no disk is touched.")
    require_valid(Options(suite=suite or "", scale=scale))
    inventory = playbook.resolve(path)
    hosts = []
    for name, problems in inventory.refused.items():
        outcomes = [replace(refused(problem), code="inventory") for problem in problems]
        _print_outcomes(f"{name}, which was not asked", outcomes, say)
        hosts.append(HostChecks(name, False, tuple(outcomes)))
    for target in inventory.targets:
        hosts.append(_check_host(target, suite, scale, noise_s, say))
        if hosts[-1].ok and has_one_disk(target):
            command = command_line("run", suite=ONE_DISK)
            say(f"\nSUITE  {command} answers first: the Opal disk compared with itself.")
    ok = all(host.ok for host in hosts)
    step = "Correct what is marked FAIL, then run fde check again."
    if ok:
        step = f"{command_line('provision', inventory=path)} does what is listed above."
    say(f"\nNothing was touched. {step}")
    return CheckResult(ok, str(path), tuple(hosts))


def _check_host(
    target: TargetDocument, suite: str | None, scale: str | None, noise_s: float, say: Say
) -> HostChecks:
    """Check a host and print its page."""
    scene = fitness.examine(target, suites_folder(), noise_s=noise_s, suite=suite or FIRST_SUITE)
    in_order = replace(passed("Its types and rules hold."), code="inventory")
    outcomes = [in_order, *fitness.judge(scene)]
    _print_outcomes(f"{target.host} = {connection.link(target)}", outcomes, say)
    answer = scene.answer
    _print_disks(target, answer, say)
    if answer and answer.error is None:
        say(f"\nsaved for fde provision: {_save(target, answer)}")
    say("\nCONFIGURATIONS")
    for line in stacks.table(target.configurations):
        say(f"  {line}")
    if suite and answer:
        outcomes += _check_suite(target, answer, suite, scale, say)
    disks = answer.disks if answer else ()
    return HostChecks(target.host, not fitness.blockers(outcomes), tuple(outcomes), disks)


def _print_outcomes(title: str, outcomes: Sequence[CheckOutcome], say: Say) -> None:
    """Print one line for each group of equal outcomes, then the counts."""
    say(f"\nCHECKS  {title}\n")
    groups = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.state, outcome.sentence, outcome.remedy].append(outcome.code)
    for (state, sentence, remedy), codes in groups.items():
        several = len(codes) > 1
        name = f"{len(codes)} checks" if several else codes[0]
        text = f"{sentence} {', '.join(codes)}" if several else sentence
        _print_wrapped(f"  {MARKS[state]}  {name}", text, say)
        if remedy:
            _print_wrapped("", f"→ {remedy}", say)
    count = Counter(outcome.state for outcome in outcomes)
    say(
        f"\n{count['fail']} failed, {count['warn']} warnings, {count['pass']} passed, "
        f"{count['not_made']} not checked."
    )


def _print_wrapped(label: str, text: str, say: Say) -> None:
    """Print a label with a wrapped text to its right."""
    lines = textwrap.wrap(text, WIDTH - LABEL, break_long_words=False, break_on_hyphens=False)
    for line in lines or [""]:
        say(f"{label:<{LABEL}}{line}".rstrip())
        label = ""


def _print_disks(target: TargetDocument, answer: TargetAnswer | None, say: Say) -> None:
    """Print each disk as named and as attached, and what provisioning would do to it."""
    by_role = {disk.role: disk for disk in answer.disks} if answer else {}
    for role, named in target.disks.items():
        say("")
        for label, text in _describe_named(role, named, target):
            _print_wrapped(f"  {label}", text, say)
        for disk in [by_role[role]] if role in by_role else []:
            for label, text in _describe_answer(disk):
                _print_wrapped(f"  {label}", text, say)
            for problem in disk.refusals:
                if "allowed" in problem.facts:
                    say(f"{'':{LABEL}}erase: {problem.facts['allowed']}")  # to be pasted
            if disk in first_writes.new_disks(target, [disk]):
                command = command_line("provision", confirm=shlex.quote(disk.serial or ""))
                _print_wrapped("  will ask", f"{command}, the first time", say)


def _describe_named(role: str, disk: Disk, target: TargetDocument) -> Iterator[tuple[str, str]]:
    """Yield labels and texts that describe a disk as the inventory names it."""
    yield f"disk {role}", disk.by_id
    yield "", f"serial {disk.serial}, {_size(disk.size_bytes)}"
    names = [entry.name for entry in target.configurations if entry.disk == role]
    yield "", f"carries {', '.join(names) or 'no configuration'}"
    if disk.erase and " " in disk.erase:
        yield "", "WILL BE ERASED if it is unchanged since it was checked: `erase` permits that"
    elif disk.erase:
        yield "", "WILL BE ERASED whatever its contents: `erase` permits that"
    else:
        yield "", "will be erased if it is empty or ours; refused with any other contents"


def _describe_answer(disk: DiskAnswer) -> Iterator[tuple[str, str]]:
    """Yield labels and texts that describe a disk as the target reports it."""
    kind = ", ".join(text for text in (disk.model, disk.transport) if text)
    yield "found", f"{disk.path or 'absent'}: {kind}" if kind else disk.path or "absent"
    if disk.size_bytes:
        yield "", f"serial {disk.serial}, {_size(disk.size_bytes)}"
    yield "", disk.found
    if disk.lifetime and (life := wear.lifetime(**asdict(disk.lifetime))):
        yield "", life
    if not disk.refusals:
        yield from (("would", step) for step in disk.would or ["nothing: it is as it must be"])


def _check_suite(
    target: TargetDocument, answer: TargetAnswer, name: str, scale: str | None, say: Say
) -> list[CheckOutcome]:
    """Print how much a suite and its preconditioning write; return the suite's failed checks."""
    from controller.planning.compiler import compile_plan  # NumPy: not for a page without a suite

    try:
        plan = compile_plan(name, at_scale(load_suite(name), scale), target, seed=0)
    except AgentError as error:
        outcome = replace(refused(problem_of(error)), code="suite")
        _print_outcomes(f"suite {name}", [outcome], say)
        return [outcome]
    costs = wear.costs(plan, answer.disks)
    say(f"\nSUITE  {name}: " + ("" if costs else "the disks are taken in their present state"))
    for cost in costs:
        _print_wrapped("  wear", cost.sentences, say)
        if cost.reason and not target.lab:
            command = command_line("run", confirm=shlex.quote(cost.serial))
            _print_wrapped("  will ask", f"{command}, as {cost.reason}", say)
    written = past_durations.read_writes(suites_folder(), plan, survey.read_writes(target, plan))
    for sentence in wear.describe_writes(plan, answer.disks, written):
        _print_wrapped("  writes", sentence, say)
    try:
        needs.require_within_limits(plan, target.disks, wear.written(answer.disks), written)
    except AgentError as error:
        return [replace(refused(problem_of(error)), code="suite")]
    return []


def has_one_disk(target: TargetDocument) -> bool:
    """Return whether the target has all configurations of the suite `one-disk`."""
    required = load_suite(ONE_DISK).configurations
    return set(required) <= {entry.name for entry in target.configurations}


def _save(target: TargetDocument, answer: TargetAnswer) -> str:
    """Save the answer, so that provisioning refuses a disk that changed since; return the path."""
    path = write_record(
        "checks",
        target,
        fingerprints=answer.fingerprints,
        disks=[asdict(disk) for disk in answer.disks],
        facts=asdict(answer.facts),
        refused=[asdict(problem) for problem in answer.refused],
    )
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _size(count: int) -> str:
    return f"{count:,} bytes ({count / 1e9:,.1f} GB)"
