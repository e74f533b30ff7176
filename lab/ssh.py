"""Create the guest's SSH keys and command lines, and wait until it answers."""

from __future__ import annotations

import base64
import json
import secrets
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from contract.errors import LabError
from lab.cache import Say
from lab.devices import by_id
from lab.launcher import tail
from lab.network import Network
from lab.state import LabState, Layout, SshState

# Within one machine nobody records traffic for a future quantum computer; the key exchange against
# that takes a third of the time of a connection.
QUICK_KEYS = "KexAlgorithms=curve25519-sha256"

ROOT_DISK = "/dev/disk/by-label/fde-root"
BOOT_LIMIT_S = 600.0
BANNER_LIMIT_S = 8.0
SSH_FAILED = 255
BOOT_WORDS = b"Loading, please wait..."  # the initrd's first line at every boot
LAST_WORDS = (b"Kernel panic - not syncing", b"Rebooting automatically due to panic=")


def make_keys(layout: Layout) -> dict[str, Path]:
    """Create the client's key and the guest's host key.

    Returns the files for the guest's system credentials (name: file): root's authorised key, and
    lines for systemd-tmpfiles that install the host key.
    """
    for key in (layout.key, layout.host_key):
        for old in (key, key.with_suffix(".pub")):
            old.unlink(missing_ok=True)
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "fde-lab", "-f", str(key)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    place = layout.directory / "tmpfiles.conf"
    place.touch(mode=0o600)
    encoded = base64.b64encode(layout.host_key.read_bytes()).decode()
    line = f"f+~ /etc/ssh/ssh_host_ed25519_key 0600 root root - {encoded}\n"
    place.write_text(line, encoding="utf-8")
    return {"ssh.authorized_keys.root": layout.key.with_suffix(".pub"), "tmpfiles.extra": place}


def where(layout: Layout, network: Network, address: tuple[str, int]) -> SshState:
    """Return the `ssh` part of a lab's state, with the host key pinned in known_hosts.

    In a separate network the guest has a unique name, since all labs use the same address, and is
    reached by a command that connects within that network.
    """
    host, port = address
    section: SshState = {
        "host": host,
        "port": port,
        "user": "root",
        "key": str(layout.key),
        "known_hosts": str(layout.known_hosts),
        "options": [QUICK_KEYS],
    }
    if network.pid is not None:
        section["host"], section["port"] = f"fde-lab-{secrets.token_hex(4)}", 22
        proxy = shlex.join(network.connector(address))
        section["options"] += [f"ProxyCommand={proxy}", "ProxyUseFdpass=yes"]
    public = layout.host_key.with_suffix(".pub").read_text(encoding="utf-8")
    kind, blob = public.split()[:2]
    name = section["host"] if section["port"] == 22 else f"[{host}]:{port}"
    layout.known_hosts.write_text(f"{name} {kind} {blob}\n", encoding="utf-8")
    return section


def command(ssh: SshState, remote: Sequence[str] = (), connect_s: int = 15) -> list[str]:
    """Build the ssh command for a lab's state; it accepts only the pinned host key."""
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": str(connect_s),
        "IdentitiesOnly": "yes",
        "LogLevel": "ERROR",
        "ServerAliveInterval": "30",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": json.dumps(ssh["known_hosts"], ensure_ascii=False),  # else a list
    }
    settings = [*(f"{name}={value}" for name, value in options.items()), *ssh["options"]]
    flags = [word for setting in settings for word in ("-o", setting)]
    address = f"{ssh['user']}@{ssh['host']}"
    return ["ssh", "-F", "none", "-i", ssh["key"], "-p", str(ssh["port"]), *flags, address, *remote]


def wait_for_guest(layout: Layout, state: LabState, alive: Callable[[], bool], say: Say) -> None:
    """Wait until the guest answers by SSH and has its drives, and print progress."""
    links = [by_id(drive["model"], drive["serial"]) for drive in state["drives"].values()]
    question = ["udevadm", "wait", "--timeout=60", ROOT_DISK, *links]
    started = reported_s = time.monotonic()
    while True:
        answer = None  # if the guest's SSH server does not answer
        if sshd_greets(state):
            argv = command(state["ssh"], question)
            answer = subprocess.run(argv, capture_output=True, text=True, check=False)
        if answer is not None and answer.returncode == 0:
            return
        elapsed = time.monotonic() - started
        refused = answer is not None and answer.returncode != SSH_FAILED
        dead = not alive() or gave_up(layout.console)
        if refused or dead or elapsed > BOOT_LIMIT_S:
            reason = answer.stderr.strip() if answer is not None else "no answer by SSH"
            raise LabError(
                "guest-silent",
                waited_s=elapsed,
                reason=reason,
                path=layout.console,
                last=tail(layout.console),
            )
        if time.monotonic() - reported_s >= 5:
            say(f"lab: the guest is booting, {elapsed:.0f} s")
            reported_s = time.monotonic()
        time.sleep(0.2)


def sshd_greets(state: LabState) -> bool:
    """Return whether the guest's SSH server sends its banner.

    QEMU accepts connections before the guest does and passes them on later; every ssh client that
    gave up in between would cost the freshly booted guest a key exchange.
    """
    host, port = state["address"]
    try:
        with Network(state["network_pid"]).connect((host, port), BANNER_LIMIT_S) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def gave_up(console: Path) -> bool:
    """Return whether the guest's kernel or initrd gave up, and has not booted since."""
    if not console.exists():
        return False
    since_boot = console.read_bytes().rpartition(BOOT_WORDS)[2]
    return any(words in since_boot for words in LAST_WORDS)
