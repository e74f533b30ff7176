"""Commands on files of strangers, in a separate process whose resources are limited."""

from __future__ import annotations

import io
import os
import resource
import signal
import subprocess
import tarfile
import zlib
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from contract import archives
from contract.errors import ControllerError
from contract.places import module_command

COMMANDS = ("verify", "report", "summary", "compare", "publish", "notebook")
IS_BOUNDED = "FDE_BOUNDED"
# For up to 3 MB; a larger bundle may take as much more. An honest one of 3 MB takes 6 s and 250 MB,
# 550 MB of address space with the stacks of threads.
_USUAL_BYTES = 3 << 20
_CPU_S = 45
_MEMORY_BYTES = 1100 << 20
# What ends a process at these limits: its time, that again if it goes on, memory refused to a
# library that cannot go on.
_OVER_LIMIT = (signal.SIGXCPU, signal.SIGKILL, signal.SIGABRT)
# Reserved by the libraries, by far most of it never used. With less OpenBLAS may ask for ever for
# what it is refused.
_ADDRESS_SPACE_BYTES, _LEAST_TO_MEASURE_BYTES = 2 << 30, 1 << 29
_THREADS = ("POLARS_MAX_THREADS", "OPENBLAS_NUM_THREADS")
# The most, whatever a bundle's size: a day, and what this machine has.
_MOST_CPU_S = 86_400
_WALL_FACTOR = 20  # of the processor's time, on a busy machine


def bundles(argv: Sequence[str]) -> list[Path]:
    """Return the files of strangers among the arguments of a command that is not yet bounded.

    Whatever can be opened as a bundle is one, by its content, wherever and however it is named.
    `verify` alone reads the tables that a folder brings, and so folders are bundles to it.
    """
    command = command_of(argv)
    if command not in COMMANDS or IS_BOUNDED in os.environ:
        return []
    paths = [Path(word) for word in dict.fromkeys(argv)]
    files = [path for path in paths if _is_bundle(path)]
    return files + [path for path in paths if command == "verify" and path.is_dir()]


def command_of(argv: Sequence[str]) -> str:
    """Return the command in an argument list: options before it take no value."""
    return next((word for word in argv if not word.startswith("-")), "")


def _is_bundle(path: Path) -> bool:
    """Whether a file can be opened as a bundle, which reads no more than its first header."""
    try:
        with path.open("rb") if path.is_file() else nullcontext() as file:
            return file is not None and bool(archives.open_tar(file))
    except (tarfile.TarError, OSError, EOFError, ValueError, zlib.error):
        return False


def limits(paths: Sequence[Path]) -> tuple[int, int]:
    """Return seconds of a processor and bytes of memory for what these take on the disk."""
    files = [file for path in paths for file in (path.rglob("*") if path.is_dir() else [path])]
    stats = {(stat.st_dev, stat.st_ino): stat for stat in (file.lstat() for file in files)}
    # Of a sparse file what is allocated.
    size_bytes = sum(min(stat.st_size, stat.st_blocks * 512) for stat in stats.values())
    share = max(1.0, size_bytes / _USUAL_BYTES)
    most_bytes = max(_MEMORY_BYTES, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return (
        min(round(_CPU_S * share), _MOST_CPU_S),
        min(round(_MEMORY_BYTES * share), most_bytes),
    )


def require_address_space(argv: Sequence[str]) -> None:
    """Refuse a command where `ulimit -v` leaves too little; where it is limited, start few threads.

    Raises ControllerError.
    """
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    least_bytes = _LEAST_TO_MEASURE_BYTES if "--" in argv else _ADDRESS_SPACE_BYTES
    if limit_bytes == resource.RLIM_INFINITY or not argv or argv[0].startswith("-"):
        return
    if limit_bytes < least_bytes:
        mib = {"limit_mib": limit_bytes >> 20, "least_mib": least_bytes >> 20}
        raise ControllerError("address-space-limited", **mib)
    for name in _THREADS:
        os.environ.setdefault(name, "1")


def run(
    argv: Sequence[str], paths: Sequence[Path], **streams: int | None
) -> subprocess.CompletedProcess[str]:
    """Run `python -m ARGV` within limits that the size of the files gives.

    Raises ControllerError where it was ended for what it took.
    """
    cpu_s, memory_bytes = limits(paths)

    def limit() -> None:
        for what, most in ((resource.RLIMIT_CPU, cpu_s), (resource.RLIMIT_DATA, memory_bytes)):
            resource.setrlimit(what, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    try:
        done: subprocess.CompletedProcess[str] = subprocess.run(
            module_command(*argv),
            env={**dict.fromkeys(_THREADS, "4"), **os.environ, IS_BOUNDED: "1"},
            preexec_fn=limit,
            timeout=_WALL_FACTOR * cpu_s,
            text=True,
            errors="replace",
            check=False,
            **streams,  # type: ignore[call-overload]
        )
        ended = -done.returncode
    except subprocess.TimeoutExpired:
        ended = signal.SIGXCPU
    if ended <= 0:
        return done
    named = ", ".join(str(path) for path in paths)
    if ended not in _OVER_LIMIT:
        names = (known.name for known in signal.Signals if known == ended)
        raise ControllerError("reader-ended", named=named, signal=next(names, ended))
    raise ControllerError(
        "reader-too-large", named=named, cpu_s=cpu_s, memory_mib=memory_bytes >> 20
    )


def is_inherited(stream: object) -> bool:
    """Whether the output of a child reaches the stream without our help."""
    try:
        return isinstance(stream, io.TextIOBase) and stream.fileno() in (1, 2)
    except (OSError, ValueError):
        return False
