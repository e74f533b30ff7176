"""What refutes a rest beside an edge, and what the rests tell of the noise."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.neighbours import LASTING_S, lasting, rests
from analysis.uncertainty import Resolution


def test_a_rest_whose_first_window_still_works_is_none() -> None:
    steady = np.array([20.1, 20.0, 20.2, 20.1, 20.0])
    assert rests(steady, 0.1)
    assert not rests(np.array([35.0, *steady]), 0.1)
    assert not rests(np.array([12.0, *steady]), 0.1)


def test_few_windows_or_the_last_digit_refute_no_rest() -> None:
    assert rests(np.array([35.0, 20.0, 20.1]), 0.1)
    assert rests(np.array([20.1, 20.0, 20.0, 20.0, 20.0]), 0.1)


def test_what_a_cut_window_has_beyond_the_one_before_may_be_load_that_lasts() -> None:
    """60 W, then rest at 20 W from half of a window of 0.1 s: 40 W is its mean, and no more."""
    assert lasting(np.array([60.0, 40.0]), 0.1, 0.05, 20.0) == pytest.approx(0, abs=1e-12)
    assert lasting(np.array([60.0, 44.0]), 0.1, 0.05, 20.0) == pytest.approx(0.4 / np.sqrt(6))
    assert lasting(np.array([60.0, 36.0]), 0.1, 0.05, 20.0) == 0
    most_j = 40 * LASTING_S
    assert lasting(np.array([60.0, 60.0]), 0.1, 0.05, 20.0) == pytest.approx(most_j / np.sqrt(6))


def test_rests_say_how_quiet_the_readings_are_at_the_most() -> None:
    seen = Resolution(quantum_w=0.001, noise_w=5.0)
    quieter = seen.with_rests(100 * 0.3**2, 100)
    assert 0.3 < quieter.noise_w < 0.36
    assert 0.3 < seen.with_rests(3 * 0.3**2, 3).noise_w < 2  # few say less
    assert seen.with_rests(0.0, 0) == seen
    assert Resolution(0.001, 0.01).with_rests(9.0, 100).noise_w == 0.01
