"""How the target is reached: by OpenSSH itself, as it reads what we ask of it."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest

from contract import private
from contract.places import ROOT
from contract.tests.programs import program
from controller.targets import connection, playbook
from controller.targets.connection import LinkError
from controller.tests.examples import resolved

TARGET = resolved(ssh={"host": "testbench", "port": 22, "user": "root", "known_hosts": None})


# What a user's ssh_config(5) may hold that must not count.
NOT_THEIRS = (
    "StrictHostKeyChecking no",
    "NoHostAuthenticationForLocalhost yes",
    "VerifyHostKeyDNS yes",
    "KnownHostsCommand /usr/bin/printf x",
    "UpdateHostKeys ask",
    "ForwardAgent yes",
    "ForwardX11 yes",
    "GSSAPIDelegateCredentials yes",
    "GSSAPIKeyExchange yes",
    "GSSAPITrustDns yes",
    "LocalForward 2222 localhost:22",
    "RemoteForward 2222 localhost:22",
    "DynamicForward 1080",
    "Tunnel yes",
    "PermitLocalCommand yes",
    "RemoteCommand /bin/false",
    "RequestTTY force",
    "StdinNull yes",
    "ForkAfterAuthentication yes",
)
# These, too, for the connections that we make without Ansible.
NOT_THEIRS_IN_OURS = (
    "ControlMaster auto",
    "ControlPath /tmp/ssh-%r@%h:%p",
    "SessionType none",
    "LogLevel QUIET",
    "ServerAliveInterval 3600",
)
# And what stays theirs: the way, the name of the key, the files that have it.
THEIRS = (
    "ProxyJump bastion",
    "HostKeyAlias bench",
    "UserKnownHostsFile ~/.ssh/bench",
    "GlobalKnownHostsFile /dev/null",
    "HostName bench.example.org",
)


def settings(argv: list[str], folder: Path, *lines: str) -> str:
    """Return what ssh makes of its command line beside a configuration of these lines."""
    config = folder / "config"
    config.write_text("\n".join(lines), encoding="utf-8")
    command = [argv[0], "-G", "-F", str(config), *argv[1:]]
    ssh = subprocess.run(command, capture_output=True, text=True, check=False)
    if f"{config}: line 1: Bad configuration option" in ssh.stderr:
        pytest.skip(f"this ssh has no {lines[0]}")
    assert ssh.returncode in (0, 255), ssh.stderr  # 255: a RemoteCommand beside the command
    return ssh.stdout


def ansibles() -> list[str]:
    """Return Ansible's command line, with the path that it appends itself."""
    with playbook.environment() as variables:
        config = ConfigParser(interpolation=None)
        config.read(variables["ANSIBLE_CONFIG"])
    options = config["ssh_connection"]["ssh_args"].split()
    return ["ssh", *options, "-o", "ControlPath=/ours/%C", "testbench", "true"]


@pytest.mark.parametrize("line", (*NOT_THEIRS, *NOT_THEIRS_IN_OURS))
def test_ssh_config_cannot_change_strict_options(line: str, tmp_path: Path) -> None:
    plain = ["ssh", "testbench"]
    assert settings(plain, tmp_path, line) != settings(plain, tmp_path)
    ours = connection.ssh(TARGET, ["true"])
    for argv in (ours, ansibles()) if line in NOT_THEIRS else (ours,):
        assert settings(argv, tmp_path, line) == settings(argv, tmp_path)


@pytest.mark.parametrize("line", THEIRS)
def test_ssh_config_decides_route_and_known_hosts(line: str, tmp_path: Path) -> None:
    for argv in (connection.ssh(TARGET, ["true"]), ansibles()):
        assert settings(argv, tmp_path, line) != settings(argv, tmp_path)


DROPPED = b"kex_exchange_identification: Connection closed by remote host\n"  # after a jump host


@pytest.mark.parametrize(
    ("status", "stdout", "stderr", "code", "output"),
    [
        (1, b"This account is closed.\n", b"", "command-failed", "This account is closed."),
        (1, b"answer\n", b"first\nlast\n", "command-failed", "last"),
        (1, b"", b"", "command-failed", "no output"),
        (1, b"", b"No module named 'contract'", "no-agent", "The agent is not on"),
        (255, b"", b'Load key "/k": invalid format\nh: Permission denied', "key-file", "/k"),
        (255, b"", b"h: Permission denied (keyboard-interactive).", "keys-not-enough", "h"),
        (255, b"", b"no gate\nHost key verification failed.\n" + DROPPED, "dropped", "no gate"),
        (
            255,
            b"",
            b"ssh: connect to host gate port 1: Connection refused" + DROPPED,
            "dropped",
            "1",
        ),
        (255, b"", b"unix_listener: path too long for Unix domain socket", "control-path", ""),
        (255, b"", b"ControlPath too long ('/t/x' >= 108 bytes)", "control-path", "/t/x"),
    ],
)
def test_a_failed_command_is_described_by_its_last_line(
    status: int, stdout: bytes, stderr: bytes, code: str, output: str
) -> None:
    answer = subprocess.CompletedProcess(["ssh"], status, stdout, stderr)
    problem = connection.describe_failure(TARGET, answer)
    assert problem.code == code and output in problem.sentence


# What sudo 1.9, sudo-rs 0.2.15 and Ansible print.
@pytest.mark.parametrize(
    ("stderr", "code"),
    [
        ("sudo: a password is required", "sudo-password"),
        ("sudo: interactive authentication is required", "sudo-password"),
        ("sudo: Authentication required but not attempted", "sudo-rs"),
        ("Timeout (62s) waiting for privilege escalation prompt: ", "sudo-rs"),
        ("sudo: 3 incorrect password attempts", "sudo-wrong-password"),
        ("bob is not in the sudoers file.", "sudo-denied"),
        ("sudo: I'm sorry bob. I'm afraid I can't do that", "sudo-denied"),
        ("sh: 1: sudo: not found", "sudo-missing"),
    ],
)
def test_a_refusal_of_sudo_or_sudo_rs_has_its_code(stderr: str, code: str) -> None:
    target = resolved(ssh={"host": "h", "port": 22, "user": "bob", "become": True})
    answer = subprocess.CompletedProcess(["ssh"], 1, b"", stderr.encode())
    assert connection.describe_failure(target, answer).code == code


ECHO_LAST = 'for last; do :; done; echo "{} $last"'


@pytest.mark.parametrize(
    ("programs", "used"), [(("sudo",), "sudo"), (("sudo", "sudo.ws"), "sudo.ws")]
)
def test_the_original_sudo_is_used_if_sudo_is_another(
    programs: tuple[str, ...], used: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in programs:
        program(tmp_path / name, ECHO_LAST.format(name))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for words in (connection.BY_SUDO, connection.WITH_PASSWORD):
        answer = subprocess.check_output([*words, "command"], input=b"password\n")
        assert answer.decode() == f"{used} command\n"


def test_ansible_cfg_has_our_sudo_and_the_strict_options() -> None:
    config = ConfigParser(interpolation=None)
    config.read(ROOT / "ansible" / "ansible.cfg")
    assert config["privilege_escalation"]["become_exe"] == connection.SUDO
    options = config["ssh_connection"]["ssh_args"].split("-o ")[1:]
    assert tuple(map(str.strip, options))[: len(connection.STRICT)] == connection.STRICT


def test_options_unknown_to_an_old_ssh_are_ignored(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("NoSuchOption yes\n", encoding="utf-8")
    for argv in (connection.ssh(TARGET, ["true"]), ansibles()):
        command = [argv[0], "-G", "-F", str(config), *argv[1:]]
        ssh = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "\nforwardagent no\n" in ssh.stdout


@pytest.fixture
def impostor(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """Yield the port of an sshd of this user's on the loopback, and the key that it admits."""
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if sshd is None:
        pytest.skip("sshd is not installed here (apt-get install openssh-server)")
    for name in ("host", "login"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True
        )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = [
        f"HostKey={tmp_path}/host",
        f"AuthorizedKeysFile={tmp_path}/login.pub",
        "PidFile=none",
    ]
    options += ["StrictModes=no", "ListenAddress=127.0.0.1", "PermitRootLogin=yes"]
    argv = [sshd, "-D", "-e", "-f", "none", "-p", str(port), *(f"-o{each}" for each in options)]
    if not os.geteuid():  # root's separates its privileges
        users = tmp_path / "passwd"
        users.write_text(Path("/etc/passwd").read_text() + "sshd:x:74:74::/run/sshd:/bin/false\n")
        script = 'mount --bind "$0" /etc/passwd; mount -t tmpfs fde /run; mkdir -m 755 /run/sshd'
        argv = ["unshare", "--mount", "sh", "-c", f'{script}; exec "$@"', str(users), *argv]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        greeting = ""
        while "listening" not in greeting and (line := server.stderr.readline()):
            greeting += line
        assert "listening" in greeting, greeting
        yield port, tmp_path / "login"
        server.kill()


def test_an_impostor_gets_nothing(
    impostor: tuple[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real sshd whose key is not the one that is known, and configurations that accept it."""
    port, key = impostor
    known_hosts = tmp_path / "known"
    other = Path(f"{key}.pub").read_text(encoding="utf-8")
    known_hosts.write_text(f"[127.0.0.1]:{port} {other}", encoding="utf-8")
    line = f"[127.0.0.1]:{port} {(tmp_path / 'host.pub').read_text()}"
    (tmp_path / "line").write_text(line, encoding="utf-8")
    config = tmp_path / "config"
    trusting = (
        "NoHostAuthenticationForLocalhost yes",
        f"KnownHostsCommand /bin/cat {tmp_path}/line",
    )
    master = f"ControlMaster auto\nControlPath {tmp_path}/master\nControlPersist 60"
    real = shutil.which("ssh")
    wrapper = program(tmp_path / "bin" / "ssh", f'exec {real} -F {config} "$@"')
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    user = pwd.getpwuid(os.getuid()).pw_name
    link = {"host": "127.0.0.1", "port": port, "user": user, "key": str(key)}
    target = resolved(ssh={**link, "known_hosts": str(known_hosts)})
    got = tmp_path / "got"
    for text in (*trusting, f"StrictHostKeyChecking no\n{master}"):
        config.write_text(f"{text}\n", encoding="utf-8")
        careless = ["ssh", "-p", str(port), "-i", str(key), f"{user}@127.0.0.1", "true"]
        subprocess.run(careless, check=True, stderr=subprocess.DEVNULL)  # which believes it
        answer = connection.run(target, ["sh", "-c", 'cat >"$0"', str(got)], b"secret")
        assert connection.describe_failure(target, answer).code == "host-key-changed"
        assert not got.exists()
        with playbook.environment() as variables:
            arguments = ["--inventory", "127.0.0.1,", "--module-name", "raw", "--args"]
            hands = [
                *(f"-eansible_port={port}", f"-eansible_user={user}"),
                f"-eansible_ssh_private_key_file={key}",
                f"-eansible_ssh_common_args=-oUserKnownHostsFile={known_hosts}",
            ]
            ansible = str(Path(sys.executable).with_name("ansible"))
            once = {**variables, "ANSIBLE_SSH_RETRIES": "0"}
            play = [ansible, "all", *arguments, f"touch {got}", *hands]
            assert subprocess.run(play, env=once, stdout=subprocess.DEVNULL, check=False).returncode
        assert not got.exists()
    subprocess.run(
        [str(real), "-F", str(config), "-O", "exit", "127.0.0.1"], check=False, capture_output=True
    )
    known_hosts.write_text(line, encoding="utf-8")
    assert not connection.run(target, ["sh", "-c", 'cat >"$0"', str(got)], b"secret").returncode
    assert got.read_bytes() == b"secret"


def test_a_machine_without_ssh_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LinkError) as raised:
        connection.run(TARGET, ["true"])
    assert raised.value.code == "ssh-missing"


def test_ansible_connections_are_in_a_private_folder(tmp_path: Path) -> None:
    folders = set()
    for _ in range(2):
        with playbook.environment() as variables:
            folder = Path(variables["ANSIBLE_SSH_CONTROL_PATH_DIR"])
            private.require(folder)
            config = str(Path(sys.executable).with_name("ansible-config"))
            dump = [config, "dump", "--type", "connection", "--only-changed"]
            result = subprocess.run(
                dump, env=variables, cwd=tmp_path, capture_output=True, text=True, check=True
            )
            assert f"= {folder}" in result.stdout
            folders.add(folder)
        assert not folder.exists()
    assert len(folders) == 2


def test_a_quoted_command_works_in_any_login_shell() -> None:
    """Neither quotes within quotes nor lines, which csh and fish take otherwise than sh."""
    script = "printf '%s\\n' \"$1\"\nexit 3 # !x `a` $HOME\\"
    line = connection.ssh(TARGET, ["sh", "-c", script, "sh", "two words"])[-1]
    assert re.fullmatch(r"exec sh -c 'eval \"\$\(echo [A-Za-z0-9+/=]+ \| base64 -d\)\"'", line)
    result = subprocess.run(["bash", "-c", line], capture_output=True, check=False)
    assert (result.stdout, result.returncode) == (b"two words\n", 3)
    assert connection.ssh(TARGET, ["env", "A=/b:/c", "python3", "-m", "agent"])[-1] == (
        "env A=/b:/c python3 -m agent"
    )
