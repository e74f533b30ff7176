from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from statsmodels.regression.linear_model import OLS

from analysis.report.steadiness_section import carry_over_sentence
from analysis.stats.steadiness import hours_of, places_of, steadiness
from analysis.suite.clocks import TargetClock
from analysis.suite.records import Run, Suite
from analysis.tests.known import known, run_of
from instrumentation.clock import ClockReading
from validation.synthetic.tables import energy_of, run_id_of, suite_of

KINDS = {"plain": "plain", "opal": "opal", "soft": "dmcrypt", "true": "tcrypt"}
HOUR_NS = 3_600_000_000_000
NO_CLOCK = TargetClock({})


def made(
    blocks: int = 6,
    *,
    sd: float = 0.002,
    drift_per_h: float = 0.0,
    place: float = 0.0,
    carry: float = 0.0,
    block_sd: float = 0.01,
    workloads: Sequence[str] = ("write",),
    seed: int = 3,
    outlier: tuple[int, str, float] | None = None,
    **plan: Any,
) -> tuple[Suite, pl.DataFrame]:
    """Half an hour for each configuration, in random order within each block.

    `carry` is what `true` adds to the one that runs after it.
    """
    generator = np.random.default_rng(seed)
    rows, runs, last = [], [], ""
    for block in range(blocks):
        of_block = float(generator.normal(0, block_sd))
        for at, name in enumerate(generator.permutation(list(KINDS))):
            hours = (block * len(KINDS) + at) / 2
            for workload in workloads:
                log = of_block + drift_per_h * hours + place * at + 0.05 * list(KINDS).index(name)
                log += float(generator.normal(0, sd)) + carry * (last == "true")
                if outlier is not None and outlier[:2] == (block, name):
                    log += outlier[2]
                row = {"workload": workload, "configuration": str(name), "block": block}
                rows.append({**row, "energy_j": 500 * math.exp(log)})
                runs.append(run(row, hours))
            last = str(name)
    # As the plan would have them, which is not the order of time here.
    return suite_of(KINDS, workloads, runs=sorted(runs, key=lambda r: r.run_id), **plan), energy_of(
        rows
    )


def run(row: dict[str, Any], hours: float, boot_id: str = "one") -> Run:
    start = 77 * HOUR_NS + round(hours * HOUR_NS)
    return run_of(
        run_id=run_id_of(row),
        block=row["block"],
        configuration=row["configuration"],
        workload=row["workload"],
        boot_id=boot_id,
        t_start_ns=start,
        t_end_ns=start + 1,
        phases=(),
    )


def test_scatter_comes_out_and_configurations_do_not_matter() -> None:
    steady = steadiness(*made(30, block_sd=0.003), NO_CLOCK)[0]
    assert steady.within_sd_percent == pytest.approx(0.2, rel=0.25)
    assert steady.between_sd_percent == pytest.approx(0.3, rel=0.4)


Row = tuple[int, str, float]


def design_of(suite: Suite, energy: pl.DataFrame) -> tuple[list[Row], Any, Any, Any]:
    """Rows, and by row the indicators of block and configuration, and the place."""
    rows = energy.select("block", "configuration", "energy_j").rows()
    places = places_of(suite.runs, NO_CLOCK)
    block = np.array([[row[0] == b for b in {row[0] for row in rows}] for row in rows], float)
    name = np.array([[row[1] == n for n in list(KINDS)[1:]] for row in rows], float)
    return rows, block, name, np.array([[places[row[0], row[1]]] for row in rows], float)


def test_carry_over_is_the_whole_regressions_f_test() -> None:
    """Also with a hole, and across blocks: the first of one runs after the last of the other."""
    suite, energy = made(6, place=0.001, carry=0.003)
    energy = energy.filter(~((pl.col("block") == 2) & (pl.col("configuration") == "soft")))
    steady = steadiness(suite, energy, NO_CLOCK)[0]
    in_time = sorted(suite.runs, key=lambda r: r.t_start_ns)
    before = {
        (late.block, late.configuration): early.configuration for early, late in pairwise(in_time)
    }
    rows, block, name, place = design_of(suite, energy)
    first = np.array([[row[:2] not in before] for row in rows], float)
    after = np.array([[before.get(row[:2]) == n for n in KINDS] for row in rows], float)
    assert first.sum() == 1
    logs = np.log([row[2] for row in rows])
    less = OLS(logs, np.hstack([block, name, place, first])).fit()
    more = OLS(logs, np.hstack([block, name, place, first, after[:, 1:]])).fit()
    assert steady.carry_over_p == pytest.approx(more.compare_f_test(less)[1], rel=1e-6)


def test_a_carry_over_is_found_where_there_is_one_and_told_by_workload() -> None:
    carried = steadiness(*made(12, carry=0.01, place=0.001), NO_CLOCK)
    assert known(carried[0].carry_over_p) < 1e-4
    sentence = carry_over_sentence(carried)
    assert "changes the joules of write" in sentence
    none = [
        steadiness(*made(6, place=0.01, drift_per_h=0.004, seed=k), NO_CLOCK) for k in range(60)
    ]
    p_values = [line[0].carry_over_p or 0.0 for line in none]
    assert sum(p < 0.05 for p in p_values) <= 9  # 3 expected
    assert max(p_values) > 0.8
    likely = next(line for line in none if (line[0].carry_over_p or 0.0) > 0.1)
    assert known(likely[0].carry_over_least_percent) > 0
    assert "It found none; a smaller one may be there" in carry_over_sentence(likely)


def test_what_few_blocks_cannot_tell_is_none() -> None:
    single = steadiness(*made(1), NO_CLOCK)[0]
    assert (single.n, single.between_sd_percent, single.carry_over_p) == (1, None, None)
    two = steadiness(*made(2), NO_CLOCK)[0]
    assert two.between_sd_percent is not None
    assert two.carry_over_p is None
    assert "too few blocks" in carry_over_sentence([two])
    suite, energy = made(3)
    lone = energy.filter(configuration="plain")
    assert steadiness(suite, lone, NO_CLOCK)[0].between_sd_percent is None
    apart = energy.filter(
        ((pl.col("block") == 0) & (pl.col("configuration") == "plain"))
        | ((pl.col("block") == 1) & (pl.col("configuration") == "soft"))
    )
    assert steadiness(suite, apart, NO_CLOCK)[0].between_sd_percent is None
    assert steadiness(suite, energy.clear(), NO_CLOCK) == []


def test_two_halves_that_share_nothing_cannot_be_set_beside() -> None:
    suite, energy = made(4)
    first = pl.col("configuration").is_in(["plain", "opal"])
    halves = energy.filter(first == (pl.col("block") < 2))
    assert len(halves) == 8
    steady = steadiness(suite, halves, NO_CLOCK)[0]
    assert (steady.n, steady.between_sd_percent) == (4, None)


def test_the_same_order_in_every_block_cannot_tell_places() -> None:
    suite, energy = made(4)
    runs = [
        replace(r, t_start_ns=(r.block * 4 + list(KINDS).index(r.configuration)) * HOUR_NS)
        for r in suite.runs
    ]
    steady = steadiness(replace(suite, runs=tuple(runs)), energy, NO_CLOCK)[0]
    assert steady.carry_over_p is None


def test_times_across_boots_need_the_clock() -> None:
    suite, _ = made(4)
    runs = tuple(replace(r, boot_id="two") if r.block > 1 else r for r in suite.runs)
    assert hours_of(runs, NO_CLOCK) == {}
    clock = TargetClock.fit(
        ClockReading(t + shift, t + 1000, t + shift + 2000, boot)
        for boot, shift in (("one", 0), ("two", 9 * HOUR_NS))
        for t in range(77 * HOUR_NS, 90 * HOUR_NS, HOUR_NS)
    )
    hours = hours_of(runs, clock)
    first, last = (min(r.t_start_ns for r in runs), max(r.t_start_ns for r in runs))
    assert max(hours.values()) == pytest.approx((last - first) / HOUR_NS + 9, abs=1e-6)
