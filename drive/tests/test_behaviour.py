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
        now_s += disk.write(number * MIB, MIB, now_s)[0]
    return now_s


def test_without_parameters_a_disk_takes_no_time_and_keeps_its_temperature() -> None:
    disk = timing()
    assert fill(disk, 8) == 0
    assert disk.read(0, MIB, 1.0)[0] == 0
    assert disk.temperature_c(1e6) == 30


def test_writes_slow_down_once_the_cache_is_full_and_recover_when_it_has_drained() -> None:
    disk = timing(write_mib_s=100, cache_mib=10, flash_mib_s=10)
    assert fill(disk, 10) == pytest.approx(0.1)
    begin_s = 0.2
    took_s = fill(disk, 20, begin_s) - begin_s
    assert took_s > 1.0
    later_s = begin_s + took_s + 10 / 10
    assert disk.write(0, MIB, later_s)[0] == pytest.approx(0.01)


def test_a_full_disk_has_slower_flash_than_a_trimmed_one() -> None:
    disk = timing(write_mib_s=10, flash_mib_s=10, full_slowdown=3)
    assert disk.write(0, MIB, 0.0)[0] == pytest.approx(0.1, rel=0.01)
    fill(disk, 256)
    assert disk.used_share == 1
    now_s = 1e3
    assert disk.write(0, MIB, now_s)[0] == pytest.approx(0.3)
    disk.deallocate(0, SIZE_BYTES)
    assert disk.used_share == 0
    assert disk.write(0, MIB, now_s + 1)[0] == pytest.approx(0.1, rel=0.01)


def test_a_region_that_is_deallocated_in_part_stays_in_use() -> None:
    disk = timing()
    fill(disk, 2)
    disk.deallocate(MIB // 2, MIB)
    assert disk.used_share == 2 / 256
    disk.deallocate(MIB // 2, 2 * MIB)
    assert disk.used_share == 1 / 256


def test_a_disk_that_was_idle_wakes_up_once() -> None:
    disk = timing(read_mib_s=100, idle_after_ms=50, wake_ms=20)
    assert disk.read(0, MIB, 1.0)[0] == pytest.approx(0.03)
    assert disk.read(0, MIB, 1.04)[0] == pytest.approx(0.01)
    assert disk.read(0, MIB, 1.2)[0] == pytest.approx(0.03)


def test_a_busy_disk_warms_throttles_and_recovers() -> None:
    disk = timing(
        read_mib_s=10, rise_c=40, warm_up_s=10, throttle_c=60, recover_c=50, throttle_slowdown=4
    )
    now_s = 0.0
    while disk.temperature_c(now_s) < 60:
        now_s += disk.read(0, MIB, now_s)[0]
    # 30 + 40 * (1 - exp(-t / 10)) = 60 at t = 10 * ln 4.
    assert now_s == pytest.approx(13.86, abs=0.11)
    assert disk.throttlings == 1
    assert disk.read(0, MIB, now_s)[0] == pytest.approx(0.4)
    assert disk.temperature_c(now_s + 100) == pytest.approx(30, abs=0.1)
    assert disk.read(0, MIB, now_s + 100)[0] == pytest.approx(0.1)
    assert disk.throttlings == 1


def test_one_specimen_takes_longer_for_everything() -> None:
    nominal, slower = timing(read_mib_s=10), timing(read_mib_s=10, time_factor=1.03)
    assert slower.read(0, MIB, 0.0)[0] == pytest.approx(1.03 * nominal.read(0, MIB, 0.0)[0])


def test_commands_wait_for_those_before_them() -> None:
    disk = timing(read_mib_s=10)
    assert [disk.read(0, MIB, 0.0)[0] for _ in range(3)] == pytest.approx([0.1, 0.2, 0.3])


PLATTER: dict[str, float] = {
    "rpm": 7200,
    "settle_ms": 2,
    "full_seek_ms": 20,
    "read_mib_s": 100,
    "write_mib_s": 100,
}
TURN_S = 60 / 7200


def test_sequential_access_needs_no_seek_and_distant_access_does() -> None:
    disk = timing(**PLATTER)
    assert disk.read(0, MIB, 0.0)[0] == pytest.approx(0.01)
    assert disk.read(MIB, MIB, 1.0)[0] == pytest.approx(0.01)
    far = disk.read(SIZE_BYTES - MIB, MIB, 2.0)[0]
    assert 0.029 < far <= 0.030 + TURN_S
    near = disk.write(SIZE_BYTES - 3 * MIB, MIB, 3.0)[0]
    assert 0.012 < near < 0.012 + 0.003 + TURN_S


def test_the_platter_is_waited_for_half_a_turn_on_average() -> None:
    disk = timing(**{**PLATTER, "settle_ms": 0, "full_seek_ms": 0})
    places = [(7919 * n) % 65536 * 4096 for n in range(1, 400)]
    waits_s = [disk.read(place, 4096, n * 0.1234)[0] for n, place in enumerate(places)]
    assert max(waits_s) <= TURN_S + 0.0001
    assert sum(waits_s) / len(waits_s) == pytest.approx(TURN_S / 2, rel=0.1)


def test_the_inner_edge_is_slower() -> None:
    disk = timing(read_mib_s=100, inner_slowdown=2)
    assert disk.read(0, MIB, 0.0)[0] == pytest.approx(0.01)
    assert disk.read(SIZE_BYTES - MIB, MIB, 1.0)[0] == pytest.approx(0.02, rel=0.01)


def test_a_hybrid_disk_reads_again_from_its_flash_until_newer_data_took_the_place() -> None:
    disk = timing(**PLATTER, hybrid_mib=4, hybrid_mib_s=200)
    disk.read(64 * MIB, MIB, 0.0)
    assert disk.read(64 * MIB, MIB, 1.0)[0] == pytest.approx(0.005)
    fill(disk, 4, 2.0)
    assert disk.read(64 * MIB, MIB, 3.0)[0] > 0.012
    assert disk.read(3 * MIB, MIB, 4.0)[0] == pytest.approx(0.005)


def test_slow_flash_takes_its_time_for_each_command() -> None:
    disk = timing(access_ms=1, program_ms=2, read_mib_s=100, write_mib_s=50)
    assert disk.read(0, MIB, 0.0) == pytest.approx((0.011, 0.011))
    assert disk.write(0, MIB, 0.0) == pytest.approx((0.033, 0.022))  # after the read


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"cache_mib": 1}, "needs flash_mib_s"),
        ({"spead": 1}, "no parameter spead"),
        ({"read_mib_s": True}, "not a number"),
        ({"read_mib_s": -1}, "not a number"),
        ({"full_slowdown": 0.5}, "1 or more"),
        ({"throttle_c": 60, "recover_c": 60}, "below throttle_c"),
        ({"inner_slowdown": 0}, "1 or more"),
        ({"rpm": 7200}, "needs read_mib_s"),
        ({"rpm": 7200, "read_mib_s": 1, "settle_ms": 2, "full_seek_ms": 1}, "up to full_seek_ms"),
        ({"hybrid_mib": 8, "hybrid_mib_s": 1}, "needs rpm"),
    ],
)
def test_parameters_that_describe_no_disk_are_refused(
    parameters: dict[str, object], reason: str
) -> None:
    with pytest.raises(BehaviourError, match=reason):
        parse(parameters)
