"""Commands on the target over SSH, from the `ssh` part of its resolved description."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contract.errors import ControllerError
from contract.plan import TARGET_FORMAT
from controller import host_keys

HOME = "/opt/fde-testbed"
SUITES = "/var/lib/fde-testbed/suites"
# What ssh itself ends with where it never came to run the command.
SSH_FAILED = 255
# Words of OpenSSH's client, and what they mean for people.
REASONS = (
    ("Could not resolve hostname", "its name is not known here: see ansible_host"),
    ("Connection refused", "nothing listens there: see that sshd runs, and ansible_port"),
    ("timed out", "it does not answer: see that it is switched on and reachable"),
    ("No route to host", "there is no way to it: see that it is switched on and reachable"),
    ("Network is unreachable", "there is no way to it: see this machine's network"),
    (
        "Permission denied",
        "it does not let you in: see ansible_user, ansible_ssh_private_key_file and its "
        "authorized_keys",
    ),
    ("Identity file", "the key cannot be read: see ansible_ssh_private_key_file"),
)


def read_target(path: Path) -> dict[str, Any]:
    """The resolved target; raises ControllerError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ControllerError(
            f"The resolved target {path} cannot be read ({error.strerror}): run make provision."
        ) from None
    except ValueError:
        raise ControllerError(f"{path} is not JSON: run make provision.") from None
    if not isinstance(found, dict) or found.get("format") != TARGET_FORMAT:
        raise ControllerError(f"{path} is no resolved target of this version: run make provision.")
    return found


def ssh(target: Mapping[str, Any], remote: Sequence[str]) -> list[str]:
    """The argv that runs `remote` on the target, never asking anything at the terminal."""
    link = target["ssh"]
    argv = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "LogLevel=ERROR"]
    # A dead link must be noticed within 20 s, else all would hang for as long as TCP retries.
    argv += ["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"]
    # Secrets go this way: whatever the user's own configuration says.
    argv += ["-o", "StrictHostKeyChecking=yes"]
    # Nor through a connection that lies open at a path of the user's own choice, as in /tmp.
    argv += ["-o", "ControlMaster=no", "-o", "ControlPath=none"]
    if link.get("known_hosts"):
        argv += ["-o", f"UserKnownHostsFile={link['known_hosts']}"]
    for option in link.get("options", ()):
        argv += ["-o", option]
    if link.get("key"):
        argv += ["-o", "IdentitiesOnly=yes", "-i", link["key"]]
    return [*argv, "-p", str(link["port"]), f"{link['user']}@{link['host']}", shlex.join(remote)]


def run(
    target: Mapping[str, Any], remote: Sequence[str], *, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run a command there to its end; a failure is the caller's to judge, see `why`."""
    argv = ssh(target, remote)
    return subprocess.run(
        argv, input=stdin, capture_output=True, check=False, start_new_session=True
    )


def why(target: Mapping[str, Any], done: subprocess.CompletedProcess[bytes]) -> str:
    """A sentence on a command that failed: what ssh said in words for people, or its last line."""
    name = target["ssh"]["host"]
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode != SSH_FAILED:
        last = said.splitlines()[-1] if said else "it said nothing"
        return f"{name} failed (status {done.returncode}): {last}"
    # The words of a changed key come before those that every key ends with that is refused.
    for words, told in (
        ("REMOTE HOST IDENTIFICATION HAS CHANGED", host_keys.changed),
        ("Host key verification failed", host_keys.unknown),
    ):
        if words in said:
            meaning = told(ssh(target, ["true"]), target["ssh"].get("known_hosts"))
            return f"{name} cannot be reached: {meaning}."
    for words, meaning in REASONS:
        if words in said:
            return f"{name} cannot be reached: {meaning} ({' '.join(said.split())})."
    return f"{name} cannot be reached by SSH: {' '.join(said.split()) or 'it gave no reason'}."


def python(target: Mapping[str, Any], *arguments: str) -> list[str]:
    """The argv that runs `python3 …` with our packages on the target."""
    path = f"PYTHONPATH={HOME}:{HOME}/lib"
    return ssh(target, ["env", path, "python3", *arguments])


def suite_dir(suite_id: str) -> str:
    """The folder of a suite on the target."""
    return f"{SUITES}/{suite_id}"
