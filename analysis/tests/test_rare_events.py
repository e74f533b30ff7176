"""Runs that stand out: which they are, what they allow for, and that few words are then false."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from scipy import stats

from analysis.stats.comparison import LEAST_EQUIVALENT
from analysis.stats.family import judge
from analysis.stats.rare_events import RareEvents, allowance, find_rare_events
from analysis.stats.stats import Floats
from analysis.suite.records import Suite
from validation.inference import reach
from validation.synthetic.tables import energy_of, suite_of


def suite_and_energy(logs: Floats) -> tuple[Suite, pl.DataFrame]:
    """Return a suite with these logarithms of joules (workloads × blocks × configurations)."""
    names = reach.CONFIGURATIONS[: logs.shape[2]]
    suite = suite_of({name: reach.KINDS[name] for name in names}, reach.WORKLOADS)
    rows = (
        {
            "workload": reach.WORKLOADS[w],
            "configuration": names[c],
            "block": b,
            "energy_j": math.exp(logs[w, b, c]),
        }
        for w, b, c in np.ndindex(*logs.shape)
    )
    return suite, energy_of(rows)


def scattered(seed: int, blocks: int = 8, configurations: int = 4) -> Floats:
    return np.random.default_rng(seed).normal(5, 0.01, (5, blocks, configurations))


@pytest.mark.parametrize("configurations", [2, 4])
def test_a_run_far_from_its_cell_is_found_with_its_size(configurations: int) -> None:
    logs = scattered(1, configurations=configurations)
    logs[2, 3, 1] += 0.3
    suite, energy = suite_and_energy(logs)
    events = find_rare_events(suite, energy)
    assert events["opal"].events == {("w2", 3)}
    assert (events["opal"].runs, len(events["plain"].events)) == (40, 0)
    assert events["opal"].largest_log == pytest.approx(0.3, abs=0.03)


def test_a_block_that_was_slow_for_all_is_no_event() -> None:
    logs = scattered(2)
    logs[:, 3] += 0.3
    events = find_rare_events(*suite_and_energy(logs))
    assert not any(e.events for e in events.values())


def test_a_noisy_configuration_is_measured_by_its_own_scatter() -> None:
    logs = scattered(3, blocks=20)
    logs[..., 2] += np.random.default_rng(4).normal(0, 0.1, logs.shape[:2])
    events = find_rare_events(*suite_and_energy(logs))
    assert len(events["soft"].events) <= 2


def test_too_few_runs_have_no_events() -> None:
    logs = scattered(5, blocks=3)
    logs[0, 0, 0] += 1
    events = find_rare_events(*suite_and_energy(logs))
    assert not any(e.events for e in events.values())


def test_the_allowance_is_the_exact_upper_limit_times_the_size() -> None:
    e = RareEvents("opal", 40, frozenset({("w2", 3)}), 0.3)
    share = stats.binomtest(1, 40, alternative="less").proportion_ci(0.95).high
    assert e.allowance == pytest.approx(0.3 * share)
    assert RareEvents("opal", 40, frozenset(), 0.0).allowance == 0


def test_only_workloads_in_which_none_occurred_are_widened() -> None:
    events = {
        "plain": RareEvents("plain", 40, frozenset(), 0.0),
        "opal": RareEvents("opal", 40, frozenset({("w2", 3)}), 0.3),
    }
    assert allowance(events, ("plain", "opal"), "w2") == 0
    assert allowance(events, ("plain", "opal"), "w1") == events["opal"].allowance > 0


def test_an_event_in_one_workload_widens_the_interval_of_the_others() -> None:
    logs = scattered(6, blocks=10)
    logs[2, 3, 1] += 0.3
    family = judge(*suite_and_energy(logs))
    of_opal = {key[0]: c for key, c in family.versus.items() if key[1] == "opal"}
    assert of_opal["w2"].allowance == 0 and "rare-events" not in of_opal["w2"].doubts
    assert of_opal["w1"].allowance > 0 and "rare-events" in of_opal["w1"].doubts


@pytest.mark.parametrize("blocks", [6, 10])
def test_no_word_is_false_once_an_event_was_seen(blocks: int) -> None:
    """A tenth of one configuration's runs take 40 % more: none of its rows is called equivalent."""
    false = 0
    for seed in range(40):
        generator = np.random.default_rng(seed)
        logs = generator.normal(5, 0.004, (5, blocks, 4))
        truth = np.zeros((5, 4))
        hit = generator.random(logs.shape[:2]) < 0.1
        logs[..., 2] += math.log(1.4) * hit
        truth[:, 2] += 0.1 * math.log(1.4)
        if hit.any():
            false += reach.is_false(reach.list_words(reach.judge_logs(logs), truth))
    assert blocks >= LEAST_EQUIVALENT and false <= 1
