"""Starting the guest, and waiting until it answers."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab import ssh, vm
from lab.devices import DRIVES
from lab.errors import LabError
from lab.launcher import READY_LIMIT_S, Launcher
from lab.state import Layout

Say = Callable[[str], None]

BOOT_LIMIT_S = 600.0
SSH_FAILED = 255


def start_qemu(launcher: Launcher, command: Sequence[str], qmp: Path) -> subprocess.Popen[bytes]:
    """Start QEMU and wait until it answers; raises LabError with its last lines."""
    process = launcher.start("qemu", command)
    _wait_for_qmp(launcher.layout, process, qmp)
    return process


def _wait_for_qmp(layout: Layout, process: subprocess.Popen[bytes], path: Path) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            log = vm.tail(layout.directory / "qemu.log")
            raise LabError(f"QEMU did not start; its last lines:\n{log}")
        time.sleep(0.05)


def wait_for_guest(
    layout: Layout, state: Mapping[str, Any], alive: Callable[[], bool], say: Say
) -> None:
    """Wait until the guest answers by SSH and has its drives, saying how long it takes."""
    links = [kind.by_id for kind in DRIVES if kind.role in state["drives"]]
    question = ["udevadm", "wait", "--timeout=60", "/dev/vda", *links]
    started = said = time.monotonic()
    while True:
        answer = _ask(state["ssh"], question)
        if answer is not None and answer.returncode == 0:
            return
        elapsed = time.monotonic() - started
        refused = answer is not None and answer.returncode != SSH_FAILED
        dead = not alive() or vm.gave_up(layout.console)
        if refused or dead or elapsed > BOOT_LIMIT_S:
            reason = answer.stderr.strip() if answer is not None else "no answer by SSH"
            raise LabError(
                f"the guest did not come up within {elapsed:.0f} s ({reason}); the last lines of "
                f"its console ({layout.console}):\n{vm.tail(layout.console)}"
            )
        if time.monotonic() - said >= 5:
            say(f"lab: the guest is booting, {elapsed:.0f} s")
            said = time.monotonic()
        time.sleep(0.5)


def _ask(where: Mapping[str, Any], question: list[str]) -> subprocess.CompletedProcess[str] | None:
    """Run a command in the guest; None while its SSH server is not there yet."""
    if not sshd_greets(where["port"]):
        return None
    command = ssh.command(where, question)
    return subprocess.run(command, capture_output=True, text=True, check=False)


def sshd_greets(port: int) -> bool:
    """Whether the guest's SSH server sends its banner.

    QEMU accepts connections before the guest does and hands them on once it can; every ssh client
    that gave up in between would cost the freshly booted guest a key exchange.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=8) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
