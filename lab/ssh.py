"""SSH to the guest: keys made for this lab alone, and the command lines that use them."""

from __future__ import annotations

import base64
import secrets
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.network import Network
from lab.state import Layout

# Within one machine nobody records what a quantum computer might read one day; the key exchange
# that is made against it takes a third of the time of a connection.
QUICK_KEYS = "KexAlgorithms=curve25519-sha256"


def make_keys(layout: Layout) -> dict[str, Path]:
    """Make the client's key and the guest's host key.

    Returns the files that the guest takes as system credentials (name: file): root's authorised
    key, and lines for systemd-tmpfiles that put the host key in its place.
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
    return {
        "ssh.authorized_keys.root": layout.key.with_suffix(".pub"),
        "tmpfiles.extra": place,
    }


def where(layout: Layout, network: Network, address: tuple[str, int]) -> dict[str, Any]:
    """The `ssh` part of a lab's state, its host key pinned in known_hosts.

    In a network of its own the guest has a name that no other lab has, since all have the same
    address, and is reached by a command that connects within that network.
    """
    host, port = address
    found: dict[str, Any] = {
        "host": host,
        "port": port,
        "user": "root",
        "key": str(layout.key),
        "known_hosts": str(layout.known_hosts),
        "options": [QUICK_KEYS],
    }
    if network.pid is not None:
        found |= {"host": f"fde-lab-{secrets.token_hex(4)}", "port": 22}
        proxy = shlex.join(network.connector(address))
        found["options"] += [f"ProxyCommand={proxy}", "ProxyUseFdpass=yes"]
    public = layout.host_key.with_suffix(".pub").read_text(encoding="utf-8")
    kind, blob = public.split()[:2]
    name = found["host"] if found["port"] == 22 else f"[{host}]:{port}"
    layout.known_hosts.write_text(f"{name} {kind} {blob}\n", encoding="utf-8")
    return found


def command(ssh: Mapping[str, Any], remote: Sequence[str] = (), connect_s: int = 15) -> list[str]:
    """The ssh command for the `ssh` part of a lab's state; only the pinned host key will do."""
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": str(connect_s),
        "IdentitiesOnly": "yes",
        "LogLevel": "ERROR",
        "ServerAliveInterval": "30",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": ssh["known_hosts"],
    }
    settings = [*(f"{name}={value}" for name, value in options.items()), *ssh["options"]]
    flags = [word for setting in settings for word in ("-o", setting)]
    address = f"{ssh['user']}@{ssh['host']}"
    return ["ssh", "-F", "none", "-i", ssh["key"], "-p", str(ssh["port"]), *flags, address, *remote]
