"""The bounds of the SNIA's specification, on both sides of each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.steady_state import Window, window


def closed(*figures: float) -> Window:
    closing = window(figures)
    assert closing is not None
    return closing


@pytest.mark.parametrize("scale", [1, 0.7, 7.3e8])
def test_a_range_of_a_fifth_of_the_mean_is_steady_and_more_is_not(scale: float) -> None:
    on_the_bound = [90, 110, 100, 110, 90]
    closing = closed(*(scale * value for value in on_the_bound))
    assert closing.range_share == pytest.approx(0.2)
    assert closing.slope_share == pytest.approx(0)
    assert closing.steady
    assert not closed(*(scale * value for value in [89.9, 110.1, 100, 110.1, 89.9])).steady


@pytest.mark.parametrize("scale", [1, 0.7, 7.3e8])
@pytest.mark.parametrize("way", [1, -1])
def test_a_slope_of_a_tenth_of_the_mean_is_steady_and_more_is_not(scale: float, way: int) -> None:
    on_the_bound = [95, 97.5, 100, 102.5, 105][::way]
    closing = closed(*(scale * value for value in on_the_bound))
    assert closing.slope_share == pytest.approx(0.1)
    assert closing.range_share == pytest.approx(0.1)
    assert closing.steady
    assert not closed(*(scale * value for value in [94.9, 97.45, 100, 102.55, 105.1][::way])).steady


def test_the_last_five_rounds_count_and_no_others() -> None:
    assert window([100] * 4) is None
    assert window([]) is None
    closing = closed(900, 100, 100, 100, 100, 100)
    assert (closing.first, closing.last, closing.steady) == (2, 6, True)
    assert not closed(900, 100, 100, 100, 100).steady


def test_a_round_that_wrote_nothing_is_no_figure() -> None:
    for figures in ([1, 0, 1, 1, 1], [1, -1], [float("nan")]):
        with pytest.raises(ValueError):
            window(figures)


@given(st.lists(st.floats(1e-3, 1e12), min_size=5, max_size=30))
def test_the_line_is_that_of_least_squares(figures: list[float]) -> None:
    closing = closed(*figures)
    slope, intercept = np.polyfit(range(5), figures[-5:], 1)
    largest = max(figures)
    assert closing.fit_first == pytest.approx(intercept, abs=1e-6 * largest)
    assert closing.fit_last == pytest.approx(intercept + 4 * slope, abs=1e-6 * largest)
    assert closing.mean == pytest.approx(np.mean(figures[-5:]))
    assert closing.range == max(figures[-5:]) - min(figures[-5:])
