"""Runs of ansible-playbook with their events as JSON, and inventories that one resolves."""

from __future__ import annotations

import json
import logging
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from contract import bounded, installation, schema
from contract.errors import ControllerError
from contract.files import write_json
from contract.names import unknown_name
from contract.places import ANSIBLE, SHARE, build_folder, python_path
from contract.plan import TargetDocument, read_target
from contract.private import PASSWORD_FILE
from contract.problem import Problem, wordings_of
from contract.strict_json import Document
from controller.targets.inventory_files import InventoryFiles

log = logging.getLogger(__name__)
PLAYBOOKS = ANSIBLE / "playbooks"
ROLE_DEFAULTS = ANSIBLE / "roles" / "target_spec" / "defaults" / "main.yml"
# Limit for each process of Ansible, which needs most of it for its modules.
MOST_MEMORY_BYTES = 2 << 30
# A socket's path has at most 107 bytes; our folder, Ansible's name and ssh's suffix take 44.
MOST_FOLDER_BYTES = 60
# Ansible's default paths of collections: inventories may need the user's plugins.
_COLLECTIONS = ("~/.ansible/collections", "/usr/share/ansible/collections")


@dataclass(frozen=True)
class Inventory:
    """The resolved targets, and the problems of each host that was refused."""

    targets: Sequence[TargetDocument]
    refused: Mapping[str, Sequence[Problem]] = field(default_factory=dict)


def resolve(path: Path) -> Inventory:
    """Resolve an inventory by resolve.yml; raises ControllerError if Ansible cannot read it."""
    files = InventoryFiles(path)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        play = _play(["--inventory", str(path), str(PLAYBOOKS / "resolve.yml")], output)
        output.seek(0)
        output_text = output.read()
    files.refuse_unread(play.owners)
    refused = {
        failure.host: [
            files.located(problem, failure.host)
            for problem in failure.problems or map(_problem_of_reason, failure.reasons)
        ]
        for failure in play.failures
    }
    hosts = [host for host, count in play.counts.items() if not count["failures"]]
    if not hosts and not refused:
        raise ControllerError("ansible-refuses", path=path, output=_first_complaint(output_text))
    return Inventory([play.targets[host] for host in hosts], refused)


def _problem_of_reason(reason: str) -> Problem:
    """Return the problem of a variable whose reason of refusal is Ansible's own sentence."""
    supported = r"(fde_[\w.]+)\.(\w+)\. Supported parameters include: (.+?)\.?$"
    if match := re.match(supported, reason):
        problem = unknown_name(f"key of {match[1]}", match[2], match[3].split(", "))
        return replace(problem, facts={**problem.facts, "variable": f"{match[1]}.{match[2]}"})
    if match := re.search(r"processing keyword '(\w+)': The value '(.*?)' could", reason):
        sentence = f"ansible_{match[1]} is {match[2]!r}."
        return Problem("type", {"variable": f"ansible_{match[1]}"}, sentence, "Correct it.")
    absent = r"missing required arguments: (fde_\w+(?:, fde_\w+)*)$|'(fde_\w+)' is undefined"
    if match := re.search(absent, reason):
        facts = {"variable": match[1] or match[2]}
        wordings = wordings_of("controller/targets", "inventory")
        return Problem.from_wording(wordings, "missing", facts)
    variable = re.search(r"\b(?:fde|ansible)_\w+", reason)
    facts = {"variable": variable[0]} if variable else {}
    words = re.sub(r"^(Task failed: )?(Error processing keyword '\w+': )?|: <class .*", "", reason)
    return Problem("type", facts, f"{words.rstrip('.')}.")


def program(name: str) -> list[str]:
    """Return the command of one of Ansible's programs, as this Python has it.

    A script `ansible-playbook` may be of another installation, elsewhere, or of a moved one.
    Raises ControllerError without Ansible.
    """
    if find_spec("ansible") is None:
        raise ControllerError("ansible-missing", remedy=installation.install("ansible-core"))
    return [sys.executable, "-P", "-m", "ansible", name]


def _first_complaint(text: str) -> str:
    """Return the most relevant line of the output of an Ansible that ran no task.

    The plugin `auto` complains about any inventory that is for another plugin.
    """
    lines = [line for line in text.splitlines() if "no root 'plugin' key" not in line]
    words = ("parse inventory with", "ERROR", "parse")
    matches = (line for word in words for line in lines if word in line)
    source = re.search("failed to parse inventory source (.+)", text)
    complaint = next(matches, "it names no host in the group `targets`.")
    return f"{source[1]}: {complaint}" if source else complaint


def _short_folder() -> str:
    """Return a folder for temporary files whose path leaves room for the names of ssh's sockets."""
    usual = tempfile.gettempdir()
    folders = (usual, os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp", "/dev/shm")
    short = (folder for folder in folders if 0 < len(os.fsencode(folder)) <= MOST_FOLDER_BYTES)
    return next((folder for folder in short if os.access(folder, os.W_OK | os.X_OK)), usual)


@contextmanager
def environment() -> Iterator[dict[str, str]]:
    """Yield the environment variables of Ansible's programs, with a folder for this play.

    Of the user's settings of Ansible only those of vaults, collections and sudo's password apply.
    The folder holds open connections and resolved targets, because another play may have a host of
    the same name; it is removed afterwards. Ansible requires a locale of UTF-8, but no home.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ANSIBLE_")
        or name.startswith("ANSIBLE_VAULT_")
        or name == PASSWORD_FILE
    }
    collections = os.environ.get("ANSIBLE_COLLECTIONS_PATH") or os.pathsep.join(_COLLECTIONS)
    with tempfile.TemporaryDirectory(prefix="fde-cp-", dir=_short_folder()) as folder:
        yield {
            **inherited,
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": os.pathsep.join([str(SHARE), collections]),
            "ANSIBLE_HOME": folder,
            "ANSIBLE_SSH_CONTROL_PATH_DIR": folder,
            "FDE_BUILD": str(build_folder().absolute()),
            "FDE_TARGETS": str(Path(folder) / "targets"),
            "PYTHONPATH": python_path(),
            "PYTHONSAFEPATH": "1",
        }


@dataclass(frozen=True)
class PlayFailure:
    """A task that failed on a host; `problems` are those of a task of this project."""

    host: str
    task: str
    reasons: tuple[str, ...]
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class Play:
    """The result of a play as the callback plugin `fde_events` reports it.

    `counts` are Ansible's counts of tasks by host and state, `failures` are in order of time,
    `targets` are the resolved targets by host, `owners` all groups and hosts of the inventory by
    the folder of their variables, if the play began.
    """

    code: int
    counts: Mapping[str, Mapping[str, int]]
    failures: Sequence[PlayFailure]
    targets: Mapping[str, TargetDocument]
    owners: Mapping[str, Sequence[str]]


def _play(
    arguments: Sequence[str],
    output: IO[str] | None,
    target: TargetDocument | None = None,
    most_bytes: int | None = None,
) -> Play:
    """Run ansible-playbook and return its result; its text goes to `output`, or the terminal.

    `target` is the resolved target of a play that does not resolve its inventory. `most_bytes`
    limits the size of files that Ansible writes; with it, memory is limited, too.
    """
    limits = {}
    if most_bytes is not None:
        limits = {resource.RLIMIT_FSIZE: most_bytes, resource.RLIMIT_DATA: MOST_MEMORY_BYTES}
    plain_text = {"ANSIBLE_NOCOLOR": "1"} if output else {}
    with environment() as variables, tempfile.NamedTemporaryFile() as events:
        folder = Path(variables["FDE_TARGETS"])
        folder.mkdir()
        if target is not None:
            write_json(folder / f"{target.host}.json", target.document(), sync=False)
        result = subprocess.run(
            [*program("playbook"), *arguments],
            env={**variables, **plain_text, "FDE_ANSIBLE_EVENTS": events.name},
            stdin=subprocess.DEVNULL if output else None,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: bounded.lower_limits(limits),
            check=False,
        )
        lines = [json.loads(line) for line in events.read().splitlines()]
        targets = [read_target(path) for path in folder.glob("*.json")]
    counts = [line["hosts"] for line in lines if line["event"] == "stats"]
    return Play(
        result.returncode,
        counts[0] if counts else {},
        [schema.read(PlayFailure, line) for line in lines if line["event"] == "failure"],
        {resolved.host: resolved for resolved in targets},
        next((line["owners"] for line in lines if line["event"] == "play"), {}),
    )


def suite(
    tag: str,
    *,
    inventory: Path,
    target: TargetDocument,
    output_file: Path,
    variables: Document,
    most_bytes: int,
) -> None:
    """Play suite.yml with the tag `start` or `fetch` on one host; raises ControllerError.

    A file fetched from another machine has at most `most_bytes`.
    """
    host = target.host
    arguments = ["--inventory", str(inventory), "--limit", host, "--tags", tag]
    arguments += ["--extra-vars", json.dumps(variables), str(PLAYBOOKS / "suite.yml")]
    log.info("ansible %s on %s begins, its output in %s", tag, host, output_file)
    with output_file.open("w", encoding="utf-8") as output:
        play = _play(arguments, output, target, None if target.ssh is None else most_bytes)
    log.info("ansible %s on %s ended with %d: %s", tag, host, play.code, dict(play.counts))
    if play.code:
        raise ControllerError(
            "ansible-failed",
            tag=tag,
            host=host,
            cause=next((p.code for failure in play.failures for p in failure.problems), None),
            reason=_reason(play, output_file),
            output_file=output_file,
        )


def _reason(play: Play, output_file: Path) -> str:
    """Return why a play failed, on one line."""
    failures = [f"{failure.task}: {'; '.join(failure.reasons)}" for failure in play.failures]
    text = output_file.read_text(encoding="utf-8", errors="replace")
    return " ".join((" ".join(failures) or _first_complaint(text)).split())


def into_log(name: str, inventory: Path, variables: Document, output_file: Path) -> None:
    """Run the playbook `name` with its assets, its output appended to a file.

    Raises ControllerError with the problems or reasons of what failed.
    """
    arguments = ["--inventory", str(inventory), "--extra-vars", json.dumps(variables)]
    arguments += ["--tags", "all,assets", str(PLAYBOOKS / name)]
    with output_file.open("a", encoding="utf-8") as output:
        play = _play(arguments, output)
    if problems := [problem for failure in play.failures for problem in failure.problems]:
        raise ControllerError(*problems)
    if play.code:
        raise ControllerError(_reason(play, output_file))


def run(name: str, inventory: Path, variables: Document) -> bool:
    """Run the playbook `name` on an inventory in this terminal; return whether it succeeded."""
    InventoryFiles(inventory)
    arguments = ["--inventory", str(inventory), "--extra-vars", json.dumps(variables)]
    return _play([*arguments, str(PLAYBOOKS / name)], None).code == 0
