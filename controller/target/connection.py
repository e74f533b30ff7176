"""Commands on the target: over SSH, or on this machine where it is the target itself (`ssh` of the
resolved target is null); and the key that a host shows before it is known."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contract import schema, strict_json
from contract.errors import ControllerError
from contract.plan import TargetDocument
from controller.target.host_keys import changed, unknown

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
        document = strict_json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ControllerError(
            f"The resolved target {path} cannot be read ({error.strerror}): run fde provision."
        ) from None
    except ValueError:
        raise ControllerError(f"{path} is not JSON: run fde provision.") from None
    try:
        schema.read(TargetDocument, document)
    except ValueError as error:
        raise ControllerError(
            f"{path} is not a resolved target of this version ({error}): run fde provision."
        ) from None
    return dict(document)


def ssh(target: Mapping[str, Any], remote: Sequence[str]) -> list[str]:
    """The argv that runs `remote` on the target, never asking anything at the terminal.

    Raises ControllerError where this machine has no ssh.
    """
    if shutil.which("ssh") is None:
        raise ControllerError(
            f"{address(target)} cannot be reached: the program ssh was not found here. Install it "
            "(apt-get install openssh-client)."
        )
    link = target["ssh"]
    argv = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "LogLevel=ERROR"]
    # A dead link must be noticed within 20 s, else all would hang for as long as TCP retries.
    argv += ["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"]
    # Secrets go this way: whatever the user's own configuration says.
    argv += ["-o", "StrictHostKeyChecking=yes"]
    # Nor through a connection that lies open at a path of the user's own choice, as in /tmp.
    argv += ["-o", "ControlMaster=no", "-o", "ControlPath=none"]
    if link.get("known_hosts"):
        file = json.dumps(link["known_hosts"], ensure_ascii=False)  # unquoted it is a list
        argv += ["-o", f"UserKnownHostsFile={file}"]
    for option in link.get("options", ()):
        argv += ["-o", option]
    if link.get("key"):
        argv += ["-o", "IdentitiesOnly=yes", "-i", link["key"]]
    return [*argv, "-p", str(link["port"]), f"{link['user']}@{link['host']}", _one_line(remote)]


def _one_line(remote: Sequence[str]) -> str:
    """The words as any login shell takes them: csh and fish have other rules for quotes and lines
    than sh, so that what needs them is handed on in letters."""
    text = shlex.join(remote)
    if re.fullmatch(r"[\w@%+=:,./ -]+", text, re.ASCII):
        return text
    letters = base64.b64encode(f"exec {text}".encode()).decode()
    return f"""exec sh -c 'eval "$(echo {letters} | base64 -d)"'"""


# As on another machine: nothing of this process's environment and folder, and root's rights. The
# shell stays between, as ssh does: sudo runs as root, so that its caller could not end it.
LOCAL_ENVIRONMENT = (
    *("env", "-i", "--chdir=/", "HOME=/root", "LANG=C.UTF-8"),
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
)
BY_SUDO = ("sh", "-c", 'LC_ALL=C.UTF-8 sudo -n -- "$@"; exit $?', "sh")
SUDO_ASKS = (
    "sudo asks for a password, and a suite runs while nobody is there to give it: allow it by "
    """`echo "$USER ALL=(root) NOPASSWD: ALL" | sudo tee /etc/sudoers.d/fde`, and take that """
    "file away when you are done"
)
SUDO_FAILURES = (
    ("a password is required", SUDO_ASKS),
    ("a terminal is required", SUDO_ASKS),
    ("may not run sudo", "this user may not use sudo: run it as root, or as one who may"),
    ("is not in the sudoers file", "this user may not use sudo: run it as root, or as one who may"),
    ("sudo: not found", "there is no sudo here: install it, or run this as root"),
)


def is_local(target: Mapping[str, Any]) -> bool:
    """Whether the target is this machine, asked without SSH."""
    return target["ssh"] is None


def address(target: Mapping[str, Any]) -> str:
    """The target's name or address, for people."""
    return "this machine" if is_local(target) else str(target["ssh"]["host"])


def link(target: Mapping[str, Any]) -> str:
    """How the target is reached, for people."""
    if is_local(target):
        return "this machine, whose energy then includes that of the recording"
    return "{user}@{host}, port {port}".format_map(target["ssh"])


def command(target: Mapping[str, Any], remote: Sequence[str]) -> list[str]:
    """The argv that runs `remote` as root on the target, asking nothing at the terminal.

    Where it is killed, what it runs there ends with its input or its output, as over SSH.
    """
    if not is_local(target):
        return ssh(target, remote)
    return [*(BY_SUDO if os.geteuid() else ()), *LOCAL_ENVIRONMENT, *remote]


def run(
    target: Mapping[str, Any], remote: Sequence[str], *, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run a command there to its end; a failure is the caller's to judge, see `why`."""
    argv = command(target, remote)
    return subprocess.run(
        argv, input=stdin, capture_output=True, check=False, start_new_session=True
    )


def told(target: Mapping[str, Any], done: subprocess.CompletedProcess[bytes]) -> bytes:
    """What a command there printed. Raises ControllerError where it failed."""
    if done.returncode:
        raise ControllerError(why(target, done))
    return done.stdout


def why(target: Mapping[str, Any], done: subprocess.CompletedProcess[bytes]) -> str:
    """A sentence on a command that failed: what ssh said in words for people, or its last line."""
    name = address(target)
    stderr = done.stderr.decode(errors="replace").strip()
    if is_local(target):
        for words, meaning in SUDO_FAILURES if os.geteuid() else ():
            if words in stderr:
                return f"This machine is the target, and root's rights are needed: {meaning}."
        name = name.capitalize()
    if done.returncode != SSH_FAILED or is_local(target):
        last = stderr.splitlines()[-1] if stderr else "it said nothing"
        return f"{name} failed (status {done.returncode}): {last}"
    # The words of a changed key come before those that every key ends with that is refused.
    for words, advice in (
        ("REMOTE HOST IDENTIFICATION HAS CHANGED", changed),
        ("Host key verification failed", unknown),
    ):
        if words in stderr:
            meaning = advice(ssh(target, ["true"]), target["ssh"].get("known_hosts"))
            return f"{name} cannot be reached: {meaning}."
    for words, meaning in REASONS:
        if words in stderr:
            return f"{name} cannot be reached: {meaning} ({' '.join(stderr.split())})."
    return f"{name} cannot be reached by SSH: {' '.join(stderr.split()) or 'it gave no reason'}."


def python(target: Mapping[str, Any], *arguments: str) -> list[str]:
    """The argv that runs `python3 …` with our packages on the target."""
    path = f"PYTHONPATH={HOME}:{HOME}/lib"
    environment = ("PYTHONSAFEPATH=1", "PYTHONUTF8=1")
    return command(target, ["env", path, *environment, "python3", *arguments])


def suite_dir(suite_id: str) -> str:
    """The folder of a suite on the target."""
    return f"{SUITES}/{suite_id}"
