"""`fde check`: what would happen to a target, disk by disk; nothing is touched."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.system import quiet
from contract import schema
from contract.command_results import CheckResult, HostCheck
from contract.errors import AgentError, ControllerError
from contract.files import write_json
from contract.places import command_line, suites_folder
from contract.plan import TargetDocument
from controller.planning import wear
from controller.planning.suites import at_scale, load_suite
from controller.target import connection, first_writes, secrets
from controller.target import inventory as stacks
from controller.target import playbook as inventories
from controller.target.survey import Look, checks_file, look

FORMAT = "fde-check/1"
WIDTH = 100
LABEL = 12

Say = Callable[[str], None]


def run(path: Path, say: Say, *, suite: str | None = None, scale: str | None = None) -> CheckResult:
    """Print the page of every host of an inventory.

    Of a `suite` it is said what its preconditioning would cost each disk. Raises ControllerError
    where the inventory cannot be read at all.
    """
    say(f"CHECK of {path}: nothing is installed, no disk is touched.")
    inventory = inventories.resolve(path)
    hosts = [
        HostCheck(host, tuple(str(problem) for problem in problems))
        for host, problems in inventory.refused.items()
    ]
    for host, problems in inventory.refused.items():
        say(f"\nINVENTORY  {host}: refused; the target was not asked")
        for problem in problems:
            _lines("refused", str(problem), say)
    for target in inventory.targets:
        hosts.append(_one(target, say, suite, scale))
    say("")
    refusals = sum(len(host.refused) for host in hosts)
    if refusals:
        say(f"VERDICT  {refusals} failed, marked `refused` above. Nothing was touched.")
    else:
        say(
            "VERDICT  0 failed. Nothing was touched. "
            f"{command_line('provision', inventory=path)} does what is said above."
        )
    return CheckResult(not refusals, str(path), tuple(hosts))


def _one(target: Mapping[str, Any], say: Say, suite: str | None, scale: str | None) -> HostCheck:
    """The page of one host."""
    refusals = _inventory(target, say)
    say(f"\nTARGET  {target['host']} = {connection.link(target)}")
    try:
        answer = look(target, examine=True)
    except ControllerError as error:
        refusals.append(f"{error} The disks were not looked at.")
        _lines("refused", refusals[-1], say)
        answer = None
    if answer is not None:
        _machine(answer, say)
        for line in quiet.describe_disturbers(
            answer.disturbers or {}, target.get("quiet", {}).get("stop", ())
        ):
            _lines("quiet", line, say)
        for disk in answer.disks:
            _disk(disk, say)
        for new in first_writes.new_disks(target, answer.disks):
            way = command_line("provision", confirm=shlex.quote(new["serial"]))
            _lines("will ask", f"{way}, the first time", say)
        refusals += [_in_words(refusal) for refusal in answer.refused]
        refusals += _doctor(target, answer, say)
        if answer.error is None:
            say(f"\nsaved for fde provision: {_save(target, answer)}")
    say("\nCONFIGURATIONS")
    for line in stacks.table(target["configurations"]):
        say(f"  {line}")
    if suite is not None and answer is not None:
        refusals += _suite(target, answer, suite, scale, say)
    if not refusals and one_disk(target):
        way = command_line("run", suite="one-disk")
        say(f"\nSUITE  {way} answers first: the Opal disk compared with itself.")
    return HostCheck(target["host"], tuple(refusals), tuple(answer.disks if answer else ()))


def _doctor(target: Mapping[str, Any], answer: Look, say: Say) -> list[str]:
    """What else stands in the way of a suite, by the doctor's diagnoses of machine and meters."""
    from controller.target import doctor  # with it come the drivers: not for a target out of reach

    scene = doctor.examine(target, suites_folder(), answer=answer)
    blockers = doctor.blockers(doctor.diagnose(scene, doctor.BESIDE_CHECK))
    for one in blockers:
        _lines("refused", f"{one.sentence} {one.way_out}", say)
    return [one.sentence for one in blockers]


def _suite(
    target: Mapping[str, Any], answer: Look, name: str, scale: str | None, say: Say
) -> list[str]:
    """What a suite's preconditioning would cost each disk; the refusals."""
    from controller.planning.compiler import compile_plan  # NumPy: not for a page without a suite

    try:
        suite = at_scale(load_suite(name), scale)
        plan = compile_plan(name, suite, schema.read(TargetDocument, target), seed=0)
    except AgentError as error:
        _lines("refused", str(error), say)
        return [str(error)]
    costs = wear.costs(plan, answer.disks)
    say(f"\nSUITE  {name}: " + ("" if costs else "the disks are taken as they are"))
    for cost in costs:
        _lines("wear", cost.sentences, say)
        if cost.reason and not target.get("lab"):
            _lines(
                "will ask",
                f"{command_line('run', confirm=shlex.quote(cost.serial))}, as {cost.reason}",
                say,
            )
    return []


def one_disk(target: Mapping[str, Any]) -> bool:
    """Whether the suite `one-disk` can run: its configurations are there, on one disk."""
    wanted = load_suite("one-disk").configurations
    return set(wanted) <= {entry["name"] for entry in target["configurations"]}


def _inventory(target: Mapping[str, Any], say: Say) -> list[str]:
    """What the inventory says by itself, and whether the secrets are whole; the refusals."""
    say(f"\nINVENTORY  {target['host']}: its types and rules hold")
    database = target["database"]
    server = "the server that is installed" if database == "any" else database
    _lines("figures", f"{target['origin']}; sql on {server}", say)
    for meter in target["meters"]:
        channels = ", ".join(f"{key} = {name}" for key, name in meter["channels"].items())
        _lines("meter", f"{meter['name']}: {meter['kind']} at {meter['port']}; {channels}", say)
    for name, asset in target["assets"].items():
        known = "its sum is given" if asset["sha256"] else f"its sum is in {asset['sums']}"
        _lines("asset", f"{name}: {asset['path']}, {known}", say)
    refusals = []
    try:
        description = secrets.described(Path(target["secrets_file"]))
        _lines("secrets", f"{_short(target['secrets_file'])}: {description}", say)
    except ControllerError as error:
        _lines("refused", str(error), say)
        refusals = [str(error)]
    for role, disk in target["disks"].items():
        for label, text in _named(role, disk, target):
            _lines(label, text, say)
    return refusals


def _named(
    role: str, disk: Mapping[str, Any], target: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """What the inventory says of a disk."""
    yield f"disk {role}", disk["by_id"]
    yield "", f"serial {disk['serial']}, {_bytes(disk['size_bytes'])}"
    if disk["erase"] and " " in disk["erase"]:
        yield "", "WILL BE ERASED as long as it is as it was checked: `erase` gives that up"
    elif disk["erase"]:
        yield "", "WILL BE ERASED whatever lies on it: `erase` gives it up"
    else:
        yield "", "will be erased if it is empty or ours; refused if anything else lies on it"
    names = [entry["name"] for entry in target["configurations"] if entry["disk"] == role]
    yield "", f"carries {', '.join(names) or 'no configuration'}"


def _in_words(refusal: Mapping[str, Any]) -> str:
    return f"{refusal['sentence']} {refusal['remedy']}".strip()


def _machine(answer: Look, say: Say) -> None:
    facts = answer.facts
    opal = "with" if facts["hw_opal"] else "without"
    cryptsetup = f"cryptsetup {facts['cryptsetup']} {opal} Opal" if facts["cryptsetup"] else ""
    parts = [facts["name"], f"kernel {facts['kernel']}", f"Python {facts['python']}", cryptsetup]
    _lines("found", ", ".join(part for part in parts if part), say)
    missing = ", ".join(facts["missing"])
    _lines("packages", f"would install {missing}" if missing else "all there", say)
    for refusal in answer.refusals:
        _lines("refused", _in_words(refusal), say)
    if answer.error:
        way_out = " (provisioning installs them first)" if missing else ""
        _lines("refused", answer.error + way_out, say)


def _disk(disk: Mapping[str, Any], say: Say) -> None:
    """One disk as the agent found it."""
    say("")
    what = ", ".join(str(disk[key]) for key in ("model", "transport") if disk.get(key))
    _lines(f"disk {disk['role']}", f"{disk.get('path') or disk['by_id']}: {what or 'absent'}", say)
    if disk.get("size_bytes"):
        _lines("", f"serial {disk.get('serial')}, {_bytes(disk['size_bytes'])}", say)
    _lines("found", disk["found"], say)
    if life := wear.lifetime(**(disk.get("lifetime") or {})):
        _lines("", life, say)
    for refusal in disk["refusals"]:
        _lines("refused", _in_words(refusal), say)
        if allowed := refusal["facts"].get("allowed"):
            say(f"{'':14}erase: {allowed}")  # on one line, to be pasted
    if not disk["refusals"]:
        for action in disk["would"] or ["nothing is to be done: it is as it must be"]:
            _lines("would", action, say)


def _save(target: Mapping[str, Any], answer: Look) -> Path:
    """Keep what was seen, for provisioning to refuse a disk that has changed since."""
    place = checks_file(target)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_json(
        place,
        {
            "format": FORMAT,
            "host": target["host"],
            "checked_wall": datetime.now(UTC).isoformat(timespec="seconds"),
            "fingerprints": answer.fingerprints,
            "disks": answer.disks,
            "facts": answer.facts,
            "refused": answer.refused,
        },
    )
    return Path(_short(str(place)))


def _bytes(count: int) -> str:
    return f"{count:,} bytes ({count / 1e9:,.1f} GB)"


def _short(path: str) -> str:
    """A path as one would write it from here."""
    try:
        return str(Path(path).resolve().relative_to(Path.cwd()))
    except ValueError:
        return path


def _lines(label: str, text: str, say: Say) -> None:
    """A label and a text beside it, wrapped; a command in backquotes stays on one line."""
    unbroken = re.sub("`[^`]*`", lambda command: command[0].replace(" ", "\0"), text)
    wrapped: Sequence[str] = textwrap.wrap(
        unbroken, WIDTH - LABEL - 2, break_long_words=False, break_on_hyphens=False
    ) or [""]
    for line in wrapped:
        say(f"  {label:<{LABEL}}{line}".replace("\0", " ").rstrip())
        label = ""
