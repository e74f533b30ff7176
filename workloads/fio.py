"""Run fio for input and output of disks, save its report and count its work."""

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
# Possible units of direct I/O, in bytes.
ALIGNMENTS = tuple(512 << power for power in range(8))


def io_parameters(engine: str, depth: int) -> tuple[Parameter, ...]:
    """Return the parameters `fresh`, `engine` and `depth`, with a workload's defaults.

    Without `fresh` fio writes one buffer again and again with small changes: zlib makes it 14 times
    smaller, and a compressing drive may, too. Fresh data for each request took fio 0.3 s of
    processor time a GB, which is part of the phase.
    """
    return (
        Parameter("fresh", True, "", "whether each write has new data, which no drive compresses"),
        Parameter("engine", engine, "", "how fio asks the kernel for I/O", choices=ENGINES),
        Parameter("depth", depth, "", "requests in flight; more than 1 not with psync", minimum=1),
    )


@dataclass(frozen=True)
class Job:
    """One job of fio: `pattern` is fio's word (`write`, `randread` ...), sizes in bytes.

    `area_bytes` is the used part of the file, from `offset_bytes` on, `passes` times over, and
    `at_most_bytes` limits the traffic (0: no limit). The job ends after `seconds` in any case (0:
    never); with `repeat` it passes over the area again until then. With `fsync` it ends when the
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
    """Base of workloads with fio on one file of `file_mib`; `io_parameters` are among theirs.

    Raises WorkloadError if the file system does not support direct I/O.
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
    """Return the size of the test file."""
    return int(parameters["file_mib"]) * MIB


def planned(
    parameters: Parameters, pattern: str, block_bytes: int, *, fsync: bool = True, **limits: Any
) -> Job:
    """Return a job on the test file with the workload's parameters; `limits` are fields of the job.

    `fsync` applies only to writes.
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
    """Write the file with fio's fresh, seeded data, which zlib cannot compress.

    Raises WorkloadError, also if fio succeeds without writing the whole file.
    """
    job = Job("write", MIB, size_bytes, fsync=True, fresh=True)
    programs.run([*command(path, job, context.seed), "--allow_file_create=1", "--overwrite=0"])
    if programs.size_bytes(path) != size_bytes:
        raise WorkloadError("file-cut-short", file=path.name)


def measure(context: Context, phase: str, path: Path, job: Job) -> None:
    """Run the job on an existing file as a phase; save its report as `<phase>.json`.

    The phase has fio's work, not its start. Counts the bytes and operations that fio reports.
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
    # fio issues no partial block at the end of an area.
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
    """One fio with one job, alive within a `with` block and paused before its first request.

    So a phase contains neither its start nor its end. fio runs a shell command of ours before it
    begins and another afterwards (`exec_prerun`, `exec_postrun`): the first reports and waits for a
    line, the second reports. Both pipes end with the process at their other end, so that neither
    side waits for a dead one. `folder` is for the output of the commands. Raises WorkloadError with
    fio's last message.
    """

    def __init__(self, argv: Sequence[str], folder: Path) -> None:
        self._argv, self._folder = argv, folder

    def __enter__(self) -> Self:
        self._reports, say = os.pipe()
        hear, self._word = os.pipe()
        # fio redirects the standard output of these commands to a file.
        hooks = (
            f"--exec_prerun=echo ready > /proc/self/fd/{say}; read go < /proc/self/fd/{hear}",
            f"--exec_postrun=echo done > /proc/self/fd/{say}; true",
        )
        # As a thread: a separate process would leave the process group that we kill.
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
        """Let fio begin, and wait until it has finished."""
        with suppress(BrokenPipeError):
            os.write(self._word, b"go\n")
        self._expect(b"done\n")

    def report(self) -> str:
        """Return fio's final output, without the lines before its JSON."""
        output = self._ended()
        return output[max(output.find("{\n"), 0) :]

    def __exit__(self, *_: object) -> None:
        self._fio.close()
        self._close()

    def _expect(self, word: bytes) -> None:
        # An end of file means that fio, or a command that it runs, has ended.
        if os.read(self._reports, len(word)) != word:
            self._ended()
            raise WorkloadError("fio-ended-early")

    def _ended(self) -> str:
        """Return the whole output after the end; WorkloadError if fio failed."""
        output = system_text.decode(self._process.communicate()[0])
        if status := self._process.returncode:
            lines = [line for line in output.splitlines() if "Saving output of" not in line]
            last = self._fio.last_words() or programs.last_line("\n".join(lines))
            raise WorkloadError("fio-failed", status=status, reason=last or "it printed no reason")
        return output

    def _close(self) -> None:
        os.close(self._reports)
        os.close(self._word)


def command(path: Path, job: Job, seed: int) -> list[str]:
    """Return fio's command: direct I/O on an existing file (or device), report as JSON."""
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
    """Data that fio read or wrote."""

    io_bytes: int
    total_ios: int
    runtime: int = 0


@dataclass(frozen=True)
class Done:
    """The evaluated part of a job in fio's report."""

    read: Moved
    write: Moved
    error: int


@dataclass(frozen=True)
class Report:
    """fio's report."""

    jobs: tuple[Done]


@dataclass(frozen=True)
class Counted:
    """Bytes and operations in fio's report, and the time that it read or wrote."""

    amounts: dict[str, float]
    seconds: float


def counted(output: str) -> Counted:
    """Read fio's report; WorkloadError if it is invalid, or if fio moved no data."""
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
    """Return the unit of direct I/O on this file in bytes, found by trying.

    Raises WorkloadError if the file system does not support direct I/O, also if it accepts such
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
                # At an offset of one unit: success at offset 0 may be chance.
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
    """Ask the kernel whether a file has direct I/O; True if it does not report that."""
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    statx = ctypes.CDLL(None, use_errno=True).statx
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_DIOALIGN, buffer):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(path))
    (mask,) = struct.unpack_from("=I", buffer, _MASK_AT)
    (align,) = struct.unpack_from("=I", buffer, _OFFSET_ALIGN_AT)
    return not mask & _STATX_DIOALIGN or align > 0
