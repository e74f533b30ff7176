"""Fetch a suite's results from the target into its folder here."""

from __future__ import annotations

import logging
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from contract import bounded, packed
from contract import plan as plans
from contract.errors import ControllerError
from contract.files import sync_path
from contract.interrupts import uninterrupted
from contract.places import command_line
from contract.plan import TargetDocument
from controller.session.suite_folder import LEAST_FREE_BYTES
from controller.targets import connection

log = logging.getLogger(__name__)

SALVAGE_LIMIT_S = 120.0
# The journal is the last: all files that it refers to are in place before it.
TAKEN = ("watermark.jsonl", "provenance", "precondition", "runs", "requests.jsonl", "journal.jsonl")


def unpack(archive: Path, suite_dir: Path) -> None:
    """Unpack the archive of `python3 -m agent pack` (journal, runs, …) into the suite's folder.

    Changes nothing unless the archive is complete. Raises ControllerError if a sum differs, a file
    is missing, or the archive belongs to another suite or cannot be read.
    """
    plan = plans.load(suite_dir / "plan.json")
    with tempfile.TemporaryDirectory(dir=suite_dir, prefix=".incoming-") as temporary:
        try:
            with archive.open("rb") as file:
                if file.read(2) == b"\x1f\x8b":  # the agent's never is; it has no bound on its size
                    raise ValueError("it is compressed")
                file.seek(0)
                packed.extract(file, Path(temporary))
        except (tarfile.TarError, OSError, ValueError, TypeError) as error:
            raise ControllerError(
                "results-damaged", error=error, command=command_line("resume", suite_dir)
            ) from None
        unpacked = Path(temporary) / plan.suite_id
        if plans.load(unpacked / "plan.json").sha256 != plan.sha256:
            raise ControllerError("results-of-other-plan", suite_id=plan.suite_id)
        for folder in (*unpacked.rglob("*/"), unpacked):
            if folder.is_dir():
                sync_path(folder)
        with uninterrupted():
            for name in TAKEN:
                if (unpacked / name).exists():
                    if (suite_dir / name).is_dir():  # the target still has all of it
                        (suite_dir / name).rename(Path(temporary) / f"{name}.old")
                    (unpacked / name).replace(suite_dir / name)
                    sync_path(suite_dir)


def most_archive_bytes(plan: plans.Plan, suite_dir: Path) -> int:
    """Return the largest archive of a suite's results that its plan and this disk allow.

    Unpacking needs its size a second time, and `LEAST_FREE_BYTES` must remain.
    """
    free_bytes = shutil.disk_usage(suite_dir).free - LEAST_FREE_BYTES
    return min(plan.most_result_bytes, max(bounded.MOST_ANSWER_BYTES, free_bytes // 2))


def salvage(target: TargetDocument, suite_dir: Path) -> bool:
    """Fetch the results after an interruption, without Ansible; return whether that succeeded."""
    plan = plans.load(suite_dir / "plan.json")
    argv = connection.python(
        target, "-m", "agent", "pack", "--suite-dir", connection.suite_dir(plan.suite_id)
    )
    most_bytes = most_archive_bytes(plan, suite_dir)
    with tempfile.NamedTemporaryFile(dir=suite_dir, prefix=".salvage-") as archive:
        try:
            completed = bounded.run(
                argv, limit_s=SALVAGE_LIMIT_S, most_bytes=most_bytes, out=archive
            )
            if completed.returncode:
                output = completed.stderr.decode(errors="replace")
                log.warning("nothing was brought over: %s", output)
                return False
            archive.flush()
            unpack(Path(archive.name), suite_dir)
        except (subprocess.TimeoutExpired, ControllerError, plans.PlanError, OSError):
            return False
    return True


def clean_up_after_kill(suite_dir: Path) -> None:
    """Remove the partial archives of a session that was killed."""
    for leftover in (*suite_dir.glob(".salvage-*"), suite_dir / ".fetched.tar"):
        leftover.unlink(missing_ok=True)
    for leftover in suite_dir.glob(".incoming-*"):
        shutil.rmtree(leftover)
