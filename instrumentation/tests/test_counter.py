"""Energy between readings of a wrapping counter, against a truth that never wraps."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from instrumentation.sources.counter import (
    DOUBLE_WRAP,
    READ_FAILED,
    UNKNOWN_RANGE,
    ReadFailure,
    Reading,
    difference,
    total,
)

RANGES = st.one_of(st.just(262_143_328_850), st.just(65_532_610_987), st.integers(1, 10**12))


def reading(t_ns: int, true_uj: int, max_range_uj: int) -> Reading:
    return Reading(t_ns, t_ns + 1000, true_uj % (max_range_uj + 1))


@given(RANGES, st.integers(0, 10**15), st.data())
def test_one_wrap_is_corrected_exactly(
    max_range_uj: int, start_uj: int, data: st.DataObject
) -> None:
    used_uj = data.draw(st.integers(0, max_range_uj))
    got = difference(
        reading(0, start_uj, max_range_uj),
        reading(10**6, start_uj + used_uj, max_range_uj),
        max_range_uj,
    )
    assert got.energy_uj == used_uj
    wrapped = (start_uj + used_uj) // (max_range_uj + 1) > start_uj // (max_range_uj + 1)
    assert got.kind == ("corrected" if wrapped else "difference")


@given(
    RANGES,
    st.integers(0, 10**15),
    st.integers(1, 10**13),
    st.floats(0, 1000),
)
def test_wrong_figures_are_flagged(
    max_range_uj: int, start_uj: int, elapsed_ns: int, power_w: float
) -> None:
    """Whatever was used below the power bound: the figure is right, or it is flagged."""
    used_uj = int(power_w * elapsed_ns * 1e-3)
    start = reading(0, start_uj, max_range_uj)
    end = reading(elapsed_ns, start_uj + used_uj, max_range_uj)
    got = difference(start, end, max_range_uj)
    assert got.energy_uj == used_uj or DOUBLE_WRAP in got.flags


def test_short_time_is_not_flagged() -> None:
    start, end = Reading(0, 10, 5), Reading(10**9, 10**9 + 10, 3)
    assert difference(start, end, 262_143_328_850).flags == ()


@given(
    st.integers(1000, 10**6),
    st.lists(st.integers(0, 999), min_size=1, max_size=50),
    st.integers(0, 10**9),
)
def test_samples_bound_the_wraps(max_range_uj: int, steps: list[int], start_uj: int) -> None:
    """A series that is dense enough is exact however often it wraps, and its parts add up."""
    true_uj = [start_uj]
    for step in steps:
        true_uj.append(true_uj[-1] + step)
    series = [reading(i * 100, uj, max_range_uj) for i, uj in enumerate(true_uj)]
    got = total(series, max_range_uj)
    assert got.energy_uj == true_uj[-1] - true_uj[0]
    wraps = true_uj[-1] // (max_range_uj + 1) - true_uj[0] // (max_range_uj + 1)
    assert got.kind == ("corrected" if wraps else "difference")
    parts = [difference(a, b, max_range_uj).energy_uj for a, b in pairwise(series)]
    assert sum(part or 0 for part in parts) == got.energy_uj


def test_first_reading_is_no_difference() -> None:
    got = difference(None, Reading(0, 1, 77), 1000)
    assert (got.kind, got.energy_uj) == ("first", 0)


def test_failed_read_is_lost_not_zero() -> None:
    good, failed = Reading(0, 1, 77), ReadFailure(5, "gone")
    for got in (difference(good, failed, 1000), difference(failed, good, 1000)):
        assert (got.kind, got.energy_uj, got.flags) == ("lost", None, (READ_FAILED,))
    assert total([good, Reading(3, 4, 80), failed], 1000).energy_uj is None
    assert total([good, failed, Reading(6, 7, 80)], 1000).energy_uj == 3


def test_wrap_of_unknown_range_is_lost() -> None:
    got = difference(Reading(0, 1, 77), Reading(2, 3, 5), None)
    assert (got.kind, got.energy_uj, got.flags) == ("lost", None, (UNKNOWN_RANGE,))
    grown = difference(Reading(0, 1, 5), Reading(2, 3, 77), None)
    assert (grown.energy_uj, grown.flags) == (72, (UNKNOWN_RANGE,))
