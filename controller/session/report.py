"""Make the report of a sealed suite and verify it, each in a separate process."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from contract.places import module_command

LIMIT_S = 3600.0


def make_report(suite_dir: Path, say: Callable[[str], None]) -> str:
    """Make the report and verify the suite; return both outcomes as a clause.

    Both are separate processes, so that no failure of theirs changes the sealed suite.
    """
    outcomes = []
    for step in ("report", "verify"):
        say(f"{step}: at work")
        try:
            completed = subprocess.run(
                module_command("controller", step, str(suite_dir)),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LIMIT_S,
                check=False,
                start_new_session=True,
            )
            lines = completed.stderr.strip().splitlines() or ["no output"]
            reason = lines[-1].removeprefix("fde: ") if completed.returncode else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            reason = str(error)
        outcomes.append(f"{step} failed: {reason}" if reason else f"{step} passed")
        say(outcomes[-1])
    return f"sealed; {'; '.join(outcomes)}"
