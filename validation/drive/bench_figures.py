"""What the benchmark's samples come to: figures with their targets, and tables of them."""

from __future__ import annotations

import json
import os
from statistics import median
from typing import Any, NamedTuple

from controller.testbed import machine
from lab.state import REPOSITORY

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


def figure_row(
    figure: str, value: float, unit: str, target: float | None = None, meets: bool | None = None
) -> dict[str, Any]:
    """One figure as build/bench keeps it."""
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
        if disk in BASES and load.name == "read 1 MiB":
            limit = READ_LIMIT_MB_S
        elif load.depth == 32 and disk.startswith("drive"):
            limit = DEEP_LIMIT_PER_S
        unit = "MB/s" if load.size_bytes == MIB else "1/s"
        meets = None if limit is None else speed >= limit
        rows.append(figure_row(f"{disk}: {load.name}", speed, unit, limit, meets))
    for base, words in BASES.items():
        rows += _ratios(samples, base, words)
    for (disk, load), found in samples.items():
        for who, value in zip(("server", "host"), _cpu(found, load), strict=True):
            figure = f"{disk}: {load.name}, CPU of {who}"
            rows.append(figure_row(figure, value, _cpu_unit(load)[1]))
    return rows


def _ratios(
    samples: dict[tuple[str, Load], list[Sample]], base: str, words: str
) -> list[dict[str, Any]]:
    """Speeds of large requests as shares of those of the disk `base` in the same round."""
    rows = []
    for (disk, load), found in samples.items():
        if load.size_bytes != MIB or disk == base or (base, load) not in samples:
            continue
        if base == OPAL_OFF and disk not in RATIO_LIMITS:
            continue
        pairs = zip(found, samples[base, load], strict=True)
        ratio = median(_speed(one, load) / _speed(other, load) for one, other in pairs)
        limit = None if load.writes else RATIO_LIMITS.get(disk)
        meets = None if limit is None else ratio >= limit
        rows.append(figure_row(f"{disk}: {load.name}, {words}", ratio, "ratio", limit, meets))
    return rows


def print_speeds(samples: dict[tuple[str, Load], list[Sample]]) -> None:
    """Speeds, then CPU times: a line per disk, a column per load."""
    print(f"{'MB/s; 4 KiB: requests per s':28}" + "".join(f"{load.name:>17}" for load in LOADS))
    for disk in dict.fromkeys(disk for disk, _ in samples):
        cells = (median(_speed(s, load) for s in samples[disk, load]) for load in LOADS)
        print(f"{disk:28}" + "".join(f"{cell:17,.0f}" for cell in cells))
    print(f"\n{'CPU of server + host':28}" + "".join(f"{_cpu_unit(load)[1]:>17}" for load in LOADS))
    for disk in dict.fromkeys(disk for disk, _ in samples):
        pairs = (_cpu(samples[disk, load], load) for load in LOADS)
        print(f"{disk:28}" + "".join(f"{f'{one:.3g} + {two:.3g}':>17}" for one, two in pairs))


def _cpu_unit(load: Load) -> tuple[float, str]:
    return (1e9 / MIB, "s/GB") if load.size_bytes == MIB else (1e6, "µs each")


def _cpu(found: list[Sample], load: Load) -> tuple[float, float]:
    """CPU time of the server and of the host, per GB of large requests or per small one."""
    scale = _cpu_unit(load)[0] / sum(sample.requests for sample in found)
    server_s = sum(sample.server_cpu_s for sample in found)
    return server_s * scale, sum(sample.host_cpu_s for sample in found) * scale


def write(rows: list[dict[str, Any]]) -> None:
    """Prints targets and ratios; writes all figures to build/bench, commit and machine beside."""
    shown = {row["figure"] for row in rows if row["unit"] in ("MB/s", "1/s")}
    shown |= {row["figure"] for row in rows if ", CPU of " in row["figure"]}
    print(f"\n{'figure':62}{'value':>10} {'unit':6}{'target':>8}  meets")
    for row in rows:
        if row["target"] is not None or row["figure"] not in shown:
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
