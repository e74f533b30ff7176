"""A host's session with nothing in its way: `python -m …stand_in_session SUITES SECONDS …`.

The session, its recorders and its clock are the real ones; Ansible's part is done here, and
stand_in_agent stands for the agent. What follows are the arguments of `python -m controller
run`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from agent.system import lock
from contract.errors import AgentError
from contract.places import ROOT
from contract.plan import read_target
from controller.session import session
from controller.targets import connection, playbook


def main(suites: Path, seconds: str, folder: Path, target: Path) -> int:
    """0 sealed, 1 refused or failed with a sentence, 130 interrupted."""
    connection.SUITES = str(suites)
    target_folder = suites / folder.name

    def play(tag: str, **given: Any) -> None:
        if tag == "start":
            target_folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(given["variables"]["suite_plan_file"], target_folder / "plan.json")
            argv = [sys.executable, "-m", "controller.tests.stand_in_agent", str(target_folder)]
            lease = str(suites / "hold" / "hold.json")
            agent = subprocess.Popen([*argv, seconds, lease], cwd=ROOT)
            while lock.holder(target_folder) is None and agent.poll() is None:
                time.sleep(0.05)
        else:
            argv = [
                sys.executable,
                "-m",
                "agent",
                "pack",
                "--suite-dir",
                str(target_folder),
                "--out",
            ]
            argv.append(given["variables"]["suite_archive_file"])
            subprocess.run(argv, check=True, cwd=ROOT)

    playbook.suite = play
    try:
        session.run(folder, read_target(target), Path("inventory"), print)
    except AgentError as error:
        print(f"fde: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fde: interrupted, what was measured is kept.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    given_suites, given_seconds, given_folder, *rest = sys.argv[1:]
    file = Path(rest[rest.index("--target") + 1])
    sys.exit(main(Path(given_suites), given_seconds, Path(given_folder), file))
