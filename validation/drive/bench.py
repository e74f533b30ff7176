"""Speed of the virtual drive over loopback, against its backing file and against nbdkit.

Drive and host share the machine, so each figure is of both together. Every load lasts a fixed time;
all disks take turns at it, several rounds long, and the median counts. A ratio is the median of the
rounds' ratios. `python -m validation drive` writes build/bench/drive.json.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

from drive.aes_xts import AesXts
from validation import processes
from validation.bench import Figure, at_least, at_most
from validation.drive.bench_disks import (
    BenchError,
    Disk,
    FileDisk,
    NbdDisk,
    NvmeDisk,
    running_drive,
    running_nbdkit,
)

MIB = 1 << 20
PLAIN = "drive, plain, 4096"
OPAL_OFF = "drive, Opal off, 4096"
OPAL_4096 = "drive, Opal unlocked, 4096"
OPAL_512 = "drive, Opal unlocked, 512"
READ_LIMIT_MB_S = 1000
DEEP_LIMIT_PER_S = 20_000
RATIO_LIMITS = {OPAL_4096: 0.80, OPAL_512: 0.50}
# A disk "with locking off": one without a cipher, or, as real drives are, one that encrypts always.
BASES = {PLAIN: "of the plain drive", OPAL_OFF: "of Opal with locking off"}
DISK_BYTES = 256 * MIB
LARGE_DISK_BYTES = 1 << 40
QUEUES = 9
MEMORY_LIMIT_MB = 100


class Load(NamedTuple):
    """A stream of equal requests, with `depth` of them under way at once."""

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
    """Result of one turn of a load, with CPU seconds of the server and of this process."""

    requests: int
    duration_s: float
    server_cpu_s: float
    host_cpu_s: float


Samples = Mapping[tuple[str, Load], list[Sample]]


def rounded(value: float) -> float:
    """Round a figure as build/bench stores it."""
    return round(value, 3 if value < 10 else 1)


def _speed(sample: Sample, load: Load) -> float:
    """Return MB/s of large requests, requests per second of small ones."""
    per_s = sample.requests / sample.duration_s
    return per_s * load.size_bytes / 1e6 if load.size_bytes == MIB else per_s


def _figure(name: str, value: float, unit: str, limit: float | None) -> Figure:
    if limit is None:
        return Figure(name, rounded(value), unit)
    return replace(at_least(name, value, unit, limit), value=rounded(value))


def figures(samples: Samples) -> list[Figure]:
    """Return speeds with their targets, ratios to the plain drive, CPU seconds per GB read."""
    results = []
    for (disk, load), taken in samples.items():
        limit: float | None = None
        if disk in BASES and load.name == "read 1 MiB":
            limit = READ_LIMIT_MB_S
        elif load.depth == 32 and disk.startswith("drive"):
            limit = DEEP_LIMIT_PER_S
        unit = "MB/s" if load.size_bytes == MIB else "1/s"
        speed = median(_speed(sample, load) for sample in taken)
        results.append(_figure(f"{disk}: {load.name}", speed, unit, limit))
    for base, words in BASES.items():
        results += _ratios(samples, base, words)
    for (disk, load), taken in samples.items():
        for who, value in zip(("server", "host"), _cpu(taken, load), strict=True):
            name = f"{disk}: {load.name}, CPU of {who}"
            results.append(Figure(name, rounded(value), _cpu_unit(load)[1]))
    return results


def _ratios(samples: Samples, base: str, words: str) -> Iterator[Figure]:
    """Yield speeds of large requests as shares of the disk `base` in the same round."""
    for (disk, load), taken in samples.items():
        if load.size_bytes != MIB or disk == base or (base, load) not in samples:
            continue
        if base == OPAL_OFF and disk not in RATIO_LIMITS:
            continue
        pairs = zip(taken, samples[base, load], strict=True)
        ratio = median(_speed(first, load) / _speed(second, load) for first, second in pairs)
        limit = None if load.writes else RATIO_LIMITS.get(disk)
        yield _figure(f"{disk}: {load.name}, {words}", ratio, "ratio", limit)


def speed_table(samples: Samples) -> str:
    """Format speeds, then CPU times: a line per disk, a column per load."""
    disks = list(dict.fromkeys(disk for disk, _ in samples))
    lines = [f"{'MB/s; 4 KiB: requests per s':28}" + "".join(f"{load.name:>17}" for load in LOADS)]
    for disk in disks:
        cells = (median(_speed(s, load) for s in samples[disk, load]) for load in LOADS)
        lines.append(f"{disk:28}" + "".join(f"{cell:17,.0f}" for cell in cells))
    units = "".join(f"{_cpu_unit(load)[1]:>17}" for load in LOADS)
    lines += ["", f"{'CPU of server + host':28}{units}"]
    for disk in disks:
        pairs = (_cpu(samples[disk, load], load) for load in LOADS)
        lines.append(
            f"{disk:28}" + "".join(f"{f'{read:.3g} + {write:.3g}':>17}" for read, write in pairs)
        )
    return "\n".join(lines)


def _cpu_unit(load: Load) -> tuple[float, str]:
    return (1e9 / MIB, "s/GB") if load.size_bytes == MIB else (1e6, "µs each")


def _cpu(samples: list[Sample], load: Load) -> tuple[float, float]:
    """Return CPU time of server and host, per GB of large requests or per small one."""
    scale = _cpu_unit(load)[0] / sum(sample.requests for sample in samples)
    server_s = sum(sample.server_cpu_s for sample in samples)
    return server_s * scale, sum(sample.host_cpu_s for sample in samples) * scale


def _server_cpu_s(disk: Disk) -> float:
    return processes.cpu_s(disk.pid) if disk.pid else 0.0


def run_load(disk: Disk, load: Load, duration_s: float) -> Sample:
    """Keep `load.depth` requests under way for `duration_s`; 4 KiB ones at random places."""
    count = DISK_BYTES // load.size_bytes
    order = [i * load.size_bytes for i in range(count)]
    if load.size_bytes < MIB:
        order = random.Random(1).sample(order, 8192)
    data = os.urandom(load.size_bytes)
    buffers = [memoryview(bytearray(load.size_bytes)) for _ in range(load.depth)]
    requests = under_way = 0
    cpu_s, own_s, begin = _server_cpu_s(disk), time.process_time(), time.perf_counter()
    while time.perf_counter() - begin < duration_s:
        offset = order[requests % len(order)]
        if load.writes:
            disk.write(offset, data)
        else:
            disk.read(offset, buffers[requests % load.depth])
        requests += 1
        under_way += 1
        if under_way == load.depth:
            disk.complete()
            under_way -= 1
    for _ in range(under_way):
        disk.complete()
    passed_s = time.perf_counter() - begin
    return Sample(requests, passed_s, _server_cpu_s(disk) - cpu_s, time.process_time() - own_s)


def open_disks(folder: Path, stack: contextlib.ExitStack) -> tuple[dict[str, Disk], list[str]]:
    """Open all disks, filled once so that every block is allocated; list the missing ones."""
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
    """Measure peak resident MB of an unlocked Opal drive of 1 TiB with nine busy queues."""
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
        return processes.peak_mb(pid)


def _s_per_gb(work: Callable[[], None], work_bytes: int) -> float:
    """Return the seconds of `work` per 10⁹ bytes, best of nine."""
    times = []
    for _ in range(9):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times) / work_bytes * 1e9


def measure_parts(file: Disk) -> dict[str, float]:
    """Measure the parts of a read separately, in seconds per GB."""
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


def measure(quick: bool) -> list[Figure]:
    """Measure all figures, and print the speeds on the way."""
    rounds, duration_s = (1, 0.1) if quick else (5, 0.5)
    with tempfile.TemporaryDirectory(prefix="drive-bench-") as folder:
        return _measure_in(Path(folder), rounds, duration_s)


def _measure_in(folder: Path, rounds: int, duration_s: float) -> list[Figure]:
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
    print(speed_table(samples))
    for line in missing:
        print(f"not measured: {line}")
    alone = [Figure(f"alone: {name}", rounded(s), "s/GB") for name, s in parts.items()]
    title = f"peak memory, 1 TiB Opal disk, {QUEUES} queues"
    memory = at_most(title, rounded(measure_memory(folder)), "MB", MEMORY_LIMIT_MB)
    return [*figures(samples), *alone, memory]
