"""The secrets file on the controller, and its delivery into the target's memory."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from contract import private, schema
from contract.errors import ControllerError
from contract.git import ask_git
from contract.plan import TargetDocument
from contract.problem import wordings_of
from controller.targets import connection, playbook

PLACE = "/run/fde-testbed/secrets/secrets.json"
NEEDED = ("luks_passphrase", "opal_admin_pin")
# From the drive's label. It stays on the controller, except for a teardown that needs it.
PSID = "sed_psid"
KEYS = (*NEEDED, PSID)
# The agent accepts the same: labels print it in groups, and people type lower-case letters.
PSID_FORM = re.compile(r"[\s-]*([A-Za-z0-9][\s-]*){32}", re.ASCII)
LEAST_CHARACTERS, LEAST_DIFFERENT = 12, 6
VAULT_MARK = b"$ANSIBLE_VAULT;"
_MOST_BYTES = 1 << 20
_FOLDER = Path(PLACE).parent
# Mode 711 of the parent folder lets a database server reach its data below it. The secrets are on a
# ramfs, because the memory of a tmpfs may be swapped out.
PUT = (
    f"umask 077; d={_FOLDER}; mkdir -p $d && chmod 711 {_FOLDER.parent} && "
    "{ mountpoint -q $d || mount -t ramfs -o mode=700,nosuid,nodev,noexec ramfs $d; } && "
    "n=$(mktemp $d/.new.XXXXXX) && cat >$n && "
    f"if cmp -s $n {PLACE}; then rm $n; else mv $n {PLACE} && echo changed; fi"
)
# A broken connection may have left a partial file. Unmounting the ramfs erases everything on it.
REMOVE = (
    f"d={_FOLDER}; if [ -e {PLACE} ]; then rm {PLACE} && echo changed; fi; rm -f $d/.new.*; "
    "if mountpoint -q $d; then umount $d; fi"
)


class SecretsError(ControllerError):
    """A secrets file that cannot be used; the error never quotes the file."""

    WORDINGS = wordings_of("controller/targets", "SecretsError")


@dataclass(frozen=True, repr=False)
class Secrets:
    """The secrets of a target, without a `repr`; `sed_psid` may be missing."""

    luks_passphrase: str = ""
    opal_admin_pin: str = ""
    sed_psid: str | None = None
    unknown: Annotated[Mapping[str, Any], schema.REST] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, str]:
        """The secrets that are set, by name."""
        texts = (self.luks_passphrase, self.opal_admin_pin, self.sed_psid)
        return {key: text for key, text in zip(KEYS, texts, strict=True) if text}


def load(path: Path) -> Secrets:
    """Read the secrets, and decrypt an Ansible Vault; raises SecretsError."""
    private.no_core_dumps()
    return _parse(path, _read(path))


def _read(path: Path) -> bytes:
    """Read the file after checking type, owner and mode of the opened file; raises SecretsError."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        with open(os.open(path, flags), "rb") as file:  # noqa: PTH123 - the opened file is checked
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise SecretsError("secrets-no-file", path=str(path))
            if status.st_uid != os.geteuid():
                raise SecretsError("secrets-owner", path=str(path), owner=status.st_uid)
            if status.st_mode & 0o077:
                raise SecretsError("secrets-open", path=str(path))
            return file.read(_MOST_BYTES)
    except OSError as error:
        reason = error.strerror or "it cannot be opened"
        raise SecretsError("secrets-unread", path=str(path), reason=reason) from None


def _parse(path: Path, content: bytes) -> Secrets:
    """Parse the contents of a secrets file that git does not track; raises SecretsError."""
    encrypted = content.startswith(VAULT_MARK)
    if not encrypted and any(_is_tracked(file) for file in {path.absolute(), path.resolve()}):
        raise SecretsError("secrets-tracked", path=str(path))
    try:
        secrets = schema.read(
            Secrets, json.loads(_decrypt(path, content) if encrypted else content)
        )
    except ValueError:
        # The parser's message would quote the file.
        raise SecretsError("secrets-json", path=str(path)) from None
    for key in secrets.unknown:
        raise SecretsError("secrets-unknown", path=str(path), key=key)
    for key in (*NEEDED, *secrets.values):
        if "\n" in secrets.values.get(key, "\n"):
            raise SecretsError("secrets-line", path=str(path), key=key)
    return secrets


def _is_tracked(path: Path) -> bool:
    """Return whether git tracks the file or has it staged.

    Raises SecretsError if git cannot read its repository.
    """
    try:
        result = ask_git(path.parent, "ls-files", "--error-unmatch", "--", f":(literal){path.name}")
    except OSError:  # git is not installed
        return False
    if result.returncode not in (0, 1) and "not a git repository" not in result.stderr:
        lines = result.stderr.strip().splitlines() or ["no output"]
        if "safe.directory" in lines[-1]:  # git before 2.38
            raise SecretsError("secrets-git-owner", path=str(path), command=lines[-1].strip())
        raise SecretsError("secrets-git", path=str(path), reason=lines[-1])
    return result.returncode == 0


def _decrypt(path: Path, content: bytes) -> bytes:
    with playbook.environment() as variables:
        result = subprocess.run(
            [*playbook.program("vault"), "decrypt", "--output", "-", "-"],
            # The content is on standard input; the password comes from a file or a program.
            input=content,
            capture_output=True,
            start_new_session=True,
            check=False,
            env=variables,
        )
    if result.returncode:
        raise SecretsError("secrets-vault", path=str(path))
    return result.stdout


def describe(path: Path) -> str:
    """Describe the secrets file; raises SecretsError if it is incomplete or a secret too short.

    `place` does not check the length: a drive that was owned with a short PIN must be given back
    with it.
    """
    private.no_core_dumps()
    content = _read(path)
    secrets = _parse(path, content)
    for key in NEEDED:
        length = {"characters": len(secrets.values[key]), "different": len({*secrets.values[key]})}
        least = {"least": LEAST_CHARACTERS, "least_different": LEAST_DIFFERENT}
        if any(count < limit for count, limit in zip(length.values(), least.values(), strict=True)):
            raise SecretsError("secrets-short", path=str(path), key=key, **length, **least)
    vault = "encrypted with Ansible Vault, " if content.startswith(VAULT_MARK) else ""
    return f"mode 0600, {vault}with {', '.join(sorted(secrets.values))}"


def place(
    target: TargetDocument, *, with_psid: bool = False, run: connection.Run = connection.run
) -> bool:
    """Put the secrets into the target's memory, readable by root; return whether they changed."""
    secrets = load(Path(target.secrets_file))
    if with_psid and not secrets.sed_psid:
        raise SecretsError("secrets-psid", path=target.secrets_file)
    sent = {key: secrets.values[key] for key in (KEYS if with_psid else NEEDED)}
    result = run(target, ["sh", "-c", PUT], json.dumps(sent).encode())
    return bool(connection.require_output(target, result).strip())


def remove(target: TargetDocument, run: connection.Run = connection.run) -> bool:
    """Remove the secrets from the target; return whether it had any."""
    result = run(target, ["sh", "-c", REMOVE], b"")
    return bool(connection.require_output(target, result).strip())
