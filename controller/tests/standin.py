"""A stand-in for the target: ssh is a local shell, the agent's commands are real."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from contract.places import ROOT
from contract.tests.programs import program
from controller.targets import connection

SSH = """#!/bin/sh
if [ -e {folder}/unplugged ]; then echo "ssh: No route to host" >&2; exit 255; fi
for last; do :; done
case $last in *"| base64 -d)"*)  # connection.py: what a login shell may not take as it is
  last=$(echo "$last" | sed 's/.*(echo //; s/ .*//' | base64 -d) ;;
esac
last=${{last#exec }}
echo "$$ $last" >>{folder}/asked
last=$(echo "$last" | sed 's#/opt/fde-testbed#{root}#g
  s#-m agent #-m controller.tests.stand_in_command {folder}/hold #')
cd {root} && exec sh -c "exec $last"
"""
SYSTEMCTL = """#!/bin/sh
case "$1" in
  show) cat {folder}/unit ;;
  is-system-running) cat {folder}/system ;;
  start) touch {folder}/started ;;
esac
"""


class Standin:
    """A stand-in for a target; `suites` replaces /var/lib/fde-testbed/suites."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.suites = folder / "suites"
        self.suites.mkdir(parents=True)
        self.unit("inactive")
        programs = folder / "bin"
        root = folder / "root"  # as on a target, no blank in it
        root.symlink_to(ROOT)
        for name, text in (("ssh", SSH), ("systemctl", SYSTEMCTL), ("journalctl", "#!/bin/sh\n")):
            program(programs / name, text.format(folder=folder, root=root))
        (programs / "python3").symlink_to(sys.executable)
        venv = Path(sys.executable).parent
        monkeypatch.setenv("PATH", f"{programs}:{venv}:{os.environ['PATH']}")
        monkeypatch.setattr(connection, "SUITES", str(self.suites))

    def unit(self, state: str, job: str = "0", system: str = "running") -> None:
        """Set the state that systemd reports of the agent's service."""
        (self.folder / "unit").write_text(f"ActiveState={state}\nJob={job}\n", encoding="utf-8")
        (self.folder / "system").write_text(f"{system}\n", encoding="utf-8")

    def unplug(self, away: bool = True) -> None:
        """Make new connections fail, or work again."""
        place = self.folder / "unplugged"
        place.touch() if away else place.unlink()

    def drop(self, words: str) -> None:
        """Kill the last connection whose command contains `words`."""
        pid = next(line for line in reversed(self.asked.splitlines()) if words in line).split()[0]
        os.kill(int(pid), signal.SIGKILL)

    @property
    def lease(self) -> Path:
        """The file of a hold, on a target below /run."""
        return self.folder / "hold" / "hold.json"

    @property
    def started(self) -> bool:
        """Whether systemd was asked to start the service."""
        return (self.folder / "started").exists()

    @property
    def asked(self) -> str:
        """All commands that arrived over ssh, each after its pid."""
        path = self.folder / "asked"
        return path.read_text(encoding="utf-8") if path.exists() else ""
