"""A factor on all powers at once is found; watts, loads, drifts and warming up are none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from analysis.energy.curve import Edge
from analysis.energy.gain_steps import Power, is_stepped
from analysis.energy.metered import Metered
from analysis.suite.samples import of_table
from analysis.tests.test_lasting import frame_of

S = 1_000_000_000
IDLE_W, LOADS_W = 20.0, (27.0, 50.0)
Course = Callable[[float, float], float]  # by the share of the time that has passed and W


def powers(course: Course, scatter: float = 0.01, seed: int = 7, times: int = 10) -> list[Power]:
    """Rests and two loads in turn."""
    generator = np.random.default_rng(seed)
    kinds = [kind for load_w in LOADS_W for kind in (IDLE_W, load_w)] * times
    return [
        Power(n * S, true_w, course(n / len(kinds), true_w) * np.exp(generator.normal(0, scatter)))
        for n, true_w in enumerate(kinds)
    ]


@pytest.mark.parametrize("until", [0.7, 1.0])
@pytest.mark.parametrize(("factor", "scatter"), [(0.8, 0.01), (1.2, 0.01), (0.95, 0.002)])
def test_a_factor_is_found_also_where_it_ends_again(
    factor: float, scatter: float, until: float
) -> None:
    stepped = powers(lambda share, w: w * (factor if 0.4 < share <= until else 1), scatter=scatter)
    assert is_stepped(stepped)


@pytest.mark.parametrize(
    "course",
    [
        lambda _, w: w,
        lambda share, w: w + (5 if share > 0.4 else 0),
        lambda share, w: w * (1.2 if share > 0.4 and w > IDLE_W else 1),
        lambda share, w: IDLE_W + (w - IDLE_W) * (1.5 if share > 0.4 else 1),
        lambda share, w: w * (1 + 0.2 * share),
        lambda share, w: w - 4 * np.exp(-share / 0.1),
    ],
    ids=["none", "watts", "load", "swing", "drift", "warming"],
)
def test_what_is_no_factor_is_not_taken_for_one(course: Course) -> None:
    assert not is_stepped(powers(course))


def test_a_small_step_is_left_alone() -> None:
    assert not is_stepped(powers(lambda share, w: w * (1.02 if share > 0.4 else 1), 0.001))


def test_a_step_of_many_loads_that_rests_lack_is_the_machine_s() -> None:
    generator = np.random.default_rng(7)
    kinds = [IDLE_W, 27.0, 30.0, 33.0, 36.0, 39.0, 42.0, 45.0] * 10
    powers = [
        Power(n, w, w * (1.2 if n > 32 and w > IDLE_W else 1) * np.exp(generator.normal(0, 0.01)))
        for n, w in enumerate(kinds)
    ]
    assert not is_stepped(powers)


def test_neither_warming_up_nor_noise_is_a_step() -> None:
    for seed in range(12):
        warming = powers(lambda share, w: w * (1 - 0.2 * np.exp(-share / 0.2)), seed=seed, times=30)
        assert not is_stepped(warming)
        assert not is_stepped(powers(lambda _, w: w, 0.08, seed, 30))


def test_loads_of_one_power_tell_no_factor_from_watts() -> None:
    assert not is_stepped(
        [p for p in powers(lambda s, w: w * (1.2 if s > 0.4 else 1)) if p.kind == 20]
    )


def test_a_meter_s_hidden_change_of_range_is_found_beside_its_rests() -> None:
    generator = np.random.default_rng(3)
    power_w = np.tile(np.repeat([20.0, 32.0], 10), 12) + generator.normal(0, 0.05, 240)
    phases = [("load", round((20 * n + 10) * S), round((20 * n + 20) * S)) for n in range(11)]
    edges = {Edge(start, "before", 9 * S) for _, start, _ in phases}
    edges |= {Edge(end, "after", 9 * S) for _, _, end in phases}
    for factor in (1.0, 1.2):
        power_w[113:] *= factor
        metered = Metered.of(of_table(frame_of(power_w, 1.0)), "poll", 0.0, ["system"], edges)
        assert metered.is_stepped("system", phases) == (factor > 1)
