"""`fde check`: the checks of a target, and what provisioning would do; nothing is touched."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from agent import needs
from contract.command_results import CheckOutcome, CheckResult
from contract.disks import DiskAnswer
from contract.errors import AgentError
from contract.places import command_line, suites_folder
from contract.plan import Disk, TargetDocument
from controller.planning import past_durations, wear
from controller.planning.suites import at_scale, load_suite
from controller.targets import doctor, first_writes, survey
from controller.targets import inventory as stacks
from controller.targets.doctor import Say, print_wrapped
from controller.targets.doctor.diagnosis import Scene, problem_of, refused
from controller.targets.survey import TargetAnswer, write_record

ONE_DISK = "one-disk"


def run(path: Path, say: Say, *, suite: str | None = None, scale: str | None = None) -> CheckResult:
    """Print the page of every host of an inventory.

    With a `suite` it has what that writes to each disk. Raises ControllerError
    where the inventory cannot be read at all.
    """
    say(f"CHECK of {path}: nothing is installed, no disk is touched.")
    hosts = []
    for host, scene in doctor.check_hosts(path, suites_folder(), say):
        outcomes = _print_scene(scene, suite, scale, say) if scene else []
        hosts.append(replace(host, ok=host.ok and not outcomes, checks=(*host.checks, *outcomes)))
        if scene and hosts[-1].ok and has_one_disk(scene.target):
            way = command_line("run", suite=ONE_DISK)
            say(f"\nSUITE  {way} answers first: the Opal disk compared with itself.")
    if all(host.ok for host in hosts):
        way = command_line("provision", inventory=path)
        say(f"\nNothing was touched. {way} does what is listed above.")
    else:
        say("\nNothing was touched. Correct what is marked FAIL, then run fde check again.")
    return CheckResult(all(host.ok for host in hosts), str(path), tuple(hosts))


def _print_scene(
    scene: Scene, suite: str | None, scale: str | None, say: Say
) -> list[CheckOutcome]:
    """Print what would happen to a host; return what its `suite` fails with."""
    target, answer = scene.target, scene.answer
    _print_disks(target, answer, say)
    if answer and answer.error is None:
        say(f"\nsaved for fde provision: {_save(target, answer)}")
    say("\nCONFIGURATIONS")
    for line in stacks.table(target.configurations):
        say(f"  {line}")
    return _check_suite(scene, suite, scale, say) if suite and answer else []


def _print_disks(target: TargetDocument, answer: TargetAnswer | None, say: Say) -> None:
    """Print each disk as the inventory names it, as it was found, and what would be done."""
    by_role = {disk.role: disk for disk in answer.disks} if answer else {}
    for role, named in target.disks.items():
        say("")
        for label, text in _describe_named(role, named, target):
            print_wrapped(f"  {label}", text, say)
        for disk in [by_role[role]] if role in by_role else []:
            for label, text in _describe_answer(disk):
                print_wrapped(f"  {label}", text, say)
            for problem in disk.refusals:
                if "allowed" in problem.facts:
                    say(f"{'':{doctor.LABEL}}erase: {problem.facts['allowed']}")  # to be pasted
            if disk in first_writes.new_disks(target, [disk]):
                way = command_line("provision", confirm=shlex.quote(disk.serial or ""))
                print_wrapped("  will ask", f"{way}, the first time", say)


def _describe_named(role: str, disk: Disk, target: TargetDocument) -> Iterator[tuple[str, str]]:
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
    kind = ", ".join(text for text in (disk.model, disk.transport) if text)
    yield "found", f"{disk.path or 'absent'}: {kind}" if kind else disk.path or "absent"
    if disk.size_bytes:
        yield "", f"serial {disk.serial}, {_size(disk.size_bytes)}"
    yield "", disk.found
    if disk.lifetime and (life := wear.lifetime(**asdict(disk.lifetime))):
        yield "", life
    if not disk.refusals:
        yield from (("would", step) for step in disk.would or ["nothing: it is as it must be"])


def _check_suite(scene: Scene, name: str, scale: str | None, say: Say) -> list[CheckOutcome]:
    """Print what a suite and its preconditioning write; return why the suite has no plan."""
    from controller.planning.compiler import compile_plan  # NumPy: not for a page without a suite

    target, answer = scene.target, scene.answer
    assert answer is not None
    try:
        plan = compile_plan(name, at_scale(load_suite(name), scale), target, seed=0)
    except AgentError as error:
        outcome = replace(refused(problem_of(error)), code="suite")
        doctor.print_outcomes(f"suite {name}", [outcome], say)
        return [outcome]
    costs = wear.costs(plan, answer.disks)
    say(f"\nSUITE  {name}: " + ("" if costs else "the disks are taken in their present state"))
    for cost in costs:
        print_wrapped("  wear", cost.sentences, say)
        if cost.reason and not target.lab:
            way = command_line("run", confirm=shlex.quote(cost.serial))
            print_wrapped("  will ask", f"{way}, as {cost.reason}", say)
    written = past_durations.read_writes(suites_folder(), plan, survey.read_writes(target, plan))
    for sentence in wear.describe_writes(plan, answer.disks, written):
        print_wrapped("  writes", sentence, say)
    try:
        needs.require_within_limits(plan, target.disks, wear.written(answer.disks), written)
    except AgentError as error:
        return [replace(refused(problem_of(error)), code="suite")]
    return []


def has_one_disk(target: TargetDocument) -> bool:
    """Whether the suite `one-disk` can run: its configurations are named, on one disk."""
    wanted = load_suite(ONE_DISK).configurations
    return set(wanted) <= {entry.name for entry in target.configurations}


def _save(target: TargetDocument, answer: TargetAnswer) -> str:
    """Keep the answer, for provisioning to refuse a disk that has changed since; return where."""
    place = write_record(
        "checks",
        target,
        fingerprints=answer.fingerprints,
        disks=[asdict(disk) for disk in answer.disks],
        facts=asdict(answer.facts),
        refused=[asdict(problem) for problem in answer.refused],
    )
    try:
        return str(place.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(place)


def _size(count: int) -> str:
    return f"{count:,} bytes ({count / 1e9:,.1f} GB)"
