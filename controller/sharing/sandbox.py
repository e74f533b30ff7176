"""Commands on files of strangers, which run in a separate process with limited resources."""

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

from contract import archives, bounded
from contract.errors import ControllerError
from contract.places import module_command

COMMANDS = ("verify", "report", "summary", "compare", "publish", "notebook", "payback")
IS_BOUNDED = "FDE_BOUNDED"
# Limits for up to 3 MB; they grow in proportion to larger bundles. A valid one of 3 MB takes 6 s,
# 250 MB, and 550 MB of address space including the stacks of threads.
_USUAL_BYTES = 3 << 20
_CPU_S = 45
_MEMORY_BYTES = 1100 << 20
# Signals that end a process at these limits: of time, of time again if it continues, and of memory
# if a library cannot continue without it.
_OVER_LIMIT = (signal.SIGXCPU, signal.SIGKILL, signal.SIGABRT)
# The libraries reserve this much and use little of it. With less, OpenBLAS may retry forever.
_ADDRESS_SPACE_BYTES, _LEAST_TO_MEASURE_BYTES = 2 << 30, 1 << 29
_THREADS = ("POLARS_MAX_THREADS", "OPENBLAS_NUM_THREADS")
# The largest limit for any bundle: a day (and the memory of this machine).
_MOST_CPU_S = 86_400
_WALL_FACTOR = 20  # relative to processor time, on a busy machine


def bundles(argv: Sequence[str]) -> list[Path]:
    """Return the bundles among the arguments of a command that does not run in the sandbox yet.

    Any file that can be opened as a bundle counts, whatever its name. For `verify` folders count,
    too, because it reads their tables.
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
    """Return whether a file can be opened as a bundle; only its first header is read."""
    try:
        with path.open("rb") if path.is_file() else nullcontext() as file:
            return file is not None and bool(archives.open_tar(file))
    except (tarfile.TarError, OSError, EOFError, ValueError, zlib.error):
        return False


def limits(paths: Sequence[Path]) -> tuple[int, int]:
    """Return the limits of processor seconds and memory bytes, by the size of the files."""
    files = [file for path in paths for file in (path.rglob("*") if path.is_dir() else [path])]
    stats = {(stat.st_dev, stat.st_ino): stat for stat in (file.lstat() for file in files)}
    # A sparse file counts with its allocated blocks.
    size_bytes = sum(min(stat.st_size, stat.st_blocks * 512) for stat in stats.values())
    share = max(1.0, size_bytes / _USUAL_BYTES)
    most_bytes = max(_MEMORY_BYTES, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return (min(round(_CPU_S * share), _MOST_CPU_S), min(round(_MEMORY_BYTES * share), most_bytes))


def require_address_space(argv: Sequence[str]) -> None:
    """Raise ControllerError if `ulimit -v` is too low for a command.

    Under a sufficient limit, few threads are started.
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
    """Run `python -m ARGV` with limits for the size of the files.

    Raises ControllerError if it exceeds a limit or another signal ends it.
    """
    cpu_s, memory_bytes = limits(paths)
    limited = {resource.RLIMIT_CPU: cpu_s, resource.RLIMIT_DATA: memory_bytes}
    try:
        process: subprocess.CompletedProcess[str] = subprocess.run(
            module_command(*argv),
            env={**dict.fromkeys(_THREADS, "4"), **os.environ, IS_BOUNDED: "1"},
            preexec_fn=lambda: bounded.lower_limits({**limited, resource.RLIMIT_CORE: 0}),
            timeout=_WALL_FACTOR * cpu_s,
            text=True,
            errors="replace",
            check=False,
            **streams,  # type: ignore[call-overload]
        )
        number = -process.returncode
    except subprocess.TimeoutExpired:
        number = signal.SIGXCPU
    if number <= 0:
        return process
    named = ", ".join(str(path) for path in paths)
    if number not in _OVER_LIMIT:
        names = (entry.name for entry in signal.Signals if entry == number)
        raise ControllerError("reader-ended", named=named, signal=next(names, number))
    raise ControllerError(
        "reader-too-large", named=named, cpu_s=cpu_s, memory_mib=memory_bytes >> 20
    )


def is_inherited(stream: object) -> bool:
    """Return whether a child process inherits the stream as its output."""
    try:
        return isinstance(stream, io.TextIOBase) and stream.fileno() in (1, 2)
    except (OSError, ValueError):
        return False
