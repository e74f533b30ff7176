"""The declared behaviour of a disk in time; its clock is handed in, so nothing waits here."""

from __future__ import annotations

import pytest

from drive.behaviour import Behaviour, BehaviourError, Timing, parse

MIB = 1 << 20
SIZE_BYTES = 256 * MIB


def timing(**parameters: float) -> Timing:
    return Timing(Behaviour(**parameters), SIZE_BYTES)


def fill(disk: Timing, mib: int, now_s: float = 0.0, start: int = 0) -> float:
    """Write so many MiB one after the other; the time at which the last one is done."""
    for number in range(start, start + mib):
        now_s += disk.write(number * MIB, MIB, now_s)
    return now_s


def test_without_parameters_a_disk_takes_no_time_and_keeps_its_temperature() -> None:
    disk = timing()
    assert fill(disk, 8) == 0
    assert disk.read(MIB, 1.0) == 0
    assert disk.temperature_c(1e6) == 30


def test_writes_slow_down_once_the_cache_is_full_and_recover_when_it_has_drained() -> None:
    disk = timing(write_mib_s=100, cache_mib=10, flash_mib_s=10)
    assert fill(disk, 10) == pytest.approx(0.1)
    begin_s = 0.2
    took_s = fill(disk, 20, begin_s) - begin_s
    assert took_s > 1.0
    later_s = begin_s + took_s + 10 / 10
    assert disk.write(0, MIB, later_s) == pytest.approx(0.01)


def test_a_full_disk_has_slower_flash_than_a_trimmed_one() -> None:
    disk = timing(write_mib_s=10, flash_mib_s=10, full_slowdown=3)
    assert disk.write(0, MIB, 0.0) == pytest.approx(0.1, rel=0.01)
    fill(disk, 256)
    assert disk.used_share == 1
    now_s = 1e3
    assert disk.write(0, MIB, now_s) == pytest.approx(0.3)
    disk.deallocate(0, SIZE_BYTES)
    assert disk.used_share == 0
    assert disk.write(0, MIB, now_s + 1) == pytest.approx(0.1, rel=0.01)


def test_a_region_that_is_deallocated_in_part_stays_in_use() -> None:
    disk = timing()
    fill(disk, 2)
    disk.deallocate(MIB // 2, MIB)
    assert disk.used_share == 2 / 256
    disk.deallocate(MIB // 2, 2 * MIB)
    assert disk.used_share == 1 / 256


def test_a_disk_that_was_idle_wakes_up_once() -> None:
    disk = timing(read_mib_s=100, idle_after_ms=50, wake_ms=20)
    assert disk.read(MIB, 1.0) == pytest.approx(0.03)
    assert disk.read(MIB, 1.04) == pytest.approx(0.01)
    assert disk.read(MIB, 1.2) == pytest.approx(0.03)


def test_a_busy_disk_warms_throttles_and_recovers() -> None:
    disk = timing(
        read_mib_s=10, rise_c=40, warm_up_s=10, throttle_c=60, recover_c=50, throttle_slowdown=4
    )
    now_s = 0.0
    while disk.temperature_c(now_s) < 60:
        now_s += disk.read(MIB, now_s)
    # 30 + 40 * (1 - exp(-t / 10)) = 60 at t = 10 * ln 4.
    assert now_s == pytest.approx(13.86, abs=0.11)
    assert disk.throttlings == 1
    assert disk.read(MIB, now_s) == pytest.approx(0.4)
    assert disk.temperature_c(now_s + 100) == pytest.approx(30, abs=0.1)
    assert disk.read(MIB, now_s + 100) == pytest.approx(0.1)
    assert disk.throttlings == 1


def test_one_specimen_takes_longer_for_everything() -> None:
    one, other = timing(read_mib_s=10), timing(read_mib_s=10, time_factor=1.03)
    assert other.read(MIB, 0.0) == pytest.approx(1.03 * one.read(MIB, 0.0))


def test_commands_wait_for_those_before_them() -> None:
    disk = timing(read_mib_s=10)
    assert [disk.read(MIB, 0.0) for _ in range(3)] == pytest.approx([0.1, 0.2, 0.3])


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"cache_mib": 1}, "needs flash_mib_s"),
        ({"spead": 1}, "no parameter spead"),
        ({"read_mib_s": True}, "not a number"),
        ({"read_mib_s": -1}, "not a number"),
        ({"full_slowdown": 0.5}, "1 or more"),
        ({"throttle_c": 60, "recover_c": 60}, "below throttle_c"),
    ],
)
def test_parameters_that_describe_no_disk_are_refused(
    parameters: dict[str, object], reason: str
) -> None:
    with pytest.raises(BehaviourError, match=reason):
        parse(parameters)
