"""The benchmark's own arithmetic and its NBD host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from validation.bench import Figure
from validation.drive.bench import (
    DEEP_LIMIT_PER_S,
    LOADS,
    MIB,
    OPAL_512,
    OPAL_4096,
    OPAL_OFF,
    PLAIN,
    READ_LIMIT_MB_S,
    Load,
    Sample,
    figures,
)
from validation.drive.bench_disks import BenchError, NbdDisk, running_nbdkit

READ = next(load for load in LOADS if load.name == "read 1 MiB")
DEEP = next(load for load in LOADS if load.name == "read 4 KiB x32")


def rounds(*requests: int) -> list[Sample]:
    return [Sample(count, 0.5, 0.1, 0.2) for count in requests]


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    samples: dict[tuple[str, Load], list[Sample]] = {
        (PLAIN, READ): rounds(1000, 2000, 4000),
        (OPAL_OFF, READ): rounds(1000, 1000, 1000),
        (OPAL_4096, READ): rounds(900, 1600, 2000),
        (OPAL_512, READ): rounds(400, 900, 2000),
        (OPAL_512, DEEP): rounds(9000, 9000, 20000),
    }
    by_name = {figure.figure: figure for figure in figures(samples)}
    of_plain, of_opal = "read 1 MiB, of the plain drive", "read 1 MiB, of Opal with locking off"
    server_cpu, host_cpu = round(0.3 / (7000 * MIB / 1e9), 3), round(0.6 / 38000 * 1e6, 1)
    for name, value, unit, target, meets in (
        (f"{PLAIN}: read 1 MiB", round(4000 * MIB / 1e6, 1), "MB/s", READ_LIMIT_MB_S, True),
        (f"{OPAL_4096}: {of_plain}", 0.8, "ratio", 0.8, True),
        (f"{OPAL_512}: {of_plain}", 0.45, "ratio", 0.5, False),
        (f"{OPAL_512}: {of_opal}", 0.9, "ratio", 0.5, True),
        (f"{OPAL_512}: read 4 KiB x32", 18000, "1/s", DEEP_LIMIT_PER_S, False),
        (f"{PLAIN}: read 1 MiB, CPU of server", server_cpu, "s/GB", None, None),
        (f"{OPAL_512}: read 4 KiB x32, CPU of host", host_cpu, "µs each", None, None),
    ):
        assert by_name[name] == Figure(name, value, unit, target, meets)
    assert f"{PLAIN}: {of_opal}" not in by_name


def test_the_nbd_host_reads_back_data_of_another_server(tmp_path: Path) -> None:
    data, target = os.urandom(MIB), memoryview(bytearray(MIB))
    try:
        with running_nbdkit(tmp_path / "nbd", 4 * MIB) as (port, pid):
            host = NbdDisk(port, pid)
            assert host.size_bytes == 4 * MIB
            host.write(MIB, data)
            host.complete()
            host.read(MIB, target)
            host.complete()
            with pytest.raises(OSError, match="failed a request"):
                host.read(4 * MIB, target)
                host.complete()
            host.close()
    except BenchError as error:
        pytest.skip(str(error))
    assert target.tobytes() == data
    assert (tmp_path / "nbd" / "disk").read_bytes()[MIB : 2 * MIB] == data
