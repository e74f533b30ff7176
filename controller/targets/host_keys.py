"""The host key that a target presents, and the problems of an unknown or changed key."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contract import bounded
from contract.problem import Problem, wordings_of

LIMIT_S = 30.0

# ssh ends before authentication: the host learns only the user's name, and no command runs.
ASK = ("StrictHostKeyChecking=accept-new", "PreferredAuthentications=none", "CheckHostIP=no")
ISOLATED = ("GlobalKnownHostsFile=/dev/null", "HashKnownHosts=no", "ControlPath=none")
WORDINGS = wordings_of("controller/targets", "LinkError")


@dataclass(frozen=True)
class HostKey:
    """A host key: its `line` for known_hosts, and its `fingerprint` (SHA256:… and the key type)."""

    line: str
    fingerprint: str


def read_host_key(ssh: Sequence[str]) -> HostKey | None:
    """Return the key that the host of this ssh command presents, or None.

    ssh itself asks, so that jump hosts and HostKeyAlias apply as they do later: ssh-keyscan
    supports neither.
    """
    program, *arguments = ssh
    with tempfile.TemporaryDirectory(prefix="fde-host-key-") as folder:
        file = Path(folder) / "known_hosts"
        # ssh takes the first value of an option.
        options = [f"-o{option}" for option in (*ASK, *ISOLATED, f'UserKnownHostsFile="{file}"')]
        try:
            bounded.run([program, *options, *arguments], limit_s=LIMIT_S)
            line = file.read_text(encoding="utf-8").strip()
            words = subprocess.run(
                ["ssh-keygen", "-lf", str(file)], capture_output=True, text=True, check=True
            ).stdout.split()
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
    return HostKey(line, f"{words[1]} {words[-1]}")


def unknown_key(name: str, ssh: Sequence[str], known_hosts: str | None) -> Problem:
    """Build the problem of a host whose key is not in known_hosts."""
    facts = {"host": name, "shown": ", and it shows none now", "command": ""}
    if (key := read_host_key(ssh)) is not None:
        file = shlex.quote(known_hosts) if known_hosts else "~/.ssh/known_hosts"
        facts |= {"fingerprint": key.fingerprint, "shown": f". It shows {key.fingerprint}"}
        echo = f"echo {shlex.quote(key.line)} >> {file}"
        facts["command"] = f" If they are the same, run `{echo}`."
    return Problem.from_wording(WORDINGS, "host-key-unknown", facts)


def changed_key(name: str, ssh: Sequence[str], known_hosts: str | None) -> Problem:
    """Build the problem of a host whose key differs from the one in known_hosts."""
    key = read_host_key(ssh)
    entry = shlex.quote(key.line.split()[0]) if key else "HOST"
    file = f" -f {shlex.quote(known_hosts)}" if known_hosts else ""
    facts = {
        "host": name,
        "fingerprint": key.fingerprint if key else "",
        "shown": f" It now shows {key.fingerprint}." if key else "",
        "command": f"ssh-keygen -R {entry}{file}",
    }
    return Problem.from_wording(WORDINGS, "host-key-changed", facts)
