"""Results brought from the target, and the suite folder sealed with sums of all its files."""

from __future__ import annotations

import logging
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from contract import bounded, derived, packed
from contract import plan as plans
from contract.documents import ManifestDocument
from contract.errors import ControllerError
from contract.files import sha256_of, sync_folder, write_json
from contract.interrupts import uninterrupted
from contract.places import command_line
from contract.plan import TargetDocument
from contract.suite_files import SEALED, SEALED_FOLDERS
from controller.session import timing
from controller.session.recorders import end_leftovers
from controller.session.suite_folder import LEAST_FREE_BYTES
from controller.targets import connection

log = logging.getLogger(__name__)

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
                if file.read(2) == b"\x1f\x8b":  # the agent's is not; this could unpack to anything
                    raise ValueError("it is compressed")
                file.seek(0)
                packed.extract(file, Path(temporary))
        except (tarfile.TarError, OSError, ValueError, TypeError) as error:
            raise ControllerError(
                "results-damaged", error=error, command=command_line("resume", suite_dir)
            ) from None
        came = Path(temporary) / plan.suite_id
        if plans.load(came / "plan.json").sha256 != plan.sha256:
            raise ControllerError("results-of-other-plan", suite_id=plan.suite_id)
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


def most_archive_bytes(plan: plans.Plan, suite_dir: Path) -> int:
    """Return how large the archive of a suite's results may be: as its plan and the disk allow.

    It is unpacked beside itself, and something must be left.
    """
    free_bytes = shutil.disk_usage(suite_dir).free - LEAST_FREE_BYTES
    return min(plan.most_result_bytes, max(bounded.MOST_ANSWER_BYTES, free_bytes // 2))


def salvage(target: TargetDocument, suite_dir: Path) -> bool:
    """Bring over what there is after an interruption, without Ansible; whether that succeeded."""
    plan = plans.load(suite_dir / "plan.json")
    argv = connection.python(
        target, "-m", "agent", "pack", "--suite-dir", connection.suite_dir(plan.suite_id)
    )
    most_bytes = most_archive_bytes(plan, suite_dir)
    with tempfile.NamedTemporaryFile(dir=suite_dir, prefix=".salvage-") as archive:
        try:
            done = bounded.run(
                argv,
                limit_s=SALVAGE_LIMIT_S,
                most_bytes=most_bytes,
                out=archive,
            )
            if done.returncode:
                log.warning("nothing was brought over: %s", done.stderr.decode(errors="replace"))
                return False
            archive.flush()
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


FORMAT = "fde-manifest/1"
MANIFEST = "manifest.json"


def seal(suite_dir: Path, *, decoded: bool = False) -> Path:
    """Decode and sum everything; the manifest is written last and whole. Returns its path.

    `decoded`: the meters are, and nothing was recorded since. Sealing again gives the same manifest
    for the same raw files. All that it names is on the medium before it, and it itself once this
    returns. Raises ControllerError.
    """
    try:
        return _sealed(suite_dir, decoded)
    except OSError as error:
        raise ControllerError(
            "not-sealed",
            path=error.filename or suite_dir,
            reason=error.strerror,
            suite_dir=suite_dir,
        ) from error


def _sealed(suite_dir: Path, decoded: bool) -> Path:
    unseal(suite_dir)
    end_leftovers(suite_dir)  # a recorder that continues would change what is sealed
    if not decoded:
        decode(suite_dir)
    try:
        times = timing.read_suite(suite_dir)
    except (ValueError, OverflowError) as error:
        raise ControllerError(
            "run-times-unread",
            suite_dir=suite_dir,
            error=error,
            command=command_line("resume", suite_dir),
        ) from None
    write_json(suite_dir / "timing.json", times.document())
    shutil.rmtree(suite_dir / "status" / "meters", ignore_errors=True)
    sums = {
        str(path.relative_to(suite_dir)): sha256_of(path, sync=True) for path in files(suite_dir)
    }
    for folder in _folders(suite_dir):
        sync_folder(folder)
    write_json(suite_dir / MANIFEST, asdict(ManifestDocument("fde-manifest/1", sums)))
    return suite_dir / MANIFEST


def unseal(suite_dir: Path) -> None:
    """Take the manifest away, for good before anything that it names changes."""
    (suite_dir / MANIFEST).unlink(missing_ok=True)
    sync_folder(suite_dir)


def _folders(suite_dir: Path) -> Iterator[Path]:
    """All that have names of what is sealed, the inner ones first."""
    for name in SEALED_FOLDERS:
        inner = [path for path in (suite_dir / name).rglob("*") if path.is_dir()]
        yield from sorted(inner, reverse=True)
        if (suite_dir / name).is_dir():
            yield suite_dir / name
    yield from (suite_dir, suite_dir.resolve().parent)


def decode(suite_dir: Path) -> None:
    """Write samples.parquet beside every stream, and that it was decoded here.

    Raises ControllerError.
    """
    from instrumentation.decode import DecodeError, write_samples  # takes a second: only when used

    for folder in sorted((suite_dir / "meters").glob("*/")):
        if not any(path.stat().st_size for path in folder.iterdir()):
            shutil.rmtree(folder)  # its recorder was killed before it began
            continue
        try:
            write_samples(folder)
        except DecodeError as error:
            raise ControllerError(error) from error
    mark_samples(suite_dir)


def mark_samples(suite_dir: Path) -> None:
    """Note that the samples in a suite's folder were decoded here."""
    decoded = (suite_dir / "meters").glob("*/samples.parquet")
    names = [path.relative_to(suite_dir).as_posix() for path in decoded]
    derived.mark(suite_dir, names, derived.plan_sum(suite_dir))


def files(suite_dir: Path) -> Iterator[Path]:
    """Yield what a seal covers: all but what `fde report` derives."""
    for name in SEALED:
        if (suite_dir / name).is_file():
            yield suite_dir / name
    for name in SEALED_FOLDERS:
        yield from sorted(path for path in (suite_dir / name).rglob("*") if path.is_file())
