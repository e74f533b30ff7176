"""The benchmark's own arithmetic and its NBD host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from validation.drive.bench import (
    LOADS,
    MIB,
    OPAL_512,
    OPAL_4096,
    OPAL_OFF,
    PLAIN,
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
    by_name = {figure.figure: vars(figure) for figure in figures(samples)}
    speed = by_name[f"{PLAIN}: read 1 MiB"]
    assert (speed["value"], speed["unit"], speed["meets"]) == (
        round(4000 * MIB / 1e6, 1),
        "MB/s",
        True,
    )
    for disk, ratio, limit, meets in ((OPAL_4096, 0.8, 0.80, True), (OPAL_512, 0.45, 0.50, False)):
        row = by_name[f"{disk}: read 1 MiB, of the plain drive"]
        assert (row["value"], row["target"], row["meets"]) == (ratio, limit, meets)
    literal = by_name[f"{OPAL_512}: read 1 MiB, of Opal with locking off"]
    assert (literal["value"], literal["target"], literal["meets"]) == (0.9, 0.5, True)
    assert f"{PLAIN}: read 1 MiB, of Opal with locking off" not in by_name
    deep = by_name[f"{OPAL_512}: read 4 KiB x32"]
    assert (deep["value"], deep["unit"], deep["target"], deep["meets"]) == (
        18000,
        "1/s",
        20000,
        False,
    )
    cpu = by_name[f"{PLAIN}: read 1 MiB, CPU of server"]
    assert (cpu["value"], cpu["unit"]) == (round(0.3 / (7000 * MIB / 1e9), 3), "s/GB")
    cpu = by_name[f"{OPAL_512}: read 4 KiB x32, CPU of host"]
    assert (cpu["value"], cpu["unit"]) == (round(0.6 / 38000 * 1e6, 1), "µs each")


def test_the_nbd_host_reads_what_it_wrote_to_another_server(tmp_path: Path) -> None:
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
