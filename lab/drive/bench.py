"""Speed of the virtual drive over loopback, against its backing file and against nbdkit.

Drive and host share the machine, so each figure is of both together. Every load lasts a fixed time;
all disks take turns at it, several rounds long, and the median counts. A ratio is the median of the
rounds' ratios. Prints tables and writes build/bench/drive.json.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import random
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from agent.controller.bench import machine
from lab.drive.aes_xts import AesXts, CryptoError
from lab.drive.bench_disks import (
    BenchError,
    Disk,
    FileDisk,
    NbdDisk,
    NvmeDisk,
    running_drive,
    running_nbdkit,
)
from lab.paths import REPOSITORY

MIB = 1 << 20
DISK_BYTES = 256 * MIB
LARGE_DISK_BYTES = 1 << 40
QUEUES = 9
MEMORY_LIMIT_MB = 100
PLAIN_LIMIT_MB_S = 1000
DEEP_LIMIT_PER_S = 20_000
PLAIN = "drive, plain, 4096"
OPAL_OFF = "drive, Opal off, 4096"
OPAL_4096 = "drive, Opal unlocked, 4096"
OPAL_512 = "drive, Opal unlocked, 512"
RATIO_LIMITS = {OPAL_4096: 0.80, OPAL_512: 0.50}
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Load(NamedTuple):
    """A stream of equal requests, `depth` of them under way at once."""

    name: str
    writes: bool
    size_bytes: int
    depth: int


LOADS = (
    Load("write 1 MiB", True, MIB, 4),
    Load("read 1 MiB", False, MIB, 4),
    Load("read 4 KiB x1", False, 4096, 1),
    Load("write 4 KiB x1", True, 4096, 1),
    Load("read 4 KiB x32", False, 4096, 32),
    Load("write 4 KiB x32", True, 4096, 32),
)


class Sample(NamedTuple):
    """What one turn of a load came to; CPU seconds of the server and of this process."""

    requests: int
    duration_s: float
    server_cpu_s: float
    host_cpu_s: float


def _cpu_s(pid: int) -> float:
    if not pid:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    peak_kib = next(line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(peak_kib) * 1024 / 1e6


def run_load(disk: Disk, load: Load, duration_s: float) -> Sample:
    """Keeps `load.depth` requests under way for `duration_s`; 4 KiB ones at random places."""
    count = DISK_BYTES // load.size_bytes
    order = [i * load.size_bytes for i in range(count)]
    if load.size_bytes < MIB:
        order = random.Random(1).sample(order, 8192)
    data = os.urandom(load.size_bytes)
    buffers = [memoryview(bytearray(load.size_bytes)) for _ in range(load.depth)]
    done = under_way = 0
    cpu_s, own_s, begin = _cpu_s(disk.pid), time.process_time(), time.perf_counter()
    while time.perf_counter() - begin < duration_s:
        offset = order[done % len(order)]
        if load.writes:
            disk.write(offset, data)
        else:
            disk.read(offset, buffers[done % load.depth])
        done += 1
        under_way += 1
        if under_way == load.depth:
            disk.complete()
            under_way -= 1
    for _ in range(under_way):
        disk.complete()
    passed_s = time.perf_counter() - begin
    return Sample(done, passed_s, _cpu_s(disk.pid) - cpu_s, time.process_time() - own_s)


def open_disks(folder: Path, stack: contextlib.ExitStack) -> tuple[dict[str, Disk], list[str]]:
    """All disks, filled once so that every block has its place; and why one is missing."""
    (folder / "file").touch()
    os.truncate(folder / "file", DISK_BYTES)
    disks: dict[str, Disk] = {"backing file": FileDisk(folder / "file")}
    missing = []
    try:
        disks["nbdkit file"] = NbdDisk(
            *stack.enter_context(running_nbdkit(folder / "nbd", DISK_BYTES))
        )
    except BenchError as error:
        missing.append(f"nbdkit file: {error}")
    kinds = (
        (PLAIN, "plain", 4096),
        (OPAL_OFF, "opal", 4096),
        (OPAL_4096, "locking", 4096),
        (OPAL_512, "locking", 512),
    )
    for name, kind, block_bytes in kinds:
        drive = running_drive(folder / name, DISK_BYTES, block_bytes, kind)
        disks[name] = NvmeDisk(*stack.enter_context(drive), block_bytes)
    for disk in disks.values():
        stack.callback(disk.close)  # before its server, which may wait for its hosts
        for offset in range(0, DISK_BYTES, MIB):
            disk.write(offset, os.urandom(MIB))
            disk.complete()
    return disks, missing


def measure_memory(folder: Path) -> float:
    """Peak resident MB of an unlocked Opal drive of 1 TiB while nine queues work at once."""
    with running_drive(folder / "large", LARGE_DISK_BYTES, 4096, "locking") as (port, pid):
        disks = [NvmeDisk(port, pid, 4096) for _ in range(QUEUES)]
        for index, disk in enumerate(disks * 4):
            disk.write(LARGE_DISK_BYTES // 64 * index, bytes(MIB))
        for disk in disks * 4:
            disk.complete()
        for index, disk in enumerate(disks * 4):
            disk.read(LARGE_DISK_BYTES - MIB * (index + 1), memoryview(bytearray(MIB)))
        for disk in disks * 4:
            disk.complete()
        for disk in disks:
            disk.close()
        return _peak_mb(pid)


def _s_per_gb(work: Callable[[], None], work_bytes: int) -> float:
    """Best of several: seconds of `work`, per 10⁹ bytes of it."""
    times = []
    for _ in range(9):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times) / work_bytes * 1e9


def measure_parts(file: Disk) -> dict[str, float]:
    """Seconds per GB of what a read is made of, each alone."""
    buffer = memoryview(bytearray(MIB))
    parts = {"file read": _s_per_gb(lambda: file.read(0, buffer), MIB)}
    for sector_bytes in (4096, 512):
        decrypt = functools.partial(AesXts(os.urandom(64), sector_bytes).decrypt, 0, buffer)
        parts[f"cipher, {sector_bytes}"] = _s_per_gb(decrypt, MIB)
    total = 128 * MIB

    def loopback() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            sender = socket.create_connection(listener.getsockname())
            receiver, _ = listener.accept()
        data = bytes(MIB)

        def send() -> None:
            for _ in range(total // MIB):
                sender.sendall(data)

        thread = threading.Thread(target=send)
        thread.start()
        with sender, receiver:
            for _ in range(total // MIB):
                receiver.recv_into(buffer, MIB, socket.MSG_WAITALL)
            thread.join()

    parts["loopback socket, send and receive at once"] = _s_per_gb(loopback, total)
    return parts


def _row(
    figure: str, value: float, unit: str, target: float | None = None, meets: bool | None = None
) -> dict[str, Any]:
    return {
        "figure": figure,
        "value": round(value, 3 if value < 10 else 1),
        "unit": unit,
        "target": target,
        "meets": meets,
    }


def _speed(sample: Sample, load: Load) -> float:
    """MB/s of large requests, requests per second of small ones."""
    per_s = sample.requests / sample.duration_s
    return per_s * load.size_bytes / 1e6 if load.size_bytes == MIB else per_s


def figures(samples: dict[tuple[str, Load], list[Sample]]) -> list[dict[str, Any]]:
    """Speeds with their targets, ratios to the plain drive, CPU seconds per GB read."""
    rows = []
    for (disk, load), found in samples.items():
        speed = median(_speed(sample, load) for sample in found)
        limit: float | None = None
        if disk == PLAIN and load.name == "read 1 MiB":
            limit = PLAIN_LIMIT_MB_S
        elif load.depth == 32 and disk.startswith("drive"):
            limit = DEEP_LIMIT_PER_S
        unit = "MB/s" if load.size_bytes == MIB else "1/s"
        meets = None if limit is None else speed >= limit
        rows.append(_row(f"{disk}: {load.name}", speed, unit, limit, meets))
    for (disk, load), found in samples.items():
        if load.size_bytes != MIB or disk == PLAIN:
            continue
        pairs = zip(found, samples[PLAIN, load], strict=True)
        ratio = median(_speed(one, load) / _speed(base, load) for one, base in pairs)
        limit = None if load.writes else RATIO_LIMITS.get(disk)
        meets = None if limit is None else ratio >= limit
        rows.append(_row(f"{disk}: {load.name}, of the plain drive", ratio, "ratio", limit, meets))
    for (disk, load), found in samples.items():
        if load.size_bytes == MIB:
            moved_gb = sum(sample.requests for sample in found) * MIB / 1e9
            for who, cpu_s in (
                ("server", sum(sample.server_cpu_s for sample in found)),
                ("host", sum(sample.host_cpu_s for sample in found)),
            ):
                rows.append(_row(f"{disk}: {load.name}, CPU of {who}", cpu_s / moved_gb, "s/GB"))
    return rows


def print_speeds(samples: dict[tuple[str, Load], list[Sample]]) -> None:
    """The speeds as one table: a line per disk, a column per load."""
    print(f"{'MB/s; 4 KiB: requests per s':28}" + "".join(f"{load.name:>17}" for load in LOADS))
    for disk in dict.fromkeys(disk for disk, _ in samples):
        cells = (median(_speed(s, load) for s in samples[disk, load]) for load in LOADS)
        print(f"{disk:28}" + "".join(f"{cell:17,.0f}" for cell in cells))


def measure(folder: Path, rounds: int, duration_s: float) -> list[dict[str, Any]]:
    """All figures; prints the speeds on the way."""
    samples: dict[tuple[str, Load], list[Sample]] = {}
    with contextlib.ExitStack() as stack:
        disks, missing = open_disks(folder, stack)
        for _ in range(rounds):
            for load in LOADS:
                for name, disk in disks.items():
                    sample = run_load(disk, load, duration_s)
                    samples.setdefault((name, load), []).append(sample)
        parts = measure_parts(disks["backing file"])
    samples = {key: samples[key] for key in sorted(samples, key=lambda k: list(disks).index(k[0]))}
    print_speeds(samples)
    for line in missing:
        print(f"not measured: {line}")
    rows = figures(samples)
    rows += [_row(f"alone: {name}", seconds, "s/GB") for name, seconds in parts.items()]
    peak_mb = measure_memory(folder)
    what = f"peak memory, 1 TiB Opal disk, {QUEUES} queues"
    rows.append(_row(what, peak_mb, "MB", MEMORY_LIMIT_MB, peak_mb <= MEMORY_LIMIT_MB))
    return rows


def write(rows: list[dict[str, Any]]) -> None:
    """Prints what the first table does not hold; writes the figures, commit and machine beside."""
    print(f"\n{'figure':62}{'value':>10} {'unit':6}{'target':>8}  meets")
    for row in rows:
        if row["target"] is not None or row["unit"] not in ("MB/s", "1/s"):
            target = "" if row["target"] is None else f"{row['target']:g}"
            meets = {True: "yes", False: "no", None: ""}[row["meets"]]
            value = f"{row['value']:10,g}"
            print(f"{row['figure']:62}{value} {row['unit']:6}{target:>8}  {meets}")
    folder = REPOSITORY / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "drive.json").write_text(json.dumps(rows, indent=2) + "\n")
    where = machine("none: drive and host on loopback")
    where["machine"]["load_average_1_min"] = round(os.getloadavg()[0], 2)
    (folder / "drive.machine.json").write_text(json.dumps(where, indent=2) + "\n")


def main() -> int:
    """Measures, prints, writes; the exit status does not judge the figures."""
    parser = argparse.ArgumentParser(prog="python -m lab.drive.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each load, disk and round")
    parser.add_argument("--folder", type=Path, help="where the media stand; a temporary folder")
    options = parser.parse_args()
    load_average = os.getloadavg()[0]
    if load_average > 0.5:
        print(f"the machine is busy (load average {load_average:.1f}): expect noise")
    try:
        with tempfile.TemporaryDirectory(prefix="drive-bench-", dir=options.folder) as folder:
            write(measure(Path(folder), options.rounds, options.seconds))
    except (BenchError, CryptoError, OSError) as error:
        print(f"fde: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
