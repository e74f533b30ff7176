"""What the benchmark's samples come to: figures with their targets, and tables of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from validation.bench import Figure, at_least

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


Samples = Mapping[tuple[str, Load], list[Sample]]


def rounded(value: float) -> float:
    """A figure as build/bench keeps it."""
    return round(value, 3 if value < 10 else 1)


def _speed(sample: Sample, load: Load) -> float:
    """MB/s of large requests, requests per second of small ones."""
    per_s = sample.requests / sample.duration_s
    return per_s * load.size_bytes / 1e6 if load.size_bytes == MIB else per_s


def _figure(name: str, value: float, unit: str, limit: float | None) -> Figure:
    if limit is None:
        return Figure(name, rounded(value), unit)
    return replace(at_least(name, value, unit, limit), value=rounded(value))


def figures(samples: Samples) -> list[Figure]:
    """Speeds with their targets, ratios to the plain drive, CPU seconds per GB read."""
    found = []
    for (disk, load), taken in samples.items():
        limit: float | None = None
        if disk in BASES and load.name == "read 1 MiB":
            limit = READ_LIMIT_MB_S
        elif load.depth == 32 and disk.startswith("drive"):
            limit = DEEP_LIMIT_PER_S
        unit = "MB/s" if load.size_bytes == MIB else "1/s"
        speed = median(_speed(sample, load) for sample in taken)
        found.append(_figure(f"{disk}: {load.name}", speed, unit, limit))
    for base, words in BASES.items():
        found += _ratios(samples, base, words)
    for (disk, load), taken in samples.items():
        for who, value in zip(("server", "host"), _cpu(taken, load), strict=True):
            name = f"{disk}: {load.name}, CPU of {who}"
            found.append(Figure(name, rounded(value), _cpu_unit(load)[1]))
    return found


def _ratios(samples: Samples, base: str, words: str) -> Iterator[Figure]:
    """Speeds of large requests as shares of those of the disk `base` in the same round."""
    for (disk, load), taken in samples.items():
        if load.size_bytes != MIB or disk == base or (base, load) not in samples:
            continue
        if base == OPAL_OFF and disk not in RATIO_LIMITS:
            continue
        pairs = zip(taken, samples[base, load], strict=True)
        ratio = median(_speed(one, load) / _speed(other, load) for one, other in pairs)
        limit = None if load.writes else RATIO_LIMITS.get(disk)
        yield _figure(f"{disk}: {load.name}, {words}", ratio, "ratio", limit)


def speed_table(samples: Samples) -> str:
    """Speeds, then CPU times: a line per disk, a column per load."""
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
            f"{disk:28}" + "".join(f"{f'{one:.3g} + {two:.3g}':>17}" for one, two in pairs)
        )
    return "\n".join(lines)


def _cpu_unit(load: Load) -> tuple[float, str]:
    return (1e9 / MIB, "s/GB") if load.size_bytes == MIB else (1e6, "µs each")


def _cpu(found: list[Sample], load: Load) -> tuple[float, float]:
    """CPU time of the server and of the host, per GB of large requests or per small one."""
    scale = _cpu_unit(load)[0] / sum(sample.requests for sample in found)
    server_s = sum(sample.server_cpu_s for sample in found)
    return server_s * scale, sum(sample.host_cpu_s for sample in found) * scale
