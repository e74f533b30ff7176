"""Signs that runs are no repetitions: how often without cause, and how often where there is one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from analysis.stats.repetition import FALSE_ALARM, signs
from analysis.stats.stats import Floats

Draw = Callable[[np.random.Generator, int], Floats]
SERIES = 400


def noticed(draw: Draw, runs: int, seed: int = 1) -> float:
    """Return the share of series that get any sign."""
    rng = np.random.default_rng(seed)
    return sum(bool(signs(draw(rng, runs).tolist())) for _ in range(SERIES)) / SERIES


CLEAN: dict[str, Draw] = {
    "normal": lambda rng, n: 100 + rng.normal(0, 3, n),
    "wide": lambda rng, n: np.maximum(1, 100 + rng.normal(0, 10, n)),
    "lognormal": lambda rng, n: np.exp(rng.normal(0, 0.3, n)),
    "in steps": lambda rng, n: np.round(100 + rng.normal(0, 0.5, n)),
}


@pytest.mark.parametrize("runs", [5, 10, 30])
@pytest.mark.parametrize("name", CLEAN)
def test_runs_without_fault_seldom_get_a_sign(name: str, runs: int) -> None:
    # Two standard errors of this simulation above what is declared.
    assert noticed(CLEAN[name], runs) <= FALSE_ALARM + 2 * (FALSE_ALARM / SERIES) ** 0.5


def cold(rng: np.random.Generator, n: int) -> Floats:
    values = 100 + rng.normal(0, 1, n)
    values[0] *= 1.15
    return values


def warming(rng: np.random.Generator, n: int) -> Floats:
    return 100 * (1.05 - 0.05 * np.exp(-np.arange(n) / 20)) + rng.normal(0, 0.5, n)


def alike(rng: np.random.Generator, n: int) -> Floats:
    values = rng.normal(0, 1, n)
    for at in range(1, n):
        values[at] = 0.8 * values[at - 1] + 0.6 * values[at]
    return 100 + 3 * values


def doubled(rng: np.random.Generator, n: int) -> Floats:
    return (100 + rng.normal(0, 1, n)) * (1 + (rng.random(n) < 0.05))


@pytest.mark.parametrize(
    ("draw", "runs", "least"),
    [
        (cold, 10, 0.99),
        (warming, 10, 0.6),
        (warming, 20, 0.99),
        (alike, 10, 0.3),
        (alike, 30, 0.9),
        (doubled, 10, 0.35),  # in 60 % of these there is none
        (doubled, 100, 0.95),
    ],
)
def test_what_is_noticed(draw: Draw, runs: int, least: float) -> None:
    assert noticed(draw, runs) >= least


def even(n: int) -> Floats:
    """Values without any sign."""
    return 100 + np.random.default_rng(3).permutation(np.linspace(-1, 1, n))


def test_each_sign_says_what_and_how_much() -> None:
    values = even(20)
    assert signs(values.tolist()) == ()

    first = values.copy()
    first[0] = 120
    (sign,) = signs(first.tolist())
    assert (sign.code, sign.runs) == ("first-run", (0,))
    assert sign.share == pytest.approx(0.2, abs=0.02)

    (sign,) = signs((values + np.linspace(0, 10, 20)).tolist())
    assert sign.code == "trend"
    assert sign.share == pytest.approx(0.1, abs=0.02)

    pair = values.copy()
    pair[[7, 12]] = 150, 150.5  # neither hides the other
    (sign,) = signs(pair.tolist())
    assert (sign.code, sign.runs) == ("outliers", (7, 12))
    assert sign.share == pytest.approx(0.5, abs=0.02)

    waves = 100 + np.sin(np.arange(40) / 3)
    (sign,) = signs(waves.tolist())
    assert sign.code == "serial-correlation"
    assert 0.7 < sign.share < 1


def test_equal_values_are_steps_of_the_source() -> None:
    assert signs([20.0] * 10) == ()
    assert signs([20.0, 21.0, 20.0, 20.0, 21.0, 20.0, 20.0, 20.0, 20.0, 20.0]) == ()
    (sign,) = signs([20.0] * 6 + [40.0] + [20.0] * 3)
    assert (sign.code, sign.runs) == ("outliers", (6,))


def test_too_few_runs_or_none_above_nought_give_no_sign() -> None:
    assert signs([1.0, 9.0, 1.0]) == ()
    assert signs([0.0, 1.0, 1.1, 0.9, 30.0]) == ()


def test_thousands_of_runs_are_judged_alike() -> None:
    """Beyond `MOST_ORDERED`, where random orders of all would take gigabytes."""
    rng = np.random.default_rng(5)
    noise = rng.normal(1, 0.02, 20_000)
    assert signs(list(noise)) == ()
    following = noise.copy()
    following[1:] += 0.5 * (noise[:-1] - 1)
    assert [sign.code for sign in signs(list(following))] == ["serial-correlation"]
    doubled = np.sort(rng.choice(20_000, 200, replace=False))
    noise[doubled] *= 2
    (sign,) = signs(list(noise))
    assert (sign.code, sign.runs) == ("outliers", tuple(doubled))
