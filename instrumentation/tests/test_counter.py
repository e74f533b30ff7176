"""Energy between readings of a wrapping counter, against a truth that never wraps."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instrumentation.sources.counter import (
    BEYOND_BOUND,
    DOUBLE_WRAP,
    READ_FAILED,
    REOPENED,
    UNKNOWN_RANGE,
    ReadFailure,
    Reading,
    difference,
    modulus_uj,
    total,
    unit_nj,
    unit_shortfall,
)

# What the kernel makes of the hardware's unit, in nJ: 2^-14 J, 2^-16 J, memory of servers, the
# platform of servers, and one below a microjoule (2^-20 J).
UNITS_NJ = (61_035, 15_258, 15_300, 10**9, 953)
# Ranges that no 32-bit counter has: drivers that count µJ and start again after their range.
PLAIN_RANGES = st.integers(1, 10**12).filter(lambda uj: unit_nj(uj) is None)
LONG_NS = 10**12  # 1000 s, in which MAX_POWER_W is 10^12 µJ


def shown_uj(raw: int, unit: int) -> int:
    """Return the kernel's `energy_uj` of a hardware count (rapl_unit_xlate).

    The count keeps 32 bits.
    """
    return (raw & 0xFFFFFFFF) * unit // 1000


def plain(t_ns: int, true_uj: int, max_range_uj: int) -> Reading:
    """Return a counter of whole µJ that starts again after its range."""
    return Reading(t_ns, t_ns + 1000, true_uj % (max_range_uj + 1))


def kernel(t_ns: int, raw: int, unit: int) -> Reading:
    return Reading(t_ns, t_ns + 1000, shown_uj(raw, unit))


@pytest.mark.parametrize(
    ("range_uj", "unit"),
    [(262_143_328_850, 61_035), (65_532_610_987, 15_258), (65_712_999_613, 15_300)],
)
def test_the_unit_follows_from_ranges_seen_on_hardware(range_uj: int, unit: int) -> None:
    assert unit_nj(range_uj) == unit
    assert shown_uj(2**32 - 1, unit) == range_uj


@given(st.integers(1, 10**9))
def test_the_unit_follows_from_every_range(unit: int) -> None:
    assert unit_nj(shown_uj(2**32 - 1, unit)) == unit


def test_the_shortfall_of_the_kernels_unit() -> None:
    assert unit_shortfall(262_143_328_850) == pytest.approx(2.56e-6, rel=0.01)
    assert unit_shortfall(65_532_610_987) == pytest.approx(51.7e-6, rel=0.01)
    assert unit_shortfall(65_712_999_613) == 0  # a constant of the kernel, not rounded
    assert unit_shortfall(1000) == 0


@given(st.sampled_from(UNITS_NJ), st.integers(0, 2**40), st.integers(0, 2**32 - 1))
def test_one_wrap_of_the_kernels_counter(unit: int, start: int, counts: int) -> None:
    """Right to the count, and to 1.5 µJ of counts times the kernel's unit."""
    counts = min(counts, 2**32 - 2 - 1000 // unit)  # nearly all of it ends within the same µJ
    range_uj = shown_uj(2**32 - 1, unit)
    high_w = 1e9  # the bound is not what is tested here
    first, last = kernel(0, start, unit), kernel(LONG_NS, start + counts, unit)
    got = difference(first, last, range_uj, high_w)
    assert got.energy_uj is not None
    assert abs(got.energy_uj - counts * unit / 1000) < 1.5
    if unit >= 3000:  # where a count is more than the error
        assert round(got.energy_uj * 1000 / unit) == counts
    wrapped = (start + counts) >> 32 > start >> 32
    assert got.kind == ("corrected" if wrapped else "difference")


def test_a_wrap_that_ends_where_it_began_is_flagged() -> None:
    unit, range_uj = 953, shown_uj(2**32 - 1, 953)
    got = difference(kernel(0, 1, unit), kernel(LONG_NS, 2**32, unit), range_uj, 1e9)
    assert (got.energy_uj, got.flags) == (0, (DOUBLE_WRAP,))


@given(PLAIN_RANGES, st.integers(0, 10**15), st.data())
def test_one_wrap_of_a_plain_counter_is_exact(
    max_range_uj: int, start_uj: int, data: st.DataObject
) -> None:
    used_uj = data.draw(st.integers(0, max_range_uj))
    got = difference(
        plain(0, start_uj, max_range_uj),
        plain(LONG_NS, start_uj + used_uj, max_range_uj),
        max_range_uj,
    )
    assert got.energy_uj == used_uj
    wrapped = (start_uj + used_uj) // (max_range_uj + 1) > start_uj // (max_range_uj + 1)
    assert got.kind == ("corrected" if wrapped else "difference")


@given(
    st.sampled_from(UNITS_NJ),
    st.integers(0, 2**40),
    st.integers(1, 10**13),
    st.floats(0, 1),
    st.floats(1, 2000),
)
def test_wrong_figures_are_flagged(
    unit: int, start: int, elapsed_ns: int, share: float, bound_w: float
) -> None:
    """For any energy below the power bound the figure is right, or it is flagged."""
    range_uj = shown_uj(2**32 - 1, unit)
    counts = int(share * bound_w * elapsed_ns / unit)
    got = difference(
        kernel(0, start, unit), kernel(elapsed_ns, start + counts, unit), range_uj, bound_w
    )
    assert got.energy_uj is not None
    assert abs(got.energy_uj - counts * unit / 1000) < 1.5 or DOUBLE_WRAP in got.flags
    assert BEYOND_BOUND not in got.flags


def test_the_bound_decides_from_when_a_second_wrap_is_possible() -> None:
    """262 kJ at 1000 W, 4.4 minutes; at 100 W, 44 minutes."""
    start, end = Reading(0, 10, 5), Reading(300 * 10**9, 300 * 10**9 + 10, 30)
    assert difference(start, end, 262_143_328_850).flags == (DOUBLE_WRAP,)
    assert difference(start, end, 262_143_328_850, max_power_w=100).flags == ()


def test_a_fall_that_no_power_explains_is_lost() -> None:
    """The counter was set back: taken for a wrap it would be 262 kJ in a second."""
    start, end = Reading(0, 10, 5000), Reading(10**9, 10**9 + 10, 30)
    got = difference(start, end, 262_143_328_850)
    assert (got.kind, got.energy_uj, got.flags) == ("lost", None, (BEYOND_BOUND,))


def test_a_rise_beyond_the_bound_is_kept_and_flagged() -> None:
    got = difference(Reading(0, 10, 0), Reading(10**9, 10**9 + 10, 10**10), 262_143_328_850)
    assert (got.kind, got.energy_uj, got.flags) == ("difference", 10**10, (BEYOND_BOUND,))


@given(
    PLAIN_RANGES.filter(lambda uj: uj >= 1000),
    st.lists(st.integers(0, 999), min_size=1, max_size=50),
    st.integers(0, 10**9),
)
def test_samples_bound_the_wraps(max_range_uj: int, steps: list[int], start_uj: int) -> None:
    """A dense series is exact for any number of wraps, and its parts add up."""
    true_uj = [start_uj]
    for step in steps:
        true_uj.append(true_uj[-1] + step)
    series = [plain(i * 100, uj, max_range_uj) for i, uj in enumerate(true_uj)]
    got = total(series, max_range_uj, max_power_w=1e9)
    assert got.energy_uj == true_uj[-1] - true_uj[0]
    wraps = true_uj[-1] // (max_range_uj + 1) - true_uj[0] // (max_range_uj + 1)
    assert got.kind == ("corrected" if wraps else "difference")
    parts = [difference(a, b, max_range_uj, 1e9).energy_uj for a, b in pairwise(series)]
    assert sum(part or 0 for part in parts) == got.energy_uj


def test_many_wraps_of_the_kernels_counter_stay_exact() -> None:
    """The error of 100 wraps is within 0.5 µJ each."""
    unit, range_uj = 61_035, 262_143_328_850
    counts = range(0, 100 * 2**32, 2**30)
    series = [kernel(n * 10**11, count, unit) for n, count in enumerate(counts)]
    got = total(series, range_uj)
    assert got.energy_uj is not None
    assert abs(got.energy_uj - counts[-1] * unit / 1000) < 1 + 0.5 * 100
    assert got.flags == ()


def test_first_reading_is_no_difference() -> None:
    got = difference(None, Reading(0, 1, 77), 1000)
    assert (got.kind, got.energy_uj) == ("first", 0)


def test_failed_read_is_lost_not_zero() -> None:
    good, failed = Reading(0, 1, 77), ReadFailure(5, "gone")
    for got in (difference(good, failed, 1000), difference(failed, good, 1000)):
        assert (got.kind, got.energy_uj, got.flags) == ("lost", None, (READ_FAILED,))
    assert total([good, Reading(3, 4, 80), failed], 1000).energy_uj is None
    assert total([good, failed, Reading(6, 7, 80)], 10**9).energy_uj == 3


def test_a_reopened_counter_is_flagged() -> None:
    """Its count in between is unknown; a fall may be a restart, not a wrap."""
    start, failed = Reading(0, 1, 77), ReadFailure(5, "gone")
    risen, fallen = Reading(10**9, 10**9, 80, epoch=1), Reading(10**9, 10**9, 5, epoch=1)
    assert difference(start, risen, 10**12).energy_uj == 3
    assert difference(start, risen, 10**12).flags == (REOPENED,)
    assert total([start, failed, risen], 10**12).flags == (REOPENED,)
    got = difference(start, fallen, 10**12)
    assert (got.kind, got.energy_uj, got.flags) == ("lost", None, (REOPENED,))


@pytest.mark.parametrize("max_range_uj", [None, 0])
def test_wrap_of_unknown_range_is_lost(max_range_uj: int | None) -> None:
    got = difference(Reading(0, 1, 77), Reading(2, 3, 5), max_range_uj)
    assert (got.kind, got.energy_uj, got.flags) == ("lost", None, (UNKNOWN_RANGE,))
    grown = difference(Reading(0, 1, 5), Reading(2, 3, 77), max_range_uj)
    assert (grown.energy_uj, grown.flags) == (72, (UNKNOWN_RANGE,))


def test_modulus_of_known_counters() -> None:
    """2^32 units for the kernel's, range + 1 for others."""
    assert modulus_uj(262_143_328_850) == round(2**32 * 61.035)
    assert modulus_uj(2_000_000) == 2_000_001
