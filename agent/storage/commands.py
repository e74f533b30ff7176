"""The commands for disks and storage; each prints JSON and returns the exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from agent.storage import file_disk, inspect, mapping, proof, provision, secrets
from agent.storage.provision import Action
from agent.storage.stack import Entered, Stack, bare_after_internal_error
from agent.system import confinement, lock, quiet
from agent.system.command import listening
from contract import plan
from contract.errors import AgentError
from contract.files import json_text
from contract.plan import StorageSpec


def check(options: argparse.Namespace) -> int:
    """Print the disks; return 0 even if one is refused."""
    with lock.disks("check"):
        disks = inspect.check(plan.load_target(options.target))
        answer = {
            "disks": [asdict(disk) for disk in disks],
            "ok": not any(disk.refusals for disk in disks),
            "disturbers": quiet.disturbers(),
        }
        print(json_text(answer))
    return 0


def attach(options: argparse.Namespace) -> int:
    """Attach the disks that are files, as after a restart of the machine."""
    with lock.disks("attach"):
        _attach(plan.load_target(options.target))
    return 0


def _attach(spec: StorageSpec) -> None:
    for disk in spec.disks.values():
        if disk.file:
            file_disk.attach(disk)


def prepare(options: argparse.Namespace) -> int:
    """Prepare the disks as the target's description asks."""
    with lock.disks("prepare"):
        with _stack(options) as stack:
            actions = provision.prepare(
                stack.spec, stack.secrets, dry=options.check, checked=options.checked
            )
        allowed = [] if options.check else confinement.set_rule(allow=True)
        actions += [Action("confinement", None, sentence) for sentence in allowed]
        return _print_actions(actions)


def teardown(options: argparse.Namespace) -> int:
    """Give the disks back."""
    with lock.disks("teardown"), _stack(options) as stack:
        return _print_actions(
            provision.teardown(
                stack.spec, stack.secrets, dry=options.check, psid_revert=options.psid_revert
            )
        )


def _print_actions(actions: list[Action]) -> int:
    print(json_text({"changed": bool(actions), "actions": [asdict(action) for action in actions]}))
    return 0


@contextmanager
def _stack(options: argparse.Namespace) -> Iterator[Stack]:
    stack = Stack(plan.load_target(options.target), secrets.load(options.secrets))

    def show(clause: str) -> None:
        print(f"fde: {clause}.", file=sys.stderr, flush=True)

    with listening(show), bare_after_internal_error(stack):
        yield stack


def enter(options: argparse.Namespace) -> int:
    """Enter a configuration."""
    with lock.disks("storage enter"), _stack(options) as stack:
        _attach(stack.spec)
        entered = stack.enter(options.configuration)
        print(json_text(_summary(stack, entered)))
    return 0


def leave(options: argparse.Namespace) -> int:
    """Unmount, close and lock."""
    with lock.disks("storage leave"), _stack(options) as stack:
        changed = bool(mapping.devices())
        stack.leave()
        print(json_text({"changed": changed, "state": stack.state}))
    return 0


def prove(options: argparse.Namespace) -> int:
    """Enter and prove each configuration, printing one JSON line each; fail if any proof does.

    A read of each locked range is tried once, which may disturb a link: no run does that.
    """
    proven = True
    reads: dict[str, str | None] = {}
    with lock.disks("storage prove"), _stack(options) as stack:
        if options.storage not in (None, stack.spec.sha256):
            raise AgentError("other-inventory")
        _attach(stack.spec)
        try:
            for name in options.configurations or stack.spec.configurations:
                entered = stack.enter(name)
                evidence = proof.prove(entered, stack.secrets, stack.mount_point, f"prove-{name}")
                summary, serial = _summary(stack, entered), entered.place.disk.serial
                if entered.kind.range_state == "unlocked":
                    if serial not in reads:
                        stack.leave()
                        reads |= stack.locked_reads()
                    evidence = proof.with_locked_read(evidence, reads.get(serial))
                print(json_text({**summary, "proof": asdict(evidence)}), flush=True)
                proven = proven and evidence.ok
        finally:
            stack.leave()
    if not proven:
        raise AgentError("not-as-claimed")
    return 0


def _summary(stack: Stack, entered: Entered) -> dict[str, str | float]:
    return {
        "configuration": entered.configuration.name,
        "state": stack.state,
        "mount_point": str(stack.mount_point),
        "took_s": round(entered.took_s, 3),
        "mkfs_s": round(entered.mkfs_s, 3),
    }
