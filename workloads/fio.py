"""Run fio, which does the measured input and output of disks, keep its report and count by it."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import struct
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from contract import schema, system_text
from contract.parameters import Parameter
from workloads import programs
from workloads.base import Assets, Context, Needs, Parameters, Workload, WorkloadError

KIB, MIB = 1 << 10, 1 << 20
ENGINES = ("psync", "libaio", "io_uring")
# What direct I/O may have to be a multiple of, in bytes.
ALIGNMENTS = tuple(512 << power for power in range(8))


def io_parameters(engine: str, depth: int) -> tuple[Parameter, ...]:
    """Return the parameters `fresh`, `engine` and `depth`, with a workload's own defaults.

    Without `fresh` fio writes one buffer again and again, a little changed: zlib makes it
    14 times smaller, and so may a drive that compresses. Fresh data for each request were seen to
    take fio 0.3 s of processor time a GB, which is part of the phase.
    """
    return (
        Parameter("fresh", True, "", "whether each write has new data, which no drive compresses"),
        Parameter("engine", engine, "", "how fio asks the kernel for I/O", choices=ENGINES),
        Parameter("depth", depth, "", "requests in flight; more than 1 not with psync", minimum=1),
    )


@dataclass(frozen=True)
class Job:
    """One stretch of fio: `pattern` is fio's own word (`write`, `randread` ...), sizes in bytes.

    `area_bytes` is the part of the file that is used, from `offset_bytes` on, `passes` times over,
    and `at_most_bytes` how much is moved (0: all of that). After `seconds` it ends in any case (0:
    never); with `repeat` it goes over the area again until then. With `fsync` it ends when the
    drive has the data, with `fresh` every request has new data.
    """

    pattern: str
    block_bytes: int
    area_bytes: int
    offset_bytes: int = 0
    passes: int = 1
    at_most_bytes: int = 0
    seconds: float = 0
    repeat: bool = False
    fsync: bool = False
    fresh: bool = False
    engine: str = "psync"
    depth: int = 1


class OnOneFile(Workload):
    """fio on one file of `file_mib`, which is laid out before; `io_parameters` are among its own.

    Raises WorkloadError where the file system does no direct I/O.
    """

    program = "fio"
    programs = ("fio",)

    def check(self, parameters: Parameters) -> None:
        depth = int(parameters["depth"])
        if parameters["engine"] == "psync" and depth > 1:
            raise WorkloadError("depth-of-psync", depth=depth)

    def needs(self, parameters: Parameters, assets: Assets) -> Needs:  # noqa: ARG002
        return Needs(disk_bytes=file_bytes(parameters))

    def prepare(self, context: Context) -> None:
        lay_out(context, test_file(context), file_bytes(context.parameters))
        direct_bytes(test_file(context))


def test_file(context: Context) -> Path:
    """Return the path of the file that fio reads and writes."""
    return context.disk / "test-file"


def file_bytes(parameters: Parameters) -> int:
    """Return the size of that file."""
    return int(parameters["file_mib"]) * MIB


def planned(
    parameters: Parameters, pattern: str, block_bytes: int, *, fsync: bool = True, **limits: Any
) -> Job:
    """Return a job on that file by the workload's own parameters; `limits` are fields of it.

    `fsync` counts where it writes.
    """
    writes = pattern.endswith("write")
    return Job(
        pattern,
        block_bytes,
        file_bytes(parameters),
        fsync=writes and fsync,
        fresh=writes and bool(parameters["fresh"]),
        engine=str(parameters["engine"]),
        depth=int(parameters["depth"]),
        **limits,
    )


def lay_out(context: Context, path: Path, size_bytes: int) -> None:
    """Write the file with fio's fresh, seeded data, which zlib cannot make smaller.

    Raises WorkloadError, also where fio ends well and has not written it.
    """
    job = Job("write", MIB, size_bytes, fsync=True, fresh=True)
    programs.run([*command(path, job, context.seed), "--allow_file_create=1", "--overwrite=0"])
    if programs.size_bytes(path) != size_bytes:
        raise WorkloadError("file-cut-short", file=path.name)


def measure(context: Context, phase: str, path: Path, job: Job) -> None:
    """Run the job on a file that is there, as a phase; its report is kept as `<phase>.json`.

    The phase holds fio's work, not its start. Counts the bytes and operations that fio reports.
    Raises WorkloadError.
    """
    context.drop_caches()
    with Held(command(path, job, context.seed), context.scratch) as fio:
        with context.phase(phase) as work:
            fio.go()
        output = fio.report()
    (context.kept / f"{phase}.json").write_text(output)
    counts = counted(output)
    work.add(**counts.amounts)
    # fio issues no part of a block at an area's end.
    whole_bytes = job.area_bytes // job.block_bytes * job.block_bytes * job.passes
    most_bytes = job.at_most_bytes or whole_bytes
    if job.repeat or (job.seconds and counts.amounts["bytes"] < most_bytes):
        work.plan(seconds=job.seconds)
        work.report(seconds=counts.seconds)
    else:
        work.plan(bytes=most_bytes)
    work.plan(operations=counts.amounts["bytes"] / job.block_bytes)
    if job.pattern.endswith("write"):
        work.disk_writes(counts.amounts["bytes"])
    else:
        work.disk_reads(counts.amounts["bytes"])
        work.disk_writes_nothing()


class Held:
    """One fio with one job, alive within a `with` block, which begins when it is ready.

    Held before its first request, so that a phase has none of its start or end.

    fio runs a shell command of ours before it begins and another when it is done (`exec_prerun`,
    `exec_postrun`): the first reports and waits for a word, the second reports. Both pipes end with
    the process at their other end, so that neither side waits for a dead one. `folder` is for the
    output of the commands. Raises WorkloadError with fio's last words.
    """

    def __init__(self, argv: Sequence[str], folder: Path) -> None:
        self._argv, self._folder = argv, folder

    def __enter__(self) -> Self:
        self._reports, say = os.pipe()
        hear, self._word = os.pipe()
        # fio sends the standard output of what it runs to a file, of the last command alone.
        hooks = (
            f"--exec_prerun=echo ready > /proc/self/fd/{say}; read go < /proc/self/fd/{hear}",
            f"--exec_postrun=echo done > /proc/self/fd/{say}; true",
        )
        # As a thread: a process of its own would leave the group by which it is killed.
        argv = [*self._argv, "--thread=1", *hooks]
        try:
            self._fio = programs.start(
                *(argv, subprocess.DEVNULL, programs.environment()),
                pass_fds=(say, hear),
                cwd=self._folder,
            )
        except WorkloadError:
            self._close()
            raise
        finally:
            os.close(say)
            os.close(hear)
        self._process = self._fio.process
        try:
            self._expect(b"ready\n")
        except BaseException:
            self.__exit__()
            raise
        return self

    def go(self) -> None:
        """Let it begin, and wait until it is done."""
        with suppress(BrokenPipeError):
            os.write(self._word, b"go\n")
        self._expect(b"done\n")

    def report(self) -> str:
        """Return what it prints in the end, without the lines before its JSON."""
        output = self._ended()
        return output[max(output.find("{\n"), 0) :]

    def __exit__(self, *_: object) -> None:
        self._fio.close()
        self._close()

    def _expect(self, word: bytes) -> None:
        # The end in place of a word: fio, or what it runs, is gone.
        if os.read(self._reports, len(word)) != word:
            self._ended()
            raise WorkloadError("fio-ended-early")

    def _ended(self) -> str:
        """All that it printed, once it has ended; WorkloadError where it failed."""
        output = system_text.decode(self._process.communicate()[0])
        if status := self._process.returncode:
            rest = [line for line in output.splitlines() if "Saving output of" not in line]
            last = self._fio.last_words() or programs.last_line("\n".join(rest))
            raise WorkloadError("fio-failed", status=status, reason=last or "it printed no reason")
        return output

    def _close(self) -> None:
        os.close(self._reports)
        os.close(self._word)


def command(path: Path, job: Job, seed: int) -> list[str]:
    """How fio is called: direct I/O on one existing file (or device), its report as JSON."""
    argv = ["fio", "--name=job", f"--filename={path}", f"--rw={job.pattern}"]
    argv += [f"--bs={job.block_bytes}", f"--size={job.area_bytes}", "--direct=1"]
    argv += [f"--ioengine={job.engine}", f"--iodepth={job.depth}", f"--randseed={seed}"]
    argv += ["--overwrite=1", "--allow_file_create=0", "--eta=never", "--output-format=json"]
    if job.pattern in ("read", "randread"):
        argv.append("--readonly")
    options = {
        "offset": job.offset_bytes,
        "loops": job.passes if job.passes > 1 else 0,
        "io_size": job.at_most_bytes,
        "runtime": f"{round(job.seconds * 1000)}ms" if job.seconds else "",
        "time_based": int(job.repeat),
        "end_fsync": int(job.fsync),
        "refill_buffers": int(job.fresh),
    }
    return argv + [f"--{option}={value}" for option, value in options.items() if value]


@dataclass(frozen=True)
class Moved:
    """What fio read or wrote."""

    io_bytes: int
    total_ios: int
    runtime: int = 0


@dataclass(frozen=True)
class Done:
    """The part of a job in fio's report that is used."""

    read: Moved
    write: Moved
    error: int


@dataclass(frozen=True)
class Report:
    """fio's report."""

    jobs: tuple[Done]


@dataclass(frozen=True)
class Counted:
    """Bytes and operations of fio's report, and how long it read or wrote."""

    amounts: dict[str, float]
    seconds: float


def counted(output: str) -> Counted:
    """Read fio's report; WorkloadError where it gives none, or nothing was moved."""
    try:
        (job,) = schema.read(Report, json.loads(output)).jobs
    except ValueError as error:
        last = programs.last_line(output) or "no output"
        raise WorkloadError("no-fio-report", output=last) from error
    amounts = {
        "bytes": float(job.read.io_bytes + job.write.io_bytes),
        "operations": float(job.read.total_ios + job.write.total_ios),
    }
    if job.error or not all(amounts.values()):
        raise WorkloadError("fio-moved-nothing", error=job.error)
    return Counted(amounts, max(job.read.runtime, job.write.runtime) / 1000)


def direct_bytes(path: Path) -> int:
    """Find by trying what sizes of direct I/O on this file must be a multiple of, in bytes.

    Raises WorkloadError where the file system does no direct I/O at all, also where it takes such
    requests and serves them from the page cache, as ext4 does with `data=journal`.
    """
    if not _claims_direct_io(path):
        raise WorkloadError("no-direct-io", folder=path.parent)
    try:
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError as error:
        raise WorkloadError("no-direct-io", folder=path.parent) from error
    try:
        with mmap.mmap(-1, ALIGNMENTS[-1]) as buffer, memoryview(buffer) as view:
            for size in ALIGNMENTS:
                # At an offset of one such unit: what is right for the start may be chance.
                with suppress(OSError), view[:size] as part:
                    if os.preadv(file, [part], size) == size:
                        return size
    finally:
        os.close(file)
    raise WorkloadError("no-direct-io", folder=path.parent)


# statx(2), linux/stat.h: STATX_DIOALIGN, and where stx_mask and stx_dio_offset_align are.
_AT_FDCWD, _STATX_DIOALIGN = -100, 0x2000
_MASK_AT, _OFFSET_ALIGN_AT, _STATX_BYTES = 0, 0x9C, 256


def _claims_direct_io(path: Path) -> bool:
    """Ask the kernel whether a file has direct I/O; True where it does not know (before 6.1)."""
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    statx = ctypes.CDLL(None, use_errno=True).statx
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_DIOALIGN, buffer):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(path))
    (mask,) = struct.unpack_from("=I", buffer, _MASK_AT)
    (align,) = struct.unpack_from("=I", buffer, _OFFSET_ALIGN_AT)
    return not mask & _STATX_DIOALIGN or align > 0
