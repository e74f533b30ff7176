"""The host key that a target shows, and what to do where it is not known or has changed."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LIMIT_S = 30.0

# Ends before anybody is authenticated: the host learns the user's name, and nothing is run.
ASK = ("StrictHostKeyChecking=accept-new", "PreferredAuthentications=none", "CheckHostIP=no")
ALONE = ("GlobalKnownHostsFile=/dev/null", "HashKnownHosts=no", "ControlPath=none")
COMPARE = (
    "compare it with what `for k in /etc/ssh/ssh_host_*.pub; do ssh-keygen -lf $k; done` prints at "
    "its own console"
)


@dataclass(frozen=True)
class Shown:
    """`line` as known_hosts wants it; `fingerprint` for people: SHA256:…, and of which kind."""

    line: str
    fingerprint: str


def shown(ssh: Sequence[str]) -> Shown | None:
    """The key that the host of this ssh command shows now; None where it shows none.

    Asked by ssh itself, so that the same way is gone (a jump host, another name for its key) and
    the same key is shown as later: ssh-keyscan knows neither.
    """
    program, *rest = ssh
    with tempfile.TemporaryDirectory(prefix="fde-host-key-") as folder:
        file = Path(folder) / "known_hosts"
        # Of an option that comes twice ssh takes the first.
        options = [f"-o{option}" for option in (*ASK, *ALONE, f'UserKnownHostsFile="{file}"')]
        try:
            subprocess.run(
                [program, *options, *rest],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LIMIT_S,
                check=False,
                start_new_session=True,
            )
            line = file.read_text(encoding="utf-8").strip()
            words = subprocess.run(
                ["ssh-keygen", "-lf", str(file)], capture_output=True, text=True, check=True
            ).stdout.split()
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
    return Shown(line, f"{words[1]} {words[-1]}")


def unknown(ssh: Sequence[str], known_hosts: str | None) -> str:
    """What to do at the first contact, as a clause."""
    key = shown(ssh)
    if key is None:
        return f"its host key is not known here, and it shows none now: {COMPARE}"
    file = shlex.quote(known_hosts) if known_hosts else "~/.ssh/known_hosts"
    return (
        f"its host key is not known here. It shows {key.fingerprint}: {COMPARE}, and only where "
        f"they are the same run `echo {shlex.quote(key.line)} >> {file}`"
    )


def changed(ssh: Sequence[str], known_hosts: str | None) -> str:
    """What to do where another key is known, as a clause."""
    key = shown(ssh)
    now = f" It now shows {key.fingerprint}." if key else ""
    file = f" -f {shlex.quote(known_hosts)}" if known_hosts else ""
    name = shlex.quote(key.line.split()[0]) if key else "HOST"
    return (
        "its host key is another one than the one that is known here: another machine may stand in "
        f"its place, and nothing was sent to it.{now} If it was reinstalled, {COMPARE}; then "
        f"take the old key out with `ssh-keygen -R {name}{file}`, and check again"
    )
