"""Commands on the target over SSH, from the `ssh` part of its resolved description."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

HOME = "/opt/fde-testbed"
SUITES = "/var/lib/fde-testbed/suites"


def ssh(target: Mapping[str, Any], remote: Sequence[str]) -> list[str]:
    """The argv that runs `remote` on the target, never asking anything at the terminal."""
    link = target["ssh"]
    argv = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "LogLevel=ERROR"]
    # A dead link must be noticed, else progress would hang for as long as TCP retries.
    argv += ["-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"]
    if link.get("known_hosts"):
        argv += ["-o", f"UserKnownHostsFile={link['known_hosts']}"]
        argv += ["-o", "StrictHostKeyChecking=yes"]
    if link.get("key"):
        argv += ["-o", "IdentitiesOnly=yes", "-i", link["key"]]
    return [*argv, "-p", str(link["port"]), f"{link['user']}@{link['host']}", shlex.join(remote)]


def python(target: Mapping[str, Any], *arguments: str) -> list[str]:
    """The argv that runs `python3 …` with our packages on the target."""
    path = f"PYTHONPATH={HOME}:{HOME}/lib"
    return ssh(target, ["env", path, "python3", *arguments])


def suite_dir(suite_id: str) -> str:
    """The folder of a suite on the target."""
    return f"{SUITES}/{suite_id}"
