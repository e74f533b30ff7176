"""SSH to the guest: keys made for this lab alone, and the command lines that use them."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.state import Layout


def make_keys(layout: Layout, port: int) -> dict[str, Path]:
    """Make the client's key and the guest's host key and pin the latter in known_hosts.

    Returns the files that the guest takes as system credentials (name: file): root's authorised
    key, and lines for systemd-tmpfiles that put the host key in its place.
    """
    host_key = layout.directory / "host_ed25519"
    for key in (layout.key, host_key):
        for old in (key, key.with_suffix(".pub")):
            old.unlink(missing_ok=True)
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "fde-lab", "-f", str(key)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    public = host_key.with_suffix(".pub").read_text(encoding="utf-8")
    kind, blob = public.split()[:2]
    layout.known_hosts.write_text(f"[127.0.0.1]:{port} {kind} {blob}\n", encoding="utf-8")

    place = layout.directory / "tmpfiles.conf"
    place.touch(mode=0o600)
    encoded = base64.b64encode(host_key.read_bytes()).decode()
    line = f"f+~ /etc/ssh/ssh_host_ed25519_key 0600 root root - {encoded}\n"
    place.write_text(line, encoding="utf-8")
    return {
        "ssh.authorized_keys.root": layout.key.with_suffix(".pub"),
        "tmpfiles.extra": place,
    }


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
    flags = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    address = f"{ssh['user']}@{ssh['host']}"
    return ["ssh", "-F", "none", "-i", ssh["key"], "-p", str(ssh["port"]), *flags, address, *remote]
