"""Consent to the first write to a disk, by its serial number.

The contents are shown, and the serial is given as CONFIRM or typed. No consent is needed for a disk
that carries the testbed's mark or was left by a teardown, nor for the disks of a virtual lab.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from contract import names
from contract.disks import DiskAnswer
from contract.errors import ControllerError
from contract.places import command_line
from contract.plan import TargetDocument
from contract.problem import Problem
from controller.targets import playbook
from controller.targets.survey import look

Ask = Callable[[str], str]


def new_disks(target: TargetDocument, disks: Sequence[DiskAnswer]) -> list[DiskAnswer]:
    """Return the disks that would be written for the first time."""
    if target.lab:
        return []
    return [disk for disk in disks if not disk.refusals and not disk.ours]


def unconfirmed(
    target: TargetDocument, disks: Sequence[DiskAnswer], confirmed: Collection[str]
) -> list[Problem]:
    """Return a problem for each disk whose first write was not confirmed."""
    wordings = ControllerError.wordings()
    return [
        Problem.from_wording(
            wordings,
            "disk-unconfirmed",
            {
                "disk": disk.role,
                "serial": disk.serial,
                "description": describe(disk),
                "command": command_line("provision", confirm=shlex.quote(disk.serial or "")),
            },
        )
        for disk in new_disks(target, disks)
        if disk.serial not in confirmed
    ]


def describe(disk: DiskAnswer) -> str:
    """Describe a disk by its path, model, serial, size and contents."""
    model = f" {disk.model}" if disk.model else ""
    return (
        f"disk {disk.role}, {disk.path}{model}, serial {disk.serial}, {disk.size_bytes:,} bytes, "
        f"holds: {disk.found}"
    )


def run(path: Path, confirmed: Sequence[str], ask: Ask) -> list[str]:
    """Ask for the serial of each unconfirmed new disk; return all confirmed serials, sorted.

    Raises ControllerError if another text is typed. Refusals of a disk are left to the play.
    """
    serials = set(confirmed)
    for target in playbook.resolve(path).targets:
        if target.lab or {disk.serial for disk in target.disks.values()} <= serials:
            continue
        try:
            disks = look(target).disks
        except ControllerError:
            continue  # the play fails in the same way and reports the reason
        for disk in new_disks(target, disks):
            if disk.serial is None or disk.serial in serials:
                continue
            typed = ask(
                f"{target.host}: {describe(disk)}\n"
                "ALL OF THAT WILL BE LOST. Type the serial number to continue: "
            )
            if typed.strip() != disk.serial:
                raise ControllerError("first-serial-not-typed", disk=disk.path)
            serials.add(disk.serial)
    return sorted(serials)


def at_terminal(question: str) -> str:
    """Ask at the terminal; the question goes to standard error."""
    print(names.printable(question), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline()
