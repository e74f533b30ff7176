"""What is expensive to make and kept for every checkout: made once, under a lock, whole or not."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from contract.errors import LabError
from lab.state import read_json, require_room

Say = Callable[[str], None]

KEPT = 2
BUILDING = "building-"
FACTS = "build.json"
FAILED_LOG = "failed-build.log"
TAIL_LINES = 15


class StoppedError(LabError):
    """A build that was not needed any more."""


def content_hash(files: Iterable[Path], base: Path, recipe: str) -> str:
    """Hash of `recipe` and of the files: paths below `base`, execute bits and contents.

    The order of `files` does not matter, nor where `base` is.
    """
    digest = hashlib.sha256(recipe.encode())
    for file in sorted(files):
        content = file.read_bytes()
        executable = os.access(file, os.X_OK)
        head = f"{file.relative_to(base).as_posix()}\0{int(executable)}\0{len(content)}\0"
        digest.update(head.encode() + content)
    return digest.hexdigest()[:16]


def ensure(
    directory: Path, what: str, room_bytes: int, build: Callable[[Path], None], say: Say
) -> None:
    """Have `directory`, filled by `build` if it is not there; `what` names it in messages.

    Directories beside it are older ones: all but the `KEPT` newest are dropped. Raises LabError.
    """
    if directory.exists():
        return
    siblings = directory.parent
    require_room(siblings, room_bytes, f"the guest's {what}")
    siblings.mkdir(parents=True, exist_ok=True)
    with _lock(siblings / "lock", what, say):
        if directory.exists():
            return
        started = time.monotonic()
        _sweep(siblings)
        temporary = Path(tempfile.mkdtemp(prefix=BUILDING, dir=siblings))
        try:
            build(temporary)
            seconds = time.monotonic() - started
            files = [p for p in temporary.rglob("*") if p.is_file()]
            allocated = sum(p.stat().st_blocks * 512 for p in files)
            facts = read_json(temporary / FACTS) or {}
            facts |= {"build_s": round(seconds, 1), "allocated_bytes": allocated}
            (temporary / FACTS).write_text(json.dumps(facts) + "\n", encoding="utf-8")
            temporary.chmod(0o755)
            temporary.rename(directory)
            (siblings / FAILED_LOG).unlink(missing_ok=True)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        say(f"{what}: {allocated / 1e9:.2f} GB made in {seconds:.0f} s: {directory}")


def require_programs(*programs: str) -> None:
    """Raises LabError for the first that is missing."""
    for program in programs:
        if shutil.which(program, path=system_path()) is None:
            raise LabError(f"the program {program} is missing: run `make packages`")


@contextmanager
def work_directory(what: str, room_bytes: int, target: Path) -> Iterator[tuple[Path, Path]]:
    """A scratch directory that a namespace's users can reach, unlike a home directory, and in it
    the build's log, which is kept beside `target` if the build fails.
    """
    base = os.environ.get("TMPDIR") or "/var/tmp"
    require_room(Path(base), room_bytes, f"building the guest's {what}")
    work = Path(tempfile.mkdtemp(prefix=f"fde-{what}-", dir=base))
    work.chmod(0o755)
    log = work / "build.log"
    try:
        yield work, log
    except StoppedError:
        raise
    except LabError as error:
        kept = target.parent / FAILED_LOG
        shutil.copyfile(log, kept)
        raise LabError(
            f"building the guest's {what} failed (the whole log: {kept}): {error}"
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def system_path() -> str:
    """Search path with the system directories that an ordinary user's may lack."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def run(
    command: Sequence[str],
    log: Path,
    on_line: Callable[[str], None] = lambda _line: None,
    *,
    environment: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Run one step of a build, its output to the log and line by line to `on_line`.

    Raises LabError with its last lines where it fails, StoppedError where `stop` is set meanwhile.
    """
    tail: list[str] = []
    with (
        log.open("a", encoding="utf-8") as out,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, "PATH": system_path(), **(environment or {})},
            start_new_session=stop is not None,
        ) as process,
    ):
        assert process.stdout is not None
        if stop is not None:
            threading.Thread(target=_end_when, args=(stop, process), daemon=True).start()
        for line in process.stdout:
            out.write(line)
            tail = [*tail[1 - TAIL_LINES :], line.rstrip()]
            on_line(line.rstrip())
    if stop is not None and stop.is_set():
        raise StoppedError("the build was stopped")
    if process.returncode != 0:
        last = "\n".join(tail)
        raise LabError(f"the step {command[0]} failed; its last lines:\n{last}")


def _end_when(stop: threading.Event, process: subprocess.Popen[str]) -> None:
    """End a step, with all that it started, once `stop` is set."""
    while process.poll() is None:
        if stop.wait(0.1):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            return


def _sweep(siblings: Path) -> None:
    """Drop what a killed build left behind, and old results but the two last made.

    The caller holds the lock, so nobody is building. A guest that runs on a dropped image keeps it:
    its files are open.
    """
    for leftover in siblings.glob(f"{BUILDING}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    finished = sorted(siblings.glob(f"*/{FACTS}"), key=lambda p: p.stat().st_mtime, reverse=True)
    for old in finished[KEPT:]:
        shutil.rmtree(old.parent, ignore_errors=True)


@contextmanager
def _lock(path: Path, what: str, say: Say) -> Iterator[None]:
    """One build at a time; the kernel lets go of the lock if the builder dies."""
    with path.open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{what}: another build is under way; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise LabError(f"cannot lock {path}: {error.strerror}") from error
        yield
