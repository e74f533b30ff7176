"""A guest as somebody's machine: an ordinary account with `fde` from pip, and sudo as it may be."""

from __future__ import annotations

import enum
import json
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from lab import power, ssh
from lab.cache import Say
from lab.state import Layout, SshState
from validation.first_use import installed
from validation.first_use.guest import Guest
from validation.own_machine import battery

USER, PASSWORD = installed.USER, "correct horse battery"
SUDOERS = f"/etc/sudoers.d/{USER}"
SUDO, AWAY = "/usr/bin/sudo", "/usr/bin/sudo.away"
TRACES = Path(__file__).parent / "guest" / "traces.py"
LOGIN = f"""
install -d -m 700 -o {USER} -g {USER} /home/{USER}/.ssh
install -m 600 -o {USER} -g {USER} /root/.ssh/authorized_keys /home/{USER}/.ssh/authorized_keys
echo 'export PATH="$HOME/env/bin:$PATH"' >/home/{USER}/.profile
echo '{USER}:{PASSWORD}' | chpasswd
"""


class Sudo(enum.Enum):
    """What the user may do with sudo, as the script that root runs for it."""

    FREE = f"echo '{USER} ALL=(root) NOPASSWD: ALL' >{SUDOERS}"
    PASSWORD = f"echo '{USER} ALL=(root) ALL' >{SUDOERS}"
    DENIED = f"rm -f {SUDOERS}"
    MISSING = f"mv {SUDO} {AWAY}"


@dataclass(frozen=True)
class OwnMachine:
    """Somebody's machine: the guest of the lab in this folder."""

    layout: Layout

    @classmethod
    def furnish(cls, layout: Layout, say: Say) -> OwnMachine:
        """Give a running guest the user, `fde` by pip, and a login. Raises LabError."""
        machine = cls(layout)
        installed.send(machine.root, installed.wheels(say))
        machine.root(installed.as_user(installed.INSTALL))
        machine.root(LOGIN)
        return machine

    @property
    def guest(self) -> Guest:
        return Guest.from_folder(self.layout.directory)

    def root(self, script: str, data: bytes | None = None) -> str:
        """Run a script as root and return its output. Raises RuntimeError if it fails."""
        return self.guest.sh(script, data)

    def permit(self, sudo: Sudo) -> None:
        """Set what the user may do with sudo, from the next command on."""
        self.root(f"[ -e {SUDO} ] || mv {AWAY} {SUDO}; rm -rf /run/sudo/ts; {sudo.value}")
        self.root(f"[ ! -e {SUDOERS} ] || chmod 440 {SUDOERS}")

    def typed(
        self, line: str, stdin: str | None = None, limit_s: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a line in the user's login shell, without a terminal."""
        return subprocess.run(
            self._login([f"bash -lc {shlex.quote(line)}"]),
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
        )

    def at_terminal(self, line: str, log: Path, columns: int = 80) -> subprocess.Popen[bytes]:
        """Start a line at a terminal; its keys are `stdin`, its screen's bytes go to `log`."""
        shown = f"stty cols {columns} rows 24; exec bash -lc {shlex.quote(line)}"
        with log.open("wb") as screen:
            return subprocess.Popen(
                self._login([shown], "-tt"),
                stdin=subprocess.PIPE,
                stdout=screen,
                stderr=subprocess.STDOUT,
                bufsize=0,
            )

    def traces(self) -> dict[str, list[str]]:
        """Return what programs left on the machine, by kind."""
        kinds: dict[str, list[str]] = json.loads(self.root("python3 -", TRACES.read_bytes()))
        return kinds

    def show_battery(self) -> None:
        """Show the battery in the guest; to be repeated after it has started again."""
        self.root(battery.SHOW)

    def cut_power(self) -> None:
        """Take the power away and give it back: what was not on the medium is lost."""
        power.power_cut(self.layout)
        power.power_on(self.layout)
        power.wait_until_up(self.layout, lambda _line: None)

    def _login(self, remote: Sequence[str], *options: str) -> list[str]:
        link = cast(SshState, {**self.guest.state["ssh"], "user": USER})
        program, *rest = ssh.command(link, remote)
        return [program, *options, *rest]
