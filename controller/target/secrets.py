"""The secrets file on the controller, and its delivery into the target's memory."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contract import private
from contract.errors import ControllerError
from contract.names import sentence
from controller.target import connection, playbook

PLACE = "/run/fde-testbed/secrets/secrets.json"
NEEDED = ("luks_passphrase", "opal_admin_pin")
# Printed on the drive's label: kept here, and sent only for the reversal that needs it.
PSID = "sed_psid"
LEAST_CHARACTERS = 12
VAULT_MARK = b"$ANSIBLE_VAULT;"
_MOST_BYTES = 1 << 20
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
    return _parsed(path, _content(path))


def _content(path: Path) -> bytes:
    """The file's bytes; mode and owner are those of what was read, whatever its name leads to."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        with open(os.open(path, flags), "rb") as file:  # noqa: PTH123 - what was opened is judged
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ControllerError(f"The secrets {path} are not a file: name another one.")
            if status.st_uid != os.geteuid():
                raise ControllerError(
                    f"The secrets {path} belong to user {status.st_uid}, not to you. Make a "
                    "copy of your own, and chmod 600 it."
                )
            if status.st_mode & 0o077:
                raise ControllerError(f"{path} is open to other users: chmod 600 {path}")
            return file.read(_MOST_BYTES)
    except OSError as error:
        raise ControllerError(
            f"The secrets {path} cannot be read ({error.strerror}): write them as a JSON object of "
            f"{', '.join((*NEEDED, PSID))}, and chmod 600 it."
        ) from None


def _parsed(path: Path, content: bytes) -> dict[str, str]:
    encrypted = content.startswith(VAULT_MARK)
    if not encrypted and _tracked(path):
        raise ControllerError(
            f"{path} is kept by git, and with it by everybody who has a copy of the repository: "
            f"git rm --cached {path}, choose other secrets, or encrypt it (ansible-vault encrypt)."
        )
    try:
        document = json.loads(_decrypted(path, content) if encrypted else content)
    except ValueError:
        # The parser's message would quote the file.
        raise ControllerError(f"The secrets {path} are not JSON: correct them.") from None
    if not isinstance(document, dict):
        raise ControllerError(f"The secrets {path} are not a JSON object: correct them.")
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


def _decrypted(path: Path, content: bytes) -> bytes:
    program = Path(sys.executable).with_name("ansible-vault")
    with playbook.environment() as variables:
        done = subprocess.run(
            [str(program), "decrypt", "--output", "-", "-"],
            # What is on standard input is no password: that comes from a file or a program.
            input=content,
            capture_output=True,
            start_new_session=True,
            check=False,
            env=variables,
        )
    if done.returncode:
        raise ControllerError(
            f"{path} is encrypted, and no password opens it: name the file of the vault's password "
            "in the environment variable ANSIBLE_VAULT_PASSWORD_FILE."
        )
    return done.stdout


def described(path: Path) -> str:
    """Describe the secrets file once it is complete and no new secret in it is short.

    Raises ControllerError. `place` does not ask for the length: a drive that was owned with a
    short PIN must be given back with it.
    """
    private.no_core_dumps()
    content = _content(path)
    secrets = _parsed(path, content)
    for key in NEEDED:
        if len(secrets[key]) < LEAST_CHARACTERS:
            raise ControllerError(
                f"The secret {key} in {path} is too short: {len(secrets[key])} of at least "
                f"{LEAST_CHARACTERS} characters. Draw one with `openssl rand -hex 16`; give back a "
                "drive that was owned with the old one first."
            )
    vault = "encrypted with Ansible Vault, " if content.startswith(VAULT_MARK) else ""
    return f"mode 0600, {vault}with {', '.join(sorted(secrets))}"


def place(target: Mapping[str, Any], *, with_psid: bool = False) -> bool:
    """Put them into the target's memory for root alone; whether that changed anything."""
    secrets = load(Path(target["secrets_file"]))
    if with_psid and PSID not in secrets:
        raise ControllerError(
            f"The drive is to be reverted by its PSID, but {target['secrets_file']} has no {PSID}: "
            "copy it from the drive's label."
        )
    sent = {key: secrets[key] for key in (*NEEDED, *([PSID] if with_psid else []))}
    return _changed(target, ["sh", "-c", PUT], json.dumps(sent).encode())


def remove(target: Mapping[str, Any]) -> bool:
    """Take them off the target; whether there were any."""
    return _changed(target, ["sh", "-c", REMOVE], b"")


def _changed(target: Mapping[str, Any], command: Sequence[str], stdin: bytes) -> bool:
    return bool(connection.told(target, connection.run(target, command, stdin=stdin)).strip())


def main(arguments: Sequence[str] | None = None) -> int:
    """Check them here, place them there, or remove them; prints `changed` where it did so."""
    parser = ArgumentParser(prog="python -m controller.target.secrets", description=__doc__)
    parser.add_argument("action", choices=("check", "place", "remove"))
    parser.add_argument("--target", type=Path, required=True, help="the resolved target")
    parser.add_argument("--psid", action="store_true", help="the PSID, too")
    options = parser.parse_args(arguments)
    try:
        target = connection.read_target(options.target)
        changed = False
        if options.action == "check":
            described(Path(target["secrets_file"]))
        elif options.action == "place":
            changed = place(target, with_psid=options.psid)
        else:
            changed = remove(target)
    except ControllerError as error:
        print(f"fde: {sentence(str(error))}", file=sys.stderr)
        return 1
    if changed:
        print("changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
