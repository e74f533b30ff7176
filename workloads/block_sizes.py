"""Throughput against the size of requests, access time and burst rate with fio.

After the paper "Analiza wpływu szyfrowania na operacje odczytu i zapisu", figures 5 to 10, whose
programs were ATTO Disk Benchmark (the sizes) and HD Tune (access time, burst rate).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import ClassVar

from contract import system_text
from contract.parameters import Parameter
from workloads import fio, lists
from workloads.base import Assets, Context, Needs, Parameters, WorkloadError, one_of

KIB, MIB = fio.KIB, fio.MIB
SECTOR_BYTES = 512  # the unit of sizes in /sys, independent of the disk's sector size
# The rows of the paper's figures 6, 8 and 10.
PAPER = "paper"
PAPER_STEPS = (
    *(512 << power for power in range(15)),
    *(mib * MIB for mib in (12, 16, 24, 32, 48, 64)),
)


class BlockSizes(fio.OnOneFile):
    """Phases `write.<n>B` and `read.<n>B` for each size, then `access.read` and `burst.read`.

    Sequential direct I/O on one file, over and over it for `seconds`. The paper does not state the
    number of requests in flight; 4 is ATTO's default. `access.read` reads blocks at random places
    of the file or, as HD Tune does, of the whole volume below its file system (`access_area`), one
    at a time: seconds per operation are the access time. It also reads places that were never
    written or were discarded, which flash answers faster. `burst.read` reads the same small range
    again and again, which a drive has in its cache. Sizes that direct I/O on this disk does not
    support are left out. fio is started before each phase.
    """

    name = "block_sizes"
    summary = "throughput and operations from 512 B to 64 MiB, access time, burst rate"
    parameters = (
        Parameter("file_mib", 256, "MiB", "size of the test file", minimum=1),
        lists.some_of("steps", PAPER, "sizes in bytes; paper: its 21"),
        Parameter("seconds", 2.0, "s", "length of each phase", minimum=0.1),
        Parameter("access_bytes", 4096, "B", "size of the reads for the access time", minimum=512),
        one_of("access_area", "where it reads: the file, or all of the volume", "file", "volume"),
        Parameter("burst_kib", 64, "KiB", "size of the stretch for the burst rate", minimum=4),
        *fio.io_parameters("libaio", 4),
    )
    small: ClassVar = {"file_mib": 1, "steps": "65536", "seconds": 0.1}

    def check(self, parameters: Parameters) -> None:
        super().check(parameters)
        steps(parameters)

    def needs(self, parameters: Parameters, assets: Assets) -> Needs:  # noqa: ARG002
        return Needs(
            disk_bytes=fio.file_bytes(parameters),
            memory_bytes=max(steps(parameters)) * int(parameters["depth"]),
        )

    def run(self, context: Context) -> None:
        file = fio.test_file(context)
        unit = fio.direct_bytes(file)
        seconds = float(context.parameters["seconds"])
        for size in steps(context.parameters):
            if _left_out(context, f"write.{size}B, read.{size}B", size, unit):
                continue
            for way in ("write", "read"):
                step = fio.planned(context.parameters, way, size, seconds=seconds, repeat=True)
                fio.measure(context, f"{way}.{size}B", file, step)
        size = int(context.parameters["access_bytes"])
        if not _left_out(context, "access.read", size, unit):
            path, area = access_area(context)
            access = fio.Job("randread", size, area, seconds=seconds, repeat=True)
            fio.measure(context, "access.read", path, access)
        size = int(context.parameters["burst_kib"]) * KIB
        if not _left_out(context, "burst.read", size, unit):
            burst = fio.Job("read", size, size, seconds=seconds, repeat=True)
            fio.measure(context, "burst.read", file, burst)


def steps(parameters: Parameters) -> tuple[int, ...]:
    """Return the sizes in bytes; WorkloadError for an invalid one, or one larger than the file."""
    choice = parameters["steps"]
    file_bytes = fio.file_bytes(parameters)
    list_name = f"steps of block_sizes that are not {PAPER}"
    sizes = PAPER_STEPS if choice == PAPER else tuple(lists.numbers(list_name, choice))
    if min(sizes) < 512 or max(sizes) > file_bytes:
        raise WorkloadError(
            "steps-outside", file_bytes=file_bytes, sizes=", ".join(str(size) for size in sizes)
        )
    return sizes


def _left_out(context: Context, list_name: str, size: int, unit: int) -> bool:
    if size % unit == 0:
        return False
    context.leave_out(
        list_name,
        f"Direct I/O on this disk comes in multiples of {unit} B, which {size} B is not: choose a "
        f"configuration with sectors of 512 B for it.",
    )
    return True


def access_area(context: Context) -> tuple[Path, int]:
    """Return the file, or the block device below its file system, and its size in bytes.

    Raises WorkloadError if the file system has no single device, such as Btrfs.
    """
    if context.parameters["access_area"] == "file":
        return fio.test_file(context), fio.file_bytes(context.parameters)
    number = context.disk.stat().st_dev
    sys_folder = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    try:
        sectors = int(system_text.read(sys_folder / "size"))
        name = re.search(r"^DEVNAME=(.+)$", system_text.read(sys_folder / "uevent"), re.MULTILINE)
    except OSError:
        name = None
    device = Path("/dev") / name[1] if name else sys_folder
    if not device.is_block_device():
        raise WorkloadError("no-block-device")
    return device, sectors * SECTOR_BYTES
