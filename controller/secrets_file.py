"""The secrets: checked on the controller, and put into the target's memory without leaving a trace.

They go through standard input of ssh into a file on ramfs: no command line, no variable of Ansible,
no temporary file on either side's disk.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contract import private
from contract.errors import ControllerError
from controller import guessing, remote

PLACE = "/run/fde-testbed/secrets/secrets.json"
NEEDED = ("luks_passphrase", "opal_admin_pin")
# Printed on the drive's label: kept here, and sent only for the reversal that needs it.
PSID = "sed_psid"
VAULT_MARK = b"$ANSIBLE_VAULT;"
_FOLDER = Path(PLACE).parent
# The folder above can be passed, not read: a database server must reach its data below it. ramfs,
# for what lies on a tmpfs is swapped out like any memory.
PUT = (
    f"umask 077; d={_FOLDER}; mkdir -p $d && chmod 711 {_FOLDER.parent} && "
    "{ mountpoint -q $d || mount -t ramfs -o mode=700,nosuid,nodev,noexec ramfs $d; } && "
    "n=$(mktemp $d/.new.XXXXXX) && cat >$n && "
    f"if cmp -s $n {PLACE}; then rm $n; else mv $n {PLACE} && echo changed; fi"
)
# A link that broke may have left half a file. What is unmounted here is gone for everybody.
REMOVE = (
    f"d={_FOLDER}; if [ -e {PLACE} ]; then rm {PLACE} && echo changed; fi; rm -f $d/.new.*; "
    "if mountpoint -q $d; then umount $d; fi"
)


def load(path: Path) -> dict[str, str]:
    """The secrets, decrypted where they are an Ansible Vault; raises ControllerError, without any
    of them in its words."""
    private.no_core_dumps()
    try:
        mode = path.stat().st_mode
        content = path.read_bytes()
    except OSError as error:
        raise ControllerError(
            f"The secrets {path} cannot be read ({error.strerror}): write them as a JSON object of "
            f"{', '.join((*NEEDED, PSID))}, and chmod 600 it."
        ) from None
    if mode & 0o077:
        raise ControllerError(f"{path} is open to other users: chmod 600 {path}")
    encrypted = content.startswith(VAULT_MARK)
    if not encrypted and _tracked(path):
        raise ControllerError(
            f"{path} is kept by git, and with it by everybody who has a copy of the repository: "
            f"git rm --cached {path}, choose other secrets, or encrypt it (ansible-vault encrypt)."
        )
    try:
        document = json.loads(_decrypted(path) if encrypted else content)
    except ValueError:
        # The parser's message would quote the file.
        raise ControllerError(f"The secrets {path} are not JSON: mend them.") from None
    if not isinstance(document, dict):
        raise ControllerError(f"The secrets {path} are not a JSON object: mend them.")
    return _whole(document, path)


def _whole(document: Mapping[str, Any], path: Path) -> dict[str, str]:
    unknown = sorted(set(document) - {*NEEDED, PSID})
    if unknown:
        raise ControllerError(
            f"There is no secret called {unknown[0]} (in {path}): there are "
            f"{', '.join((*NEEDED, PSID))}."
        )
    for key in (*NEEDED, *([PSID] if document.get(PSID) else [])):
        value = document.get(key)
        if not isinstance(value, str) or not value or "\n" in value:
            raise ControllerError(f"The secret {key} in {path} is missing or not one line: set it.")
    return {key: value for key, value in document.items() if value}


def _tracked(path: Path) -> bool:
    """Whether git keeps the file, or would with the next commit."""
    try:
        done = subprocess.run(
            ["git", "-C", str(path.parent), "ls-files", "--error-unmatch", path.name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except OSError:  # no git, so no repository of its
        return False
    return done.returncode == 0


def _decrypted(path: Path) -> bytes:
    program = Path(sys.executable).with_name("ansible-vault")
    done = subprocess.run(
        [str(program), "view", str(path)],
        # A prompt for the password would hang where nobody sits: it comes from a file or a program.
        stdin=subprocess.DEVNULL,
        capture_output=True,
        start_new_session=True,
        check=False,
        env={**os.environ, "PAGER": "cat"},
    )
    if done.returncode:
        raise ControllerError(
            f"{path} is encrypted, and no password opens it: name the file of the vault's password "
            "in the environment variable ANSIBLE_VAULT_PASSWORD_FILE."
        )
    return done.stdout


def described(path: Path) -> str:
    """What can be told of the file once it is found to be whole, and hard to guess.

    Raises ControllerError. What is placed later is not judged again: a drive that was owned with
    another PIN must be given back with it.
    """
    found = load(path)
    for key, guesser in zip(NEEDED, (guessing.OFFLINE, guessing.AT_THE_DRIVE), strict=True):
        if weak := guessing.weakness(f"The secret {key} in {path}", found[key], guesser):
            raise ControllerError(f"{weak}; a drive that was owned before is given back first.")
    vault = "encrypted with Ansible Vault, " if path.read_bytes().startswith(VAULT_MARK) else ""
    return f"mode 0600, {vault}with {', '.join(sorted(found))}"


def place(target: Mapping[str, Any], *, with_psid: bool = False) -> bool:
    """Put them into the target's memory for root alone; whether that changed anything."""
    found = load(Path(target["secrets_file"]))
    if with_psid and PSID not in found:
        raise ControllerError(
            f"The drive is to be reverted by its PSID, but {target['secrets_file']} has no {PSID}: "
            "copy it from the drive's label."
        )
    sent = {key: found[key] for key in (*NEEDED, *([PSID] if with_psid else []))}
    return _changed(target, ["sh", "-c", PUT], json.dumps(sent).encode())


def remove(target: Mapping[str, Any]) -> bool:
    """Take them off the target; whether there were any."""
    return _changed(target, ["sh", "-c", REMOVE], b"")


def _changed(target: Mapping[str, Any], command: Sequence[str], stdin: bytes) -> bool:
    done = remote.run(target, command, stdin=stdin)
    if done.returncode:
        raise ControllerError(remote.why(target, done))
    return bool(done.stdout.strip())


def main(arguments: Sequence[str] | None = None) -> int:
    """Check them here, place them there, or remove them; prints `changed` where it did so."""
    parser = ArgumentParser(prog="python -m controller.secrets_file", description=__doc__)
    parser.add_argument("action", choices=("check", "place", "remove"))
    parser.add_argument("--target", type=Path, required=True, help="the resolved target")
    parser.add_argument("--psid", action="store_true", help="the PSID, too")
    options = parser.parse_args(arguments)
    try:
        target = remote.read_target(options.target)
        changed = False
        if options.action == "check":
            described(Path(target["secrets_file"]))
        elif options.action == "place":
            changed = place(target, with_psid=options.psid)
        else:
            changed = remove(target)
    except ControllerError as error:
        print(f"fde: {error}", file=sys.stderr)
        return 1
    if changed:
        print("changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
