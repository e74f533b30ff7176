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
@pytest.mark.parametrize(
    ("on_bound", "beyond", "shares"),
    [
        ((90, 110, 100, 110, 90), (89.9, 110.1, 100, 110.1, 89.9), (0.2, 0)),
        ((95, 97.5, 100, 102.5, 105), (94.9, 97.45, 100, 102.55, 105.1), (0.1, 0.1)),
        ((105, 102.5, 100, 97.5, 95), (105.1, 102.55, 100, 97.45, 94.9), (0.1, 0.1)),
    ],
)
def test_a_range_of_20_or_slope_of_10_percent_is_steady_and_more_is_not(
    on_bound: tuple[float, ...],
    beyond: tuple[float, ...],
    shares: tuple[float, float],
    scale: float,
) -> None:
    closing = closed(*(scale * value for value in on_bound))
    assert (closing.range_share, closing.slope_share) == pytest.approx(shares)
    assert closing.steady
    assert not closed(*(scale * value for value in beyond)).steady


def test_the_last_five_rounds_count_and_no_others() -> None:
    assert window([100] * 4) is None
    assert window([]) is None
    closing = closed(900, 100, 100, 100, 100, 100)
    assert (closing.first, closing.last, closing.steady) == (2, 6, True)
    assert not closed(900, 100, 100, 100, 100).steady


def test_a_figure_of_zero_or_less_is_refused() -> None:
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
