"""Results of the agent brought into the suite folder."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent import plan as plans
from agent.controller import remote
from agent.controller.errors import ControllerError

SALVAGE_LIMIT_S = 60.0
TAKEN = ("journal.jsonl", "watermark.jsonl", "runs", "provenance")


def unpack(archive: Path, suite_dir: Path) -> None:
    """Take journal, runs and provenance out of the archive.

    Raises ControllerError if it is another suite's or cannot be read.
    """
    plan = plans.load(suite_dir / "plan.json")
    with tempfile.TemporaryDirectory(dir=suite_dir, prefix=".incoming-") as temporary:
        argv = ["tar", "--no-same-owner", "-C", temporary, "-xf", str(archive)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ControllerError(
                f"The fetched results cannot be unpacked ({done.stderr.strip()}): fetch them again "
                f"with make resume SUITE_DIR={suite_dir}."
            )
        came = Path(temporary) / plan.suite_id
        if plans.load(came / "plan.json").sha256 != plan.sha256:
            raise ControllerError(
                f"The target ran another plan under the name {plan.suite_id}: its results were not "
                "taken; make a new plan."
            )
        for name in TAKEN:
            if (came / name).exists():
                _replace(came / name, suite_dir / name)


def salvage(target: Mapping[str, Any], suite_dir: Path) -> bool:
    """Bring over what there is after an interruption, without Ansible; whether that succeeded."""
    suite_id = plans.load(suite_dir / "plan.json").suite_id
    argv = remote.ssh(target, ["tar", "-C", remote.SUITES, "-cf", "-", suite_id])
    with tempfile.NamedTemporaryFile(dir=suite_dir, prefix=".salvage-") as archive:
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=archive,
                stderr=subprocess.DEVNULL,
                timeout=SALVAGE_LIMIT_S,
                check=False,
            )
            # tar ends with 1 where a file grew while it was read; the journal may.
            if done.returncode > 1:
                return False
            unpack(Path(archive.name), suite_dir)
        except (subprocess.TimeoutExpired, ControllerError, plans.PlanError):
            return False
    return True


def _replace(source: Path, place: Path) -> None:
    if source.is_dir():
        place.mkdir(exist_ok=True)
        for entry in source.iterdir():
            _replace(entry, place / entry.name)
    else:
        shutil.move(source, place)
