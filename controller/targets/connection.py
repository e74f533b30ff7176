"""Commands on the target: over SSH, or directly if this machine is the target."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from contract import bounded
from contract.errors import ControllerError
from contract.plan import SshLink, TargetDocument
from contract.private import PASSWORD_FILE, read_secret
from contract.problem import Problem, wordings_of

HOME = "/opt/fde-testbed"
SUITES = "/var/lib/fde-testbed/suites"
# The exit status of ssh if it could not run the command.
SSH_FAILED = 255


class TargetError(ControllerError):
    """A target that cannot be reached, or a command on it that failed."""


class LinkError(TargetError):
    """A TargetError with a code for the message of ssh or sudo."""

    WORDINGS = wordings_of("controller/targets", "LinkError")


# An ssh_config(5) must not decide how the target is authenticated, what is forwarded to it, or
# which command runs. ssh takes the first value of an option, so these come before all others. The
# user's configuration still decides the route (ProxyJump, ProxyCommand, HostName), the keys, and
# the files of known hosts and the name in them (HostKeyAlias): a key must be in them.
STRICT = (
    "IgnoreUnknown=*",  # some of these are only in versions since 8.5 or 8.7, or in a patch of them
    "StrictHostKeyChecking=yes",
    "NoHostAuthenticationForLocalhost=no",
    "VerifyHostKeyDNS=no",
    "KnownHostsCommand=none",
    "UpdateHostKeys=no",
    "GSSAPIKeyExchange=no",  # by which Kerberos authenticates a host instead of its key
    "GSSAPITrustDns=no",
    "GSSAPIDelegateCredentials=no",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "Tunnel=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    "StdinNull=no",
    "ForkAfterAuthentication=no",
)
# An open connection at a path that the user chose may lead to another machine.
UNSHARED = ("ControlMaster=no", "ControlPath=none")

# Codes of our messages, by a part of the message of OpenSSH's client or of sudo.
_SSH_CODES = {
    # The message before it, of any kind, is that of a jump host or a ProxyCommand.
    "kex_exchange_identification": "dropped",
    "Could not resolve hostname": "name-unknown",
    "Connection refused": "connection-refused",
    "timed out": "no-answer",
    "No route to host": "no-route",
    "Network is unreachable": "no-network",
    # ssh also reports a key that it cannot load as a denied permission.
    "Load key": "key-file",
    "REVOKED HOST KEY": "host-key-revoked",
    "REMOTE HOST IDENTIFICATION HAS CHANGED": "host-key-changed",
    # ssh also ends the message of any other refused key with this.
    "Host key verification failed": "host-key-unknown",
    "Permission denied (publickey": "not-admitted",
    "Permission denied (": "keys-not-enough",
    "Permission denied": "not-admitted",
    "Too many authentication failures": "not-admitted",
    "Identity file": "key-file",
    "ControlPath too long": "control-path",
    "too long for Unix domain socket": "control-path",
    bounded.TOO_LONG: "answer-too-long",
    "Connection closed by": "dropped",
    "Connection reset by": "dropped",
}
# A host's banner may precede the message of ssh.
MOST_LETTERS = 300
PROBE = b"fde-probe\n"
_SUDO_CODES = {
    "a password is required": "sudo-password",
    "a terminal is required": "sudo-password",
    "interactive authentication is required": "sudo-password",  # sudo-rs
    "Authentication required but not attempted": "sudo-rs",
    "privilege escalation prompt": "sudo-rs",
    "incorrect password": "sudo-wrong-password",
    # As Ansible has it.
    "Incorrect sudo password": "sudo-wrong-password",
    "Missing sudo password": "sudo-password",
    "may not run sudo": "sudo-denied",
    "I'm afraid I can't do that": "sudo-denied",  # sudo-rs
    "is not in the sudoers file": "sudo-denied",
    "sudo: not found": "sudo-missing",
    "must have a tty": "sudo-tty",
}


def ssh(target: TargetDocument, remote: Sequence[str]) -> list[str]:
    """Build the argv that runs `remote` on the target as the user who logs in.

    ssh never asks at the terminal. Raises LinkError if this machine has no ssh.
    """
    if shutil.which("ssh") is None:
        raise LinkError("ssh-missing", host=address(target))
    link = target.ssh
    assert link is not None
    # Detect a dead link within 20 s; otherwise everything waits as long as TCP retries.
    alive = ("ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3")
    ours = ("BatchMode=yes", "LogLevel=ERROR", "SessionType=default", *alive)
    argv = ["ssh"]
    for option in (*STRICT, *UNSHARED, *ours, *_link_options(link)):
        argv += ["-o", option]
    if link.key:
        argv += ["-o", "IdentitiesOnly=yes", "-i", link.key]
    return [*argv, "-p", str(link.port), f"{link.user}@{link.host}", quote_command(remote)]


def _link_options(link: SshLink) -> list[str]:
    file = json.dumps(link.known_hosts, ensure_ascii=False)  # unquoted it is a list
    return [f"UserKnownHostsFile={file}", *link.options] if link.known_hosts else [*link.options]


def quote_command(remote: Sequence[str]) -> str:
    """Quote a command so that any login shell accepts it.

    csh and fish quote differently from sh: a command that needs quotes is passed as base64.
    """
    text = shlex.join(remote)
    if re.fullmatch(r"[\w@%+=:,./ -]+", text, re.ASCII):
        return text
    letters = base64.b64encode(f"exec {text}".encode()).decode()
    return f"""exec sh -c 'eval "$(echo {letters} | base64 -d)"'"""


# The original sudo, even if `sudo` is sudo-rs (Ubuntu 26.04), which puts its own words around the
# prompt: printenv and Ansible do not recognise it. ansible.cfg has the same.
SUDO = "$(command -v sudo.ws || echo sudo)"
# As in a login of root: without the caller's environment and folder. The shell stays as the parent
# of sudo, which runs as root and could not be killed by its caller.
ROOT_ENVIRONMENT = (
    *("env", "-i", "--chdir=/", "HOME=/root", "LANG=C.UTF-8"),
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
)
SUDO_SCRIPT = f'LC_ALL=C.UTF-8 {SUDO} -n -- "$@"; exit $?'
BY_SUDO = ("sh", "-c", SUDO_SCRIPT, "sh")
# The password is the first line of the input, whether or not sudo asks for it; the command reads
# the other lines. sudo calls the program printenv with its prompt, the name of the variable.
PASSWORD_SCRIPT = (
    "IFS= read -r FDE_SUDO; export FDE_SUDO; SUDO_ASKPASS=$(command -v printenv) "
    f'LC_ALL=C.UTF-8 {SUDO} -A -p FDE_SUDO -- "$@"; exit $?'
)
WITH_PASSWORD = ("sh", "-c", PASSWORD_SCRIPT, "sh")
PASSWORD_FIRST = (
    "bash",
    "-c",
    """exec 3<&0; exec "$@" < <(IFS= read -r p <"$0"; printf '%s\\n' "$p"; exec cat <&3) 3<&-""",
)


def is_local(target: TargetDocument) -> bool:
    """Return whether the target is this machine, so that no SSH is needed."""
    return target.ssh is None


def address(target: TargetDocument) -> str:
    """Return the target's name or address for messages."""
    return "this machine" if target.ssh is None else target.ssh.host


def link(target: TargetDocument) -> str:
    """Describe the connection to the target for messages."""
    if target.ssh is None:
        return "this machine, whose energy then includes that of the recording"
    return f"{target.ssh.user}@{target.ssh.host}, port {target.ssh.port}"


def command(target: TargetDocument, remote: Sequence[str]) -> list[str]:
    """Build the argv that runs `remote` as root on the target without asking at the terminal.

    If it is killed, the remote command ends when its input or output closes, as over SSH.
    """
    local = target.ssh is None
    if not sudo_user(target):
        return [*ROOT_ENVIRONMENT, *remote] if local else ssh(target, remote)
    password_file = os.environ.get(PASSWORD_FILE)
    by_sudo = [*(WITH_PASSWORD if password_file else BY_SUDO), *ROOT_ENVIRONMENT, *remote]
    argv = by_sudo if local else ssh(target, by_sudo)
    if not password_file:
        return argv
    read_secret(Path(password_file))  # refuse a bad file here, before the shell reports it
    return [*PASSWORD_FIRST, password_file, *argv]


def sudo_user(target: TargetDocument) -> str:
    """Return the user who needs sudo on the target; empty if root logs in."""
    if target.ssh is None:
        return "this user" if os.geteuid() else ""
    return target.ssh.user if target.ssh.become else ""


# Runs a command as root on the target with some input: `run` below, or Ansible's connection.
Run = Callable[[TargetDocument, Sequence[str], bytes], subprocess.CompletedProcess[bytes]]


def run(
    target: TargetDocument, remote: Sequence[str], stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run a command as root on the target and wait for its end.

    The size of its output is limited: the target may have been taken over.
    """
    return bounded.run(command(target, remote), stdin)


def require_output(target: TargetDocument, result: subprocess.CompletedProcess[bytes]) -> bytes:
    """Return the output of a command on the target; raises TargetError if it failed."""
    if result.returncode:
        raise TargetError(describe_failure(target, result))
    return result.stdout


def describe_failure(target: TargetDocument, result: subprocess.CompletedProcess[bytes]) -> Problem:
    """Build the problem of a failed command from the messages of ssh, sudo or our agent."""
    name = address(target)
    stderr = result.stderr.decode(errors="replace").strip()

    def worded(code: str, **facts: str | int) -> Problem:
        return Problem.from_wording(LinkError.WORDINGS, code, facts)

    if user := sudo_user(target):
        for words, code in _SUDO_CODES.items():
            if words in stderr:
                return worded(code, host=name, user=user)
    if result.returncode != SSH_FAILED or target.ssh is None:
        # The shell `nologin` says on standard output why it refuses.
        lines = (stderr or result.stdout.decode(errors="replace").strip()).splitlines()
        last = lines[-1][:300] if lines else "no output"
        if last.startswith("fde: "):
            return Problem("agent", {}, last.removeprefix("fde: "))
        if re.search("No module named '?(agent|contract|instrumentation|workloads)", stderr):
            return Problem.from_wording(ControllerError.wordings(), "no-agent", {"host": name})
        host = name.capitalize() if target.ssh is None else name
        if target.ssh is not None:
            echo = bounded.run(ssh(target, ["cat"]), PROBE)
            if echo.returncode != SSH_FAILED and echo.stdout != PROBE:
                return worded("login-shell", host=host, user=target.ssh.user, output=repr(last))
        return worded("command-failed", host=host, status=result.returncode, output=last)
    return _describe_unreached(target, stderr)


def _describe_unreached(target: TargetDocument, stderr: str) -> Problem:
    """Build the problem of a connection that failed from the messages of ssh."""
    name, argv = address(target), ssh(target, ["true"])
    if not stderr:  # of some failures ssh speaks only at this level
        result = bounded.run([argv[0], "-oLogLevel=INFO", *argv[1:]])
        stderr = result.stderr.decode(errors="replace")
    code = next((code for words, code in _SSH_CODES.items() if words in stderr), "ssh-failed")
    output = " ".join(stderr.split())[-MOST_LETTERS:] or "no output"
    facts = {"host": name, "output": output}
    if link := target.ssh:  # ssh itself shows a new key, and writes it where it is looked for
        words = [f"-o{option}" for option in ("StrictHostKeyChecking=ask", *_link_options(link))]
        words += [f"-i{link.key}"] if link.key else []
        facts["login"] = shlex.join(["ssh", *words, f"-p{link.port}", f"{link.user}@{link.host}"])
        entry = link.host if link.port == 22 else f"[{link.host}]:{link.port}"
        removal = re.search("ssh-keygen -f .+ -R .+", stderr)
        facts["removal"] = removal[0].strip() if removal else f"ssh-keygen -R {shlex.quote(entry)}"
    return Problem.from_wording(LinkError.WORDINGS, code, facts)


PYTHON = ("env", f"PYTHONPATH={HOME}:{HOME}/lib", "PYTHONSAFEPATH=1", "PYTHONUTF8=1", "python3")


def python(target: TargetDocument, *arguments: str) -> list[str]:
    """Build the argv that runs Python with our packages on the target."""
    return command(target, [*PYTHON, *arguments])


def suite_dir(suite_id: str) -> str:
    """Return the folder of a suite on the target."""
    return f"{SUITES}/{suite_id}"
