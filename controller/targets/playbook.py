"""Plays of Ansible, their events as JSON; an inventory resolved by one of them."""

from __future__ import annotations

import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from configparser import ConfigParser
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from contract import schema
from contract.errors import ControllerError
from contract.files import write_json
from contract.names import unknown_name
from contract.places import ANSIBLE, SHARE, build_folder, python_path
from contract.plan import TargetDocument, read_target
from contract.private import PASSWORD_FILE
from contract.problem import Problem
from contract.strict_json import Document
from controller.planning.known_names import inventories_beside
from controller.targets import connection

log = logging.getLogger(__name__)
PLAYBOOKS = ANSIBLE / "playbooks"
# Of each of Ansible's processes, most of it for its own modules.
MOST_MEMORY_BYTES = 2 << 30
MOST_FETCHED_BYTES = 1 << 30
# Where Ansible looks for collections: inventories may need plugins of the user's.
_COLLECTIONS = ("~/.ansible/collections", "/usr/share/ansible/collections")


@dataclass(frozen=True)
class Inventory:
    """Resolved targets, and problems by host where the inventory was refused."""

    targets: Sequence[TargetDocument]
    refused: Mapping[str, Sequence[Problem]] = field(default_factory=dict)


def resolve(path: Path) -> Inventory:
    """Play resolve.yml; raises ControllerError where there is no such inventory, or none at all."""
    if not path.exists():
        known = inventories_beside(path)
        raise ControllerError(
            unknown_name("inventory", str(path), known)
            if known
            else f"The inventory {path} was not found. Copy ansible/inventory/hardware.example."
        )
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        play = _play(["--inventory", str(path), str(PLAYBOOKS / "resolve.yml")], output)
        output.seek(0)
        output_text = output.read()
    refused = {
        failure.host: failure.problems
        or [Problem("type", {}, f"{reason.rstrip('.')}.") for reason in failure.reasons]
        for failure in play.failures
    }
    hosts = [host for host, count in play.counts.items() if not count["failures"]]
    if not hosts and not refused:
        raise ControllerError("ansible-refuses", path=path, output=_first_complaint(output_text))
    return Inventory([play.targets[host] for host in hosts], refused)


def _first_complaint(text: str) -> str:
    """Return the first complaint of an Ansible that played nothing.

    A file that is not UTF-8 causes the complaints after it; then errors count most.
    """
    lines = [line for line in text.splitlines() if "warnings can be disabled" not in line]
    words = ("decoded as", "ERROR", "WARNING")
    matches = (line for word in words for line in lines if word in line)
    return next(matches, "it names no host in the group `targets`.")


@contextmanager
def environment() -> Iterator[dict[str, str]]:
    """Yield the environment of Ansible's programs, as long as this context is open.

    The user's settings for other plays (callbacks, strategies) are left out, except how a vault is
    opened, sudo's password, and where collections are. Open connections and resolved targets are
    in a folder of this play alone, which is removed afterwards: another may have a host of the same
    name. A home directory is not needed.
    Ansible insists on a locale of UTF-8.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ANSIBLE_")
        or name.startswith("ANSIBLE_VAULT_")
        or name == PASSWORD_FILE
    }
    settings = ConfigParser(interpolation=None)
    settings.read(ANSIBLE / "ansible.cfg", encoding="utf-8")
    ssh_args = settings["ssh_connection"]["ssh_args"]
    strict = [f"-o {each}" for each in connection.strict_options() if each not in ssh_args]
    collections = os.environ.get("ANSIBLE_COLLECTIONS_PATH") or os.pathsep.join(_COLLECTIONS)
    with tempfile.TemporaryDirectory(prefix="fde-cp-") as folder:
        yield {
            **kept,
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": os.pathsep.join([str(SHARE), collections]),
            "ANSIBLE_HOME": folder,
            "ANSIBLE_SSH_CONTROL_PATH_DIR": folder,
            "ANSIBLE_SSH_ARGS": " ".join([*strict, ssh_args]),
            "FDE_BUILD": str(build_folder().absolute()),
            "FDE_TARGETS": str(Path(folder) / "targets"),
            "PYTHONPATH": python_path(),
            "PYTHONSAFEPATH": "1",
        }


@dataclass(frozen=True)
class PlayFailure:
    """A task that failed on a host; one of ours has its `problems`."""

    host: str
    task: str
    reasons: tuple[str, ...]
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class Play:
    """A play as the callback plugin `fde_events` reported it; failures are oldest first.

    `counts` are Ansible's of each host's tasks, `targets` the resolved targets by host.
    """

    code: int
    counts: Mapping[str, Mapping[str, int]]
    failures: Sequence[PlayFailure]
    targets: Mapping[str, TargetDocument]


def _play(
    arguments: Sequence[str],
    output: IO[str] | None,
    target: TargetDocument | None = None,
    most_bytes: int | None = None,
) -> Play:
    """Run ansible-playbook to its end, its text for people in `output`.

    `target` is the resolved target of a play that does not resolve its inventory; `most_bytes` is
    how long a file may be that comes from a target, whose answers are then bounded, too.
    """

    def bound() -> None:
        if most_bytes is None:
            return
        limits = (resource.RLIMIT_FSIZE, most_bytes), (resource.RLIMIT_DATA, MOST_MEMORY_BYTES)
        for limit, most in limits:
            _, hard = resource.getrlimit(limit)
            allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(limit, (allowed, hard))

    alone = {"ANSIBLE_NOCOLOR": "1"} if output else {}
    program = Path(sys.executable).with_name("ansible-playbook")
    with environment() as variables, tempfile.NamedTemporaryFile() as events:
        folder = Path(variables["FDE_TARGETS"])
        folder.mkdir()
        if target is not None:
            write_json(folder / f"{target.host}.json", target.document(), sync=False)
        try:
            done = subprocess.run(
                [str(program), *arguments],
                env={**variables, **alone, "FDE_ANSIBLE_EVENTS": events.name},
                stdin=subprocess.DEVNULL if output else None,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=bound,
                check=False,
            )
        except FileNotFoundError:
            raise ControllerError("ansible-missing", program=program) from None
        lines = [json.loads(line) for line in events.read().splitlines()]
        targets = [read_target(path) for path in folder.glob("*.json")]
    counts = [line["hosts"] for line in lines if line["event"] == "stats"]
    return Play(
        done.returncode,
        counts[0] if counts else {},
        [schema.read(PlayFailure, line) for line in lines if line["event"] == "failure"],
        {resolved.host: resolved for resolved in targets},
    )


def suite(
    tag: str,
    *,
    inventory: Path,
    target: TargetDocument,
    output_file: Path,
    variables: Document,
    most_bytes: int = MOST_FETCHED_BYTES,
) -> None:
    """Play suite.yml with one tag (`start`, `fetch`) on one host. Raises ControllerError.

    No file that comes from there is longer than `most_bytes`, unless it is this machine.
    """
    host = target.host
    arguments = ["--inventory", str(inventory), "--limit", host, "--tags", tag]
    arguments += ["--extra-vars", json.dumps(variables), str(PLAYBOOKS / "suite.yml")]
    log.info("ansible %s on %s begins, its output in %s", tag, host, output_file)
    with output_file.open("w", encoding="utf-8") as output:
        play = _play(arguments, output, target, None if target.ssh is None else most_bytes)
    log.info("ansible %s on %s ended with %d: %s", tag, host, play.code, dict(play.counts))
    if play.code:
        failures = [f"{each.task}: {'; '.join(each.reasons)}" for each in play.failures]
        reason = " ".join(failures) or _first_complaint(
            output_file.read_text(encoding="utf-8", errors="replace")
        )
        raise ControllerError(
            "ansible-failed",
            tag=tag,
            host=host,
            cause=next((each.code for failure in play.failures for each in failure.problems), None),
            reason=" ".join(reason.split()),
            output_file=output_file,
        )


def run(name: str, inventory: Path, variables: Document) -> bool:
    """Play our `name` on all hosts of an inventory, in this terminal; whether all went well."""
    arguments = ["--inventory", str(inventory), "--extra-vars", json.dumps(variables)]
    return _play([*arguments, str(PLAYBOOKS / name)], None).code == 0
