"""Waiting until the guest answers."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from contract.errors import LabError
from lab import ssh
from lab.cache import Say
from lab.devices import by_id
from lab.launcher import tail
from lab.network import Network
from lab.state import Layout

ROOT_DISK = "/dev/disk/by-label/fde-root"
BOOT_LIMIT_S = 600.0
BANNER_LIMIT_S = 8.0
SSH_FAILED = 255
BOOT_WORDS = b"Loading, please wait..."  # the initrd's first, at every boot
LAST_WORDS = (b"Kernel panic - not syncing", b"Rebooting automatically due to panic=")


def wait_for_guest(
    layout: Layout, state: Mapping[str, Any], alive: Callable[[], bool], say: Say
) -> None:
    """Wait until the guest answers by SSH and has its drives, saying how long it takes."""
    links = [by_id(drive["model"], drive["serial"]) for drive in state["drives"].values()]
    question = ["udevadm", "wait", "--timeout=60", ROOT_DISK, *links]
    started = reported_s = time.monotonic()
    while True:
        answer = _ask(state, question)
        if answer is not None and answer.returncode == 0:
            return
        elapsed = time.monotonic() - started
        refused = answer is not None and answer.returncode != SSH_FAILED
        dead = not alive() or gave_up(layout.console)
        if refused or dead or elapsed > BOOT_LIMIT_S:
            reason = answer.stderr.strip() if answer is not None else "no answer by SSH"
            raise LabError(
                f"the guest did not come up within {elapsed:.0f} s ({reason}); the last lines of "
                f"its console ({layout.console}):\n{tail(layout.console)}"
            )
        if time.monotonic() - reported_s >= 5:
            say(f"lab: the guest is booting, {elapsed:.0f} s")
            reported_s = time.monotonic()
        time.sleep(0.2)


def _ask(state: Mapping[str, Any], question: list[str]) -> subprocess.CompletedProcess[str] | None:
    """Run a command in the guest; None while its SSH server is not there yet."""
    if not sshd_greets(state):
        return None
    command = ssh.command(state["ssh"], question)
    return subprocess.run(command, capture_output=True, text=True, check=False)


def sshd_greets(state: Mapping[str, Any]) -> bool:
    """Whether the guest's SSH server sends its banner.

    QEMU accepts connections before the guest does and hands them on once it can; every ssh client
    that gave up in between would cost the freshly booted guest a key exchange.
    """
    host, port = state["address"]
    try:
        with Network(state["network_pid"]).connect((host, port), BANNER_LIMIT_S) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def gave_up(console: Path) -> bool:
    """Whether the guest's kernel or initrd gave up, and has not booted since."""
    if not console.exists():
        return False
    since_boot = console.read_bytes().rpartition(BOOT_WORDS)[2]
    return any(words in since_boot for words in LAST_WORDS)
