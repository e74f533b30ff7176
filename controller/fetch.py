"""Results of the agent brought into the suite folder, every file compared with its sum."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from agent import pack
from contract import plan as plans
from contract import strict_json
from contract.errors import ControllerError
from contract.files import sync_folder
from contract.interrupts import uninterrupted
from controller import remote

SALVAGE_LIMIT_S = 120.0
# The journal last: whatever it tells of is there before it.
TAKEN = ("watermark.jsonl", "provenance", "precondition", "runs", "requests.jsonl", "journal.jsonl")


def unpack(archive: Path, suite_dir: Path) -> None:
    """Take journal, runs and what belongs to them out of what `python3 -m agent pack` has written.

    Nothing is taken unless all of it is whole. Raises ControllerError if a sum differs, a file is
    missing, or the archive is another suite's or cannot be read.
    """
    plan = plans.load(suite_dir / "plan.json")
    with tempfile.TemporaryDirectory(dir=suite_dir, prefix=".incoming-") as temporary:
        try:
            with archive.open("rb") as file:
                _extract(file, Path(temporary))
        except (tarfile.TarError, OSError, ValueError, TypeError) as error:
            raise ControllerError(
                f"The fetched results are not whole ({error}): fetch them again with make resume "
                f"SUITE_DIR={suite_dir}."
            ) from None
        came = Path(temporary) / plan.suite_id
        if plans.load(came / "plan.json").sha256 != plan.sha256:
            raise ControllerError(
                f"The target ran another plan under the name {plan.suite_id}: its results were not "
                "taken; make a new plan."
            )
        for folder in (*came.rglob("*/"), came):
            if folder.is_dir():
                sync_folder(folder)
        with uninterrupted():
            for name in TAKEN:
                if (came / name).exists():
                    if (suite_dir / name).is_dir():  # the target keeps all that it ever had
                        (suite_dir / name).rename(Path(temporary) / f"{name}.old")
                    (came / name).replace(suite_dir / name)
                    sync_folder(suite_dir)


def _extract(file: IO[bytes], to: Path) -> None:
    """All members; raises ValueError where the sums do not hold."""
    with tarfile.open(fileobj=file, mode="r|") as tar:
        sums: dict[str, str] | None = None
        for member in tar:
            content = tar.extractfile(member)
            if content is None:
                continue
            if sums is None:
                if member.name != pack.SUMS:
                    raise ValueError("it does not begin with its sums")
                sums = dict(strict_json.loads(content.read()))
                continue
            place = (to / member.name).resolve()
            if not place.is_relative_to(to.resolve()):
                raise ValueError(f"{member.name} would lie outside of the suite")
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as out:
                shutil.copyfileobj(content, out)
                out.flush()
                os.fsync(out.fileno())
            if _sha256(place) != sums.pop(member.name, None):
                raise ValueError(f"the sum of {member.name} differs")
        if sums is None or sums:
            raise ValueError(f"{next(iter(sums or {'all'}))} is missing")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def salvage(target: Mapping[str, Any], suite_dir: Path) -> bool:
    """Bring over what there is after an interruption, without Ansible; whether that succeeded."""
    suite_id = plans.load(suite_dir / "plan.json").suite_id
    argv = remote.python(target, "-m", "agent", "pack", "--suite-dir", remote.suite_dir(suite_id))
    with tempfile.NamedTemporaryFile(dir=suite_dir, prefix=".salvage-") as archive:
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=archive,
                stderr=subprocess.DEVNULL,
                timeout=SALVAGE_LIMIT_S,
                check=False,
                start_new_session=True,
            )
            if done.returncode:
                return False
            unpack(Path(archive.name), suite_dir)
        except (subprocess.TimeoutExpired, ControllerError, plans.PlanError, OSError):
            return False
    return True


def clean_up_after_kill(suite_dir: Path) -> None:
    """Remove what a session that was killed had half fetched."""
    for leftover in (*suite_dir.glob(".salvage-*"), suite_dir / ".fetched.tar"):
        leftover.unlink(missing_ok=True)
    for leftover in suite_dir.glob(".incoming-*"):
        shutil.rmtree(leftover)
