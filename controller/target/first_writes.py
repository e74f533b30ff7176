"""What is asked for by a disk's serial number: its first writing, and much of its life.

What was looked at is shown, and the serial given as CONFIRM or typed. A disk that carries the
testbed's mark, or what a teardown of it left, is asked for no more; a virtual lab's never. What
preconditioning takes of a disk's life is said before it begins, and asked where it is much.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from contract import names
from contract.errors import ControllerError
from contract.places import command_line
from controller.target import playbook as inventories
from controller.target.survey import look

Ask = Callable[[str], str]


def new_disks(
    target: Mapping[str, Any], disks: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Disks, as the agent found them, that would be written for the first time."""
    if target.get("lab"):
        return []
    return [disk for disk in disks if not disk["refusals"] and not disk["ours"]]


def unconfirmed(
    target: Mapping[str, Any], disks: Sequence[Mapping[str, Any]], confirmed: Collection[str]
) -> list[str]:
    """Why provisioning may not continue, one sentence for each disk."""
    return [
        f"{described(disk)}: all of that would be lost, and this testbed has not had the disk "
        "before; if that is wanted, say "
        f"{command_line('provision', confirm=shlex.quote(disk['serial']))} (several "
        "serials in quotes, with a space between)"
        for disk in new_disks(target, disks)
        if disk["serial"] not in confirmed
    ]


def described(disk: Mapping[str, Any]) -> str:
    """Path, model, serial, size and contents of a disk."""
    size = f"{disk['size_bytes']:,} bytes"
    model = f" {disk['model']}" if disk["model"] else ""
    return (
        f"disk {disk['role']}, {disk['path']}{model}, serial {disk['serial']}, {size}, holds: "
        f"{disk['found']}"
    )


def run(path: Path, confirmed: Sequence[str], ask: Ask | None) -> list[str]:
    """Serials that are confirmed for an inventory; `ask` types at a terminal, None without one.

    Raises ControllerError where one is not. What stands against a disk is for the play to say.
    """
    serials = set(confirmed)
    for host, disk in _waiting(inventories.resolve(path).targets, serials) if ask else ():
        assert ask is not None
        typed = ask(
            f"{host}: {described(disk)}\n"
            "ALL OF THAT WILL BE LOST. Type the serial number to continue: "
        )
        if typed.strip() != disk["serial"]:
            raise ControllerError(f"The serial of {disk['path']} was not typed: nothing was done.")
        serials.add(disk["serial"])
    return sorted(serials)


def _waiting(
    targets: Sequence[Mapping[str, Any]], confirmed: Collection[str]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for target in targets:
        if target.get("lab") or {d["serial"] for d in target["disks"].values()} <= set(confirmed):
            continue
        try:
            disks = look(target).disks
        except ControllerError:
            continue  # the play asks the same, and says why
        for disk in new_disks(target, disks):
            if disk["serial"] not in confirmed:
                yield target["host"], disk


def at_terminal(question: str) -> str:
    """An answer typed; the question does not go where standard output leads."""
    print(names.printable(question), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline()
