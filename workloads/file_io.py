"""Write and read small files and a large one with dd, as in Fujimoto et al., section III B."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from contract.parameters import Parameter
from workloads import programs
from workloads.base import Assets, Context, Needs, Parameters, Work, Workload, WorkloadError, one_of

MIB = 1 << 20
PIECE_BYTES = 4096
SOURCE = "incompressible"
# Memory for the programs themselves.
BESIDES_BYTES = 64 * MIB
WARM_UP = (("sh", "-c", ":"), ("dd", "--version"))


class FileIo(Workload):
    """Phases `write-small`, `read-small`, `write-large`, `read-large`.

    With `separate` each small file is a phase: `write-small-1` … `write-small-n`, then
    `read-small-1` … `read-small-n`.

    The small files fit a drive's cache, the large one does not. Every file is written once and read
    once; the page cache is written back and emptied before each phase, so that it holds no file
    before its turn. One dd process per file, all of a phase started by one shell; dd's time for
    each file is saved in dd-PHASE.txt. With `cache` warm, files are read once before the phase, and
    in it as often as takes `warm_seconds`; without `read_back` only the two writing phases run, and
    the tail follows the large file.
    """

    name = "file_io"
    summary = "several small files and one large file, written and read"
    parameters = (
        Parameter("small_files", 4, "", "number of small files", minimum=1),
        Parameter("small_mib", 10, "MiB", "size of each small file", minimum=1),
        Parameter("large_mib", 64, "MiB", "size of the large file", minimum=1),
        one_of(
            "source",
            "what is written: seeded data no drive can compress, or zeros as in the paper",
            *("incompressible", "zero"),
        ),
        Parameter("fsync", True, "", "whether a write ends when the drive has the data"),
        Parameter("fsync_large", False, "", "the same of the large file alone, else as `fsync`"),
        Parameter(
            "separate", False, "", "whether the caches are dropped before each small file, a phase"
        ),
        Parameter("read_back", True, "", "whether what was written is read again"),
        one_of(
            "cache",
            "whether the page cache is empty or holds the files when they are read",
            *("cold", "warm"),
        ),
        Parameter("warm_seconds", 0.0, "s", "about how long a warm cache is read; 0: once"),
    )
    small: ClassVar = {"small_files": 2, "small_mib": 1, "large_mib": 2}
    program = "dd (coreutils), started by sh"
    programs = ("dd",)

    def needs(self, parameters: Parameters, assets: Assets) -> Needs:  # noqa: ARG002
        """Return the room for the files and their source, and memory for the page cache."""
        sizes_mib = _sizes_mib(parameters)
        is_seeded = parameters["source"] == "incompressible"
        largest_mib = max(sizes_mib[-1], sum(sizes_mib[:-1]))
        held = is_seeded or parameters["cache"] == "warm"
        return Needs(
            disk_bytes=sum(sizes_mib) * MIB,
            scratch_bytes=sum(sizes_mib) * MIB if is_seeded else 0,
            memory_bytes=BESIDES_BYTES + (largest_mib * MIB if held else 0),
        )

    def prepare(self, context: Context) -> None:
        if context.parameters["source"] == "incompressible":
            _provide_incompressible(context, sum(_sizes_mib(context.parameters)))

    def run(self, context: Context) -> None:
        sizes_mib = _sizes_mib(context.parameters)
        fsync, fsync_large, separate = (
            bool(context.parameters[name]) for name in ("fsync", "fsync_large", "separate")
        )
        files = [
            File(context.disk / f"file-{i:04d}", size_mib, sum(sizes_mib[:i]))
            for i, size_mib in enumerate(sizes_mib)
        ]
        small, large = files[:-1], files[-1:]
        one_by_one = {f"small-{n}": [file] for n, file in enumerate(small, start=1)}
        groups = (one_by_one if separate else {"small": small}, {"large": large})
        for group, waits in zip(groups, (fsync, fsync or fsync_large), strict=True):
            for label, members in group.items():
                _write(context, f"write-{label}", members, waits)
            if context.parameters["read_back"]:
                for label, members in group.items():
                    _read(context, f"read-{label}", members)


@dataclass(frozen=True)
class File:
    """A file of the workload, and the place of its contents in the source."""

    path: Path
    size_mib: int
    offset_mib: int


def _write(context: Context, phase: str, files: Sequence[File], waits: bool) -> None:
    """Write files as a phase, each from a separate slice of the source."""
    size_bytes = MIB * sum(file.size_mib for file in files)
    policy = ["conv=fsync"] if waits else []
    is_zero = context.parameters["source"] == "zero"
    source = Path("/dev/zero") if is_zero else _source(context)
    slices = [
        [f"count={file.size_mib}", *([] if is_zero else [f"skip={file.offset_mib}"])]
        for file in files
    ]
    writes = [
        _dd(source, file.path, *operands, *policy)
        for file, operands in zip(files, slices, strict=True)
    ]
    # Read the source into memory, so that the phase does not read the system disk.
    preloads = [] if is_zero else [_dd(source, Path("/dev/null"), *s) for s in slices]
    programs.cold_start(context, *WARM_UP, *preloads)
    work = _measure(context, phase, writes, size_bytes)
    for file in files:
        _require_copy(source, MIB * file.offset_mib, file.path, file.size_mib * MIB)
    work.add(bytes=sum(programs.size_bytes(file.path) for file in files), files=len(files))
    if waits:
        work.disk_writes(size_bytes)


def _read(context: Context, phase: str, files: Sequence[File]) -> None:
    """Read files as a phase; from a warm cache as often as takes `warm_seconds`."""
    warm, warm_s = context.parameters["cache"] == "warm", context.parameters["warm_seconds"]
    size_bytes = MIB * sum(file.size_mib for file in files)
    reads = [_dd(file.path, Path("/dev/null")) for file in files]
    programs.cold_start(context, *WARM_UP)
    rounds = _warmed(context, reads, float(warm_s)) if warm else 1
    work = _measure(context, phase, reads, size_bytes, rounds)
    work.add(bytes=rounds * size_bytes, files=rounds * len(files))
    (work.disk_reads_none_of if warm else work.disk_reads)(size_bytes)
    work.disk_writes_nothing()


def _measure(
    context: Context, phase: str, commands: list[list[str]], size_bytes: int, rounds: int = 1
) -> Work:
    """Process all the files `rounds` times as a phase.

    dd's lines with the bytes and seconds of each file are its report, and are saved.
    """
    script = programs.script(context.scratch / phase, commands, rounds)
    work, output = programs.measured(context, phase, script, name="dd")
    lines, amounts = programs.copied(output)
    (context.kept / f"dd-{phase}.txt").write_text(lines, encoding="utf-8")
    work.plan(bytes=rounds * size_bytes, files=rounds * len(commands))
    work.report(**amounts)
    return work


def _require_copy(source: Path, offset_bytes: int, file: Path, size_bytes: int) -> None:
    """Compare the file with the source at its begin, middle and end; raises WorkloadError.

    A wrong size is not checked here: the phase's account shows it.
    """
    if programs.size_bytes(file) != size_bytes:
        return
    with source.open("rb", buffering=0) as original, file.open("rb", buffering=0) as copy:
        for place in (0, size_bytes // 2, size_bytes - PIECE_BYTES):
            expected = os.pread(original.fileno(), PIECE_BYTES, offset_bytes + place)
            if os.pread(copy.fileno(), PIECE_BYTES, place) != expected:
                raise WorkloadError("not-copied", file=file.name)


def _sizes_mib(parameters: Parameters) -> list[int]:
    small = [int(parameters["small_mib"])] * int(parameters["small_files"])
    return [*small, int(parameters["large_mib"])]


def _source(context: Context) -> Path:
    return context.shared / f"{SOURCE}-{context.seed}-{sum(_sizes_mib(context.parameters))}"


def _provide_incompressible(context: Context, size_mib: int) -> None:
    """Create the source, unless a run of the same block (with the same seed) has."""
    path = _source(context)
    if path.exists():
        return
    for earlier in context.shared.glob(f"{SOURCE}-*"):
        earlier.unlink()
    generator = random.Random(context.seed)  # statistically random is enough: nothing is secret
    # An incomplete file, after an error or interrupt, is removed with the run's folder.
    half = context.scratch / SOURCE
    with half.open("wb") as file:
        for _ in range(size_mib):
            file.write(generator.randbytes(MIB))
    half.rename(path)


def _dd(source: Path, target: Path, *operands: str) -> list[str]:
    return ["dd", f"if={source}", f"of={target}", "bs=1M", *operands]


def _warmed(context: Context, reads: list[list[str]], seconds: float) -> int:
    """Read the files into the page cache; return the number of rounds that take `seconds`."""
    once = programs.script(context.scratch / "once", reads)
    programs.run(once, name="dd")
    started_s = time.monotonic()
    programs.run(once, name="dd")
    took_s = time.monotonic() - started_s
    return max(1, math.ceil(seconds / took_s))
