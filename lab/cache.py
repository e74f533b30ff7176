"""Cache expensive builds for all checkouts; each is built once, under a lock, and atomically."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pwd
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from contract.errors import LabError
from contract.files import sha256_of, write_json
from contract.strict_json import read_object
from lab.state import require_room

Say = Callable[[str], None]

KEPT = 2
BUILDING = "building-"
FACTS = "build.json"
SUMS = "sums.json"
FAILED_LOG = "failed-build.log"
TAIL_LINES = 15


def content_hash(files: Iterable[Path], base: Path, recipe: str) -> str:
    """Return the hash of `recipe` and of the files: paths below `base`, execute bits and contents.

    Neither the order of `files` nor the place of `base` matters.
    """
    digest = hashlib.sha256(recipe.encode())
    for file in sorted(files):
        content = file.read_bytes()
        executable = os.access(file, os.X_OK)
        head = f"{file.relative_to(base).as_posix()}\0{int(executable)}\0{len(content)}\0"
        digest.update(head.encode() + content)
    return digest.hexdigest()[:16]


def ensure(
    directory: Path, product: str, room_bytes: int, build: Callable[[Path], None], say: Say
) -> None:
    """Make sure that `directory` exists, filled by `build`; `product` names it in messages.

    An existing one must have the checksums of its build. All but the `KEPT` newest sibling
    directories are removed. Raises LabError.
    """
    siblings = directory.parent
    if directory.exists():
        _require_sums(directory, product)
        return
    require_room(siblings, room_bytes, f"the guest's {product}")
    siblings.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _lock(siblings / "lock", product, say):
        if directory.exists():
            _require_sums(directory, product)
            return
        started = time.monotonic()
        # No build runs while the lock is held. A guest on a removed image keeps its open files.
        for leftover in siblings.glob(f"{BUILDING}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        finished = sorted(siblings.glob(f"*/{FACTS}"), key=lambda p: p.stat().st_mtime)
        for facts_file in finished[:-KEPT]:
            shutil.rmtree(facts_file.parent, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(prefix=BUILDING, dir=siblings))
        try:
            build(temporary)
            seconds = time.monotonic() - started
            files = [p for p in temporary.rglob("*") if p.is_file()]
            allocated = sum(p.stat().st_blocks * 512 for p in files)
            facts = read_object(temporary / FACTS)
            facts |= {"build_s": round(seconds, 1), "allocated_bytes": allocated}
            (temporary / FACTS).write_text(json.dumps(facts) + "\n", encoding="utf-8")
            _note_sums(temporary)
            temporary.rename(directory)
            (siblings / FAILED_LOG).unlink(missing_ok=True)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        say(f"{product}: {allocated / 1e9:.2f} GB made in {seconds:.0f} s: {directory}")


def _require_sums(directory: Path, product: str) -> None:
    """Raise LabError if a cached file was changed since its build, or if others may change it.

    Only files whose inode shows a change are read again.
    """
    for place in (directory.parent, directory):
        status = place.stat()
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o002:
            raise LabError(
                "cache-open-to-others",
                what=product,
                directory=directory,
                place=place,
                parent=directory.parent,
            )
    try:
        document = read_object(directory / SUMS)
        noted = {name: (entry["sha256"], entry["inode"]) for name, entry in document.items()}
    except (KeyError, TypeError):
        noted = {}  # without sums, every file counts as changed
    files = {path.relative_to(directory).as_posix(): path for path in _files(directory)}
    touched = {n: p for n, p in files.items() if n in noted and noted[n][1] != _inode(p)}
    changed = files.keys() ^ noted.keys()
    changed |= {n for n, path in touched.items() if noted[n][0] != sha256_of(path)}
    if changed:
        raise LabError("cache-changed", what=product, directory=directory, file=min(changed))
    if touched:
        _note_sums(directory)


def _note_sums(directory: Path) -> None:
    noted = {  # the inode first: a file written meanwhile is read again at the next check
        path.relative_to(directory).as_posix(): {"inode": _inode(path), "sha256": sha256_of(path)}
        for path in _files(directory)
    }
    write_json(directory / SUMS, noted, 0o600)


def _inode(path: Path) -> list[int]:
    """Return numbers that change with every write to a file; ctime cannot be set back."""
    status = path.stat()
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file() and path.name != SUMS]


def require_programs(*programs: str) -> None:
    """Raise LabError for the first missing program."""
    for program in programs:
        if shutil.which(program, path=system_path()) is None:
            raise LabError("program-missing", program=program)


@contextmanager
def work_directory(product: str, room_bytes: int, target: Path) -> Iterator[tuple[Path, Path]]:
    """Yield a scratch directory of mode 0700 and the path of the build's log in it.

    Unlike a home directory, it is accessible to a namespace's users. The log of a failed build is
    saved next to `target`.
    """
    base = os.environ.get("TMPDIR") or "/var/tmp"
    require_room(Path(base), room_bytes, f"building the guest's {product}")
    work = Path(tempfile.mkdtemp(prefix=f"fde-{product}-", dir=base))
    _let_namespace_in(work)
    log = work / "build.log"
    try:
        yield work, log
    except LabError as error:
        saved_log = target.parent / FAILED_LOG
        shutil.copyfile(log, saved_log)
        raise LabError("build-failed", what=product, kept=saved_log, error=error) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _let_namespace_in(work: Path) -> None:
    """Let the root of this user's namespaces enter `work`, and no other user (acl(5), subuid(5)).

    Root's builds need no user namespace. Raises LabError if the file system has no ACLs.
    """
    if os.geteuid() == 0:
        return
    uids = {str(os.geteuid()), pwd.getpwuid(os.geteuid()).pw_name}
    with contextlib.suppress(OSError):
        lines = Path("/etc/subuid").read_text(encoding="utf-8").split()
        starts = [int(line.split(":")[1]) for line in lines if line.split(":")[0] in uids]
        # Version 2; user::rwx, user:START:r-x each, group::---, mask::r-x, other::---
        users = b"".join(struct.pack("<HHI", 2, 5, start) for start in sorted(starts))
        none = 0xFFFFFFFF
        entry = struct.Struct("<HHI")
        ends = entry.pack(4, 0, none) + entry.pack(16, 5, none) + entry.pack(32, 0, none)
        acl = struct.pack("<I", 2) + entry.pack(1, 7, none) + users + ends
        os.setxattr(work, "system.posix_acl_access", acl)
        return
    raise LabError("no-access-lists", parent=work.parent)


def system_path() -> str:
    """Return PATH with the system directories that an ordinary user's may lack."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def run(
    command: Sequence[str],
    log: Path,
    on_line: Callable[[str], None] = lambda _line: None,
    *,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run one step of a build; write its output to the log and pass each line to `on_line`.

    Raises LabError with its last lines if it fails.
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
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            out.write(line)
            tail = [*tail[1 - TAIL_LINES :], line.rstrip()]
            on_line(line.rstrip())
    if process.returncode != 0:
        raise LabError("step-failed", command=command[0], last="\n".join(tail))


@contextmanager
def _lock(path: Path, product: str, say: Say) -> Iterator[None]:
    """Hold a lock during a build; the kernel releases it if the builder dies."""
    with path.open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{product}: another build is under way; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise LabError("not-locked", path=path, reason=error.strerror) from error
        yield
