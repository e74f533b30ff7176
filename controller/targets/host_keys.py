"""The host key that a target shows, and what to do where it is not known or has changed."""

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

# Ends before anybody is authenticated: the host learns the user's name, and nothing is run.
ASK = ("StrictHostKeyChecking=accept-new", "PreferredAuthentications=none", "CheckHostIP=no")
ALONE = ("GlobalKnownHostsFile=/dev/null", "HashKnownHosts=no", "ControlPath=none")
WORDINGS = wordings_of("controller/targets", "LinkError")


@dataclass(frozen=True)
class HostKey:
    """`line` as known_hosts wants it; `fingerprint` for people: SHA256:…, and of which kind."""

    line: str
    fingerprint: str


def read_host_key(ssh: Sequence[str]) -> HostKey | None:
    """Return the key that the host of this ssh command shows now; None where it shows none.

    ssh itself asks, so that it takes the same way (a jump host, another name for its key) and gets
    the same key as later: ssh-keyscan knows neither.
    """
    program, *rest = ssh
    with tempfile.TemporaryDirectory(prefix="fde-host-key-") as folder:
        file = Path(folder) / "known_hosts"
        # Of an option that comes twice ssh takes the first.
        options = [f"-o{option}" for option in (*ASK, *ALONE, f'UserKnownHostsFile="{file}"')]
        try:
            bounded.run([program, *options, *rest], limit_s=LIMIT_S)
            line = file.read_text(encoding="utf-8").strip()
            words = subprocess.run(
                ["ssh-keygen", "-lf", str(file)], capture_output=True, text=True, check=True
            ).stdout.split()
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
    return HostKey(line, f"{words[1]} {words[-1]}")


def unknown_key(name: str, ssh: Sequence[str], known_hosts: str | None) -> Problem:
    """Build the problem of a first contact with the host called `name`."""
    facts = {"host": name, "shown": ", and it shows none now", "command": ""}
    if (key := read_host_key(ssh)) is not None:
        file = shlex.quote(known_hosts) if known_hosts else "~/.ssh/known_hosts"
        facts |= {"fingerprint": key.fingerprint, "shown": f". It shows {key.fingerprint}"}
        echo = f"echo {shlex.quote(key.line)} >> {file}"
        facts["command"] = f" If they are the same, run `{echo}`."
    return Problem.from_wording(WORDINGS, "host-key-unknown", facts)


def changed_key(name: str, ssh: Sequence[str], known_hosts: str | None) -> Problem:
    """Build the problem of a host whose key is another one than the one that is known."""
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
