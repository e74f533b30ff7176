"""Test the powercap reader with trees of files in the kernel's layouts."""

from __future__ import annotations

import itertools
import os
import platform
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from contract.tests.refusal import refuses
from instrumentation.sources import powercap
from instrumentation.sources.counter import (
    MAX_POWER_W,
    PLATFORM_MAX_POWER_W,
    REOPENED,
    ReadFailure,
    Reading,
    difference,
)
from instrumentation.sources.powercap import PowercapSource
from instrumentation.sources.zones import Zone, discover, mirrors, summands
from instrumentation.tests.trees import MAX_UJ, TREES, P, Tree, as_nobody, child, counting

PACKAGE = f"{P}:0"
ALONE = Tree({PACKAGE: "package-0"}, ("package-0",), ("package-0",))


@pytest.mark.parametrize("name", TREES)
def test_every_counter_is_found_once_with_its_sums(tmp_path: Path, name: str) -> None:
    tree = TREES[name]
    root = tree.lay_out(tmp_path)
    with PowercapSource.open(root, mirror_wait_s=0) as source:
        assert tuple(source.names) == tree.names
        readings = source.read()
        series = source.series()
        series.take()
    assert tuple(readings) == tree.names
    taken = [r.energy_uj for r in readings.values() if isinstance(r, Reading)]
    # The numbers follow the tree's order: a twin's must not stand for its zone's.
    mirrored = {path: list(tree.zones).index(other) for path, other in tree.same.items()}
    places = [mirrored.get(path, number) for number, path in enumerate(tree.zones)]
    assert taken == [1000 + place for place in places[: len(tree.names)]]
    sampled = [r for samples in series.readings().values() for r in samples]
    assert [r.energy_uj for r in sampled if isinstance(r, Reading)] == taken

    with counting(tmp_path), PowercapSource.open(root, mirror_wait_s=5) as source:
        sums = summands(zone.name for zone in source.zones if zone.mirror_of is None)
        assert sums == {
            "package": [name for name in tree.add_up if "dram" not in name],
            "dram": [name for name in tree.add_up if "dram" in name],
        }
        tops = {zone.name for zone in source.zones if zone.parent is None}
        assert all(zone.parent in tops for zone in source.zones if zone.parent is not None)
        assert {zone.max_range_uj for zone in source.zones} == ({None} if tree.files else {MAX_UJ})


def test_mirrors_are_named(tmp_path: Path) -> None:
    root = TREES["mirrored die"].lay_out(tmp_path)
    with counting(tmp_path), PowercapSource.open(root, mirror_wait_s=5) as source:
        shown = {zone.name: zone.mirror_of for zone in source.zones if zone.mirror_of}
    assert shown == {
        "package-0-die-1": "package-0-die-0",
        "package-0-die-1/dram": "package-0-die-0/dram",
    }


def test_still_counters_are_no_mirrors(tmp_path: Path) -> None:
    root = TREES["mirrored die"].lay_out(tmp_path)
    with PowercapSource.open(root, mirror_wait_s=0.05) as source:
        assert [zone.mirror_of for zone in source.zones] == [None] * 4


def test_counters_far_apart_that_rise_alike_are_two(tmp_path: Path) -> None:
    zones = discover(TREES["mirrored die"].lay_out(tmp_path))[::2]

    def read_each(apart_uj: int) -> list[Callable[[], int]]:
        counts = itertools.count()  # an update after the first was read around the second
        return [lambda: next(counts) // 3 * 1000, lambda: next(counts) // 3 * 1000 + apart_uj]

    ends_s = time.monotonic() + 5
    assert mirrors(zones, read_each(0), ends_s) == {zones[1].name: zones[0].name}
    assert mirrors(zones, read_each(12_345_678), ends_s) == {}


def test_kinds_and_parents(tmp_path: Path) -> None:
    zones = discover(TREES["psys between packages"].lay_out(tmp_path))
    assert [(zone.kind, zone.parent) for zone in zones] == [
        ("package", None),
        ("dram", "package-0"),
        ("psys", None),
        ("package", None),
        ("dram", "package-1"),
    ]


def test_power_bound_of_a_zone(tmp_path: Path) -> None:
    """A limit raises the bound and never lowers it."""
    root = TREES["psys between packages"].lay_out(tmp_path)
    (root / f"{P}:0/constraint_0_power_limit_uw").write_text("95000000\n")
    (root / f"{P}:2/constraint_1_max_power_uw").write_text("1500000000\n")
    (root / f"{P}:2/constraint_0_max_power_uw").write_text("0\n")
    bounds = {z.name: z.max_power_w for z in discover(root)}
    assert bounds == {
        "package-0": MAX_POWER_W,
        "package-0/dram": MAX_POWER_W,
        "psys": PLATFORM_MAX_POWER_W,
        "package-1": 1500.0,
        "package-1/dram": MAX_POWER_W,
    }


def test_a_series_equals_single_reads(tmp_path: Path) -> None:
    root = TREES["one socket"].lay_out(tmp_path)
    with PowercapSource.open(root) as source:
        series = source.series()
        for energy_uj in (5, 70, 900):
            (root / child(P, 0, 2) / "energy_uj").write_text(f"{energy_uj}\n")
            series.take()
    readings = series.readings()
    assert list(readings) == ["package-0", "core", "uncore", "dram"]
    dram = [reading for reading in readings["dram"] if isinstance(reading, Reading)]
    assert [reading.energy_uj for reading in dram] == [5, 70, 900]
    stamps = [t for n in range(3) for z in readings.values() for t in _stamps(z[n])]
    assert stamps == sorted(stamps)
    assert all(first < last for first, last in (_stamps(reading) for reading in dram))


def _stamps(reading: Reading | ReadFailure) -> tuple[int, int]:
    assert isinstance(reading, Reading)
    return reading.t_before_ns, reading.t_after_ns


@pytest.mark.parametrize("content", ["", "gone\n"])
def test_failing_zone_leaves_the_others(tmp_path: Path, content: str) -> None:
    root = TREES["one socket"].lay_out(tmp_path)
    with PowercapSource.open(root) as source:
        (root / child(P, 0, 0) / "energy_uj").write_text(content)
        series = source.series()
        series.take()
        for readings in (source.read(), {k: v[0] for k, v in series.readings().items()}):
            failed = readings["core"]
            assert isinstance(failed, ReadFailure)
            assert repr(content) in failed.error
            assert isinstance(readings["dram"], Reading)


def test_a_series_reopens_a_failed_counter(tmp_path: Path) -> None:
    root = ALONE.lay_out(tmp_path)
    file = root / PACKAGE / "energy_uj"
    with PowercapSource.open(root) as source:
        series = source.series()
        for text in ("5\n", "", "8\n", "9\n"):
            file.write_text(text)
            series.take()
    samples = series.readings()["package-0"]
    epochs = [sample.epoch for sample in samples if isinstance(sample, Reading)]
    assert (len(samples), epochs) == (4, [0, 1, 1])


@contextmanager
def vanishing(file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Replace a counter by a file of /proc.

    It holds a number, and when its process ends, the held descriptor and the path fail as those of
    a zone do whose driver is gone.
    """
    process = subprocess.Popen(["sleep", "60"])
    number = Path(f"/proc/{process.pid}/oom_score_adj")
    number.write_text("100\n")
    file.unlink()
    file.symlink_to(number)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_zone_that_vanishes_and_returns_is_flagged(tmp_path: Path) -> None:
    root = TREES["one socket"].lay_out(tmp_path)
    file = root / PACKAGE / "energy_uj"
    with vanishing(file) as process, PowercapSource.open(root) as source:
        series = source.series()
        before = source.read()["package-0"]
        series.take()
        process.kill()
        process.wait()
        series.take()
        gone = source.read()
        file.unlink()
        file.write_text("130\n")
        series.take()
        back, again = source.read()["package-0"], source.read()["package-0"]
        file.write_text("90\n")
        fallen = source.read()["package-0"]
    assert isinstance(before, Reading)
    assert isinstance(gone["package-0"], ReadFailure)
    assert gone["package-0"].error == "No such process"
    assert isinstance(gone["dram"], Reading)
    assert isinstance(back, Reading)
    assert isinstance(again, Reading)
    assert isinstance(fallen, Reading)
    # Across the gap the figure is flagged; within what comes after it is not.
    assert difference(before, back, MAX_UJ).flags == (REOPENED,)
    assert difference(before, fallen, MAX_UJ).energy_uj is None
    assert difference(back, again, MAX_UJ).flags == ()
    samples = series.readings()["package-0"]
    assert [type(sample) for sample in samples] == [Reading, ReadFailure, Reading]
    assert difference(samples[0], samples[2], MAX_UJ).flags == (REOPENED,)
    assert len(series.readings()["dram"]) == 3


def test_reopening_leaks_no_descriptor(tmp_path: Path) -> None:
    root = ALONE.lay_out(tmp_path)
    file = root / PACKAGE / "energy_uj"
    with PowercapSource.open(root) as source:
        held = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(20):
            file.write_text("")
            source.read()
            file.write_text("5\n")
            assert isinstance(source.read()["package-0"], Reading)
        assert len(list(Path("/proc/self/fd").iterdir())) == held


def test_two_threads_may_read_while_a_zone_comes_and_goes(tmp_path: Path) -> None:
    """A count of the new file never has the old epoch."""
    root = ALONE.lay_out(tmp_path)
    file = root / PACKAGE / "energy_uj"
    file.write_text("0\n")
    epochs: set[tuple[int, int]] = set()
    with PowercapSource.open(root) as source:
        is_over = threading.Event()

        def read() -> None:
            while not is_over.is_set():
                reading = source.read()["package-0"]
                if isinstance(reading, Reading):
                    epochs.add((reading.energy_uj, reading.epoch))

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        for number in range(1, 50):
            file.write_text("")
            time.sleep(0.001)
            file.unlink()
            file.write_text(f"{number}\n")
            time.sleep(0.001)
        is_over.set()
        for thread in threads:
            thread.join()
    oldest = dict(sorted(epochs, reverse=True))
    assert len(oldest) > 1
    assert all(oldest[old] < oldest[new] for new, old in pairwise(oldest))


def test_a_tree_without_zones_is_refused(tmp_path: Path) -> None:
    with refuses("no-zone"):
        PowercapSource.open(tmp_path)


def test_broken_links_are_not_a_missing_driver(tmp_path: Path) -> None:
    for name in ("intel-rapl", "intel-rapl:0", "intel-rapl:0:0"):
        (tmp_path / name).symlink_to(tmp_path / "hidden" / name)
    with refuses("links-lead-nowhere") as refused:
        PowercapSource.open(tmp_path)
    assert "modprobe" not in str(refused.value)
    assert PowercapSource.is_present(tmp_path)


def test_another_processor_is_not_x86(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with refuses("not-x86", machine="aarch64") as refused:
        PowercapSource.open(tmp_path)
    assert "modprobe" not in str(refused.value)
    assert not PowercapSource.is_present(tmp_path)


def test_a_zone_with_only_limits_leaves_the_others(tmp_path: Path) -> None:
    root = TREES["psys first"].lay_out(tmp_path)
    (root / "intel-rapl/intel-rapl:0/energy_uj").unlink()
    with PowercapSource.open(root) as source:
        assert list(source.names) == ["package-0", "dram"]
    for file in root.rglob("energy_uj"):
        file.unlink()
    with refuses("zones-without-energy"):
        PowercapSource.open(root)


def test_zones_for_root_only_leave_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = TREES["one socket"].lay_out(tmp_path)
    opened = powercap._open

    def open_as_user(zone: Zone) -> int:
        if zone.name != "package-0":
            raise PermissionError(13, "Permission denied", str(zone.path / "energy_uj"))
        return opened(zone)

    monkeypatch.setattr(powercap, "_open", open_as_user)
    with PowercapSource.open(root) as source:
        assert list(source.names) == ["package-0"]
        assert "core, uncore, dram" in source.omitted and "chmod a+r" in source.omitted


def test_an_unreadable_name_is_refused(tmp_path: Path) -> None:
    """The name exists, but reading it fails, as when a driver is unloaded."""
    root = ALONE.lay_out(tmp_path)
    (root / PACKAGE / "name").unlink()
    (root / PACKAGE / "name").symlink_to("/proc/self/mem")
    with refuses("zones-unreadable", error="Input/output error"):
        PowercapSource.open(root)


def test_an_unreadable_counter_gives_a_working_command(tmp_path: Path) -> None:
    root = TREES["one socket"].lay_out(tmp_path)
    for file in root.rglob("energy_uj"):
        file.chmod(0o400 if os.geteuid() == 0 else 0o000)
    with as_nobody(tmp_path), refuses("zones-root-only") as caught:
        PowercapSource.open(root)
    command = re.search(r"`sudo (.*)`", str(caught.value))
    assert command is not None
    assert os.system(command[1]) == 0
    with as_nobody(tmp_path):
        PowercapSource.open(root).close()
