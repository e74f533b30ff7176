from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats
from statsmodels.regression.linear_model import OLS

from analysis.report.steadiness_section import carry_over_sentence
from analysis.stats.steadiness import hours_of, places_of, share_within, stalls, steadiness
from analysis.stats.two_way import Layout
from analysis.suite.clocks import TargetClock
from analysis.suite.records import Run, Suite
from analysis.tests.known import known
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
    """Half an hour for each configuration, in random order within each block; `carry` is what
    `true` adds to the one that runs after it."""
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
    names = row["configuration"], row["workload"]
    return Run(
        run_id_of(row),
        row["block"],
        *names,
        boot_id,
        "synthetic",
        start,
        start + 1,
        (),
        {},
        (),
    )


def test_drift_and_place_come_out_and_configurations_do_not_matter() -> None:
    suite, energy = made(30, drift_per_h=0.004, place=0.002, block_sd=0.003)
    found = steadiness(suite, energy, NO_CLOCK)[0]
    drift, place = found.drift_percent_per_hour, found.place_percent
    assert drift is not None
    assert place is not None
    assert drift.contains(100 * math.expm1(0.004))
    assert not drift.contains(0.0)
    # A place later is half an hour later as well.
    assert place.contains(100 * math.expm1(0.002 + 0.004 / 2))
    assert not place.contains(0.0)
    steady = steadiness(*made(30, block_sd=0.003), NO_CLOCK)[0]
    assert steady.within_sd_percent == pytest.approx(0.2, rel=0.25)
    assert steady.between_sd_percent == pytest.approx(0.3, rel=0.4)


def test_drift_is_the_regression_of_the_blocks_and_not_of_the_runs() -> None:
    suite, energy = made(8, drift_per_h=0.002)
    found = steadiness(suite, energy, NO_CLOCK)[0].drift_percent_per_hour
    hours = hours_of(suite.runs, NO_CLOCK)
    by_block: dict[int, list[tuple[float, float]]] = {}
    for run_id, block, joules in energy.select("run_id", "block", "energy_j").iter_rows():
        by_block.setdefault(block, []).append((hours[run_id], math.log(joules)))
    means = np.array([np.mean(values, axis=0) for values in by_block.values()])
    fit = OLS(means[:, 1], np.column_stack([np.ones(8), means[:, 0]])).fit()
    assert found is not None
    assert found.mean == pytest.approx(100 * math.expm1(fit.params[1]), rel=1e-9)
    low, high = fit.conf_int()[1]
    assert (found.low, found.high) == pytest.approx(
        (100 * math.expm1(low), 100 * math.expm1(high)), rel=1e-9
    )


def test_place_and_blocks_are_those_of_the_whole_regression() -> None:
    """Also with a hole: the effects are fitted together, not averaged."""
    suite, energy = made(5, place=0.003)
    energy = energy.filter(~((pl.col("block") == 2) & (pl.col("configuration") == "soft")))
    found = steadiness(suite, energy, NO_CLOCK)[0]
    places = places_of(suite.runs, NO_CLOCK)
    rows = energy.select("block", "configuration", "energy_j").rows()
    block = np.array([[row[0] == b for b in range(5)] for row in rows], float)
    name = np.array([[row[1] == n for n in list(KINDS)[1:]] for row in rows], float)
    place = np.array([[places[row[0], row[1]]] for row in rows], float)
    logs = np.log([row[2] for row in rows])
    fit = OLS(logs, np.hstack([place, block, name])).fit()
    assert known(found.place_percent).mean == pytest.approx(
        100 * math.expm1(fit.params[0]), rel=1e-6
    )
    assert known(found.place_percent).low == pytest.approx(100 * math.expm1(fit.conf_int()[0, 0]))
    alone = OLS(logs, np.hstack([block, name])).fit()
    effects = alone.params[:5] - np.mean(alone.params[:5])
    told = [found.blocks[b].mean for b in range(5)]
    assert told == pytest.approx([100 * math.expm1(effect) for effect in effects], rel=1e-6)
    contrast = np.r_[np.eye(5)[2] - 0.2, np.zeros(3)]
    test = alone.t_test(contrast)
    assert found.blocks[2].low == pytest.approx(100 * math.expm1(test.conf_int()[0, 0]))


def test_carry_over_is_the_whole_regressions_f_test() -> None:
    """Also with a hole, and across blocks: the first of one runs after the last of the other."""
    suite, energy = made(6, place=0.001, carry=0.003)
    energy = energy.filter(~((pl.col("block") == 2) & (pl.col("configuration") == "soft")))
    found = steadiness(suite, energy, NO_CLOCK)[0]
    in_time = sorted(suite.runs, key=lambda r: r.t_start_ns)
    before = {
        (late.block, late.configuration): early.configuration for early, late in pairwise(in_time)
    }
    places = places_of(suite.runs, NO_CLOCK)
    rows = energy.select("block", "configuration", "energy_j").rows()
    block = np.array([[row[0] == b for b in range(6)] for row in rows], float)
    name = np.array([[row[1] == n for n in list(KINDS)[1:]] for row in rows], float)
    place = np.array([[places[row[0], row[1]]] for row in rows], float)
    first = np.array([[row[:2] not in before] for row in rows], float)
    after = np.array([[before.get(row[:2]) == n for n in KINDS] for row in rows], float)
    assert first.sum() == 1
    logs = np.log([row[2] for row in rows])
    less = OLS(logs, np.hstack([block, name, place, first])).fit()
    more = OLS(logs, np.hstack([block, name, place, first, after[:, 1:]])).fit()
    assert found.carry_over_p == pytest.approx(more.compare_f_test(less)[1], rel=1e-6)


def test_a_carry_over_is_found_where_there_is_one_and_told_by_workload() -> None:
    there = steadiness(*made(12, carry=0.01, place=0.001), NO_CLOCK)
    assert known(there[0].carry_over_p) < 1e-4
    said = carry_over_sentence(there, 4)
    assert "changes the joules of write" in said
    assert "1/4 of that" in said
    none = [
        steadiness(*made(6, place=0.01, drift_per_h=0.004, seed=k), NO_CLOCK) for k in range(60)
    ]
    p_values = [found[0].carry_over_p or 0.0 for found in none]
    assert sum(p < 0.05 for p in p_values) <= 9  # 3 expected
    assert max(p_values) > 0.8
    likely = next(found for found in none if (found[0].carry_over_p or 0.0) > 0.1)
    assert carry_over_sentence(likely, 4).startswith("No carry-over")


def test_an_outlier_is_flagged_and_stays_in_the_figures() -> None:
    suite, energy = made(8, outlier=(3, "soft", 0.05))
    found = steadiness(suite, energy, NO_CLOCK)[0]
    assert [(o.block, o.configuration) for o in found.outliers] == [(3, "soft")]
    assert found.outliers[0].off_percent == pytest.approx(100 * math.expm1(0.05), abs=1.0)
    assert found.outliers[0].deviations > 5
    (beside,) = found.beside
    assert (beside.configuration, beside.left_out) == ("soft", (3,))
    assert (known(beside.with_all).n, known(beside.without).n) == (8, 7)
    truth = math.exp(0.05 * 2)
    assert abs(known(beside.without).ratio - truth) < abs(known(beside.with_all).ratio - truth)


def test_an_outlier_of_the_baseline_is_part_of_every_ratio() -> None:
    suite, energy = made(8, outlier=(1, "plain", -0.08))
    found = steadiness(suite, energy, NO_CLOCK)[0]
    assert [b.configuration for b in found.beside] == ["opal", "soft", "true"]


def test_two_outliers_do_not_hide_each_other() -> None:
    suite, energy = made(10, outlier=(3, "soft", 0.05))
    energy = energy.with_columns(
        pl.when((pl.col("block") == 7) & (pl.col("configuration") == "opal"))
        .then(pl.col("energy_j") * 1.06)
        .otherwise(pl.col("energy_j"))
        .alias("energy_j")
    )
    found = steadiness(suite, energy, NO_CLOCK)[0].outliers
    assert {(o.block, o.configuration) for o in found} == {(3, "soft"), (7, "opal")}


def test_flags_without_outliers_are_rare() -> None:
    flagged = sum(bool(steadiness(*made(4, seed=k), NO_CLOCK)[0].outliers) for k in range(150))
    assert flagged <= 6  # 1.5 expected


def test_what_few_blocks_cannot_tell_is_none() -> None:
    one = steadiness(*made(1), NO_CLOCK)[0]
    assert (one.n, one.between_sd_percent, one.drift_percent_per_hour) == (1, None, None)
    assert (one.place_percent, one.blocks, one.outliers, one.beside) == (None, {}, (), ())
    two = steadiness(*made(2), NO_CLOCK)[0]
    assert two.drift_percent_per_hour is None  # a line through two points fits always
    assert two.place_percent is not None
    assert two.carry_over_p is None
    assert "too few blocks" in carry_over_sentence([two], 4)
    suite, energy = made(3)
    lone = energy.filter(pl.col("configuration") == "plain")
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
    found = steadiness(suite, halves, NO_CLOCK)[0]
    assert (found.n, found.between_sd_percent, found.blocks) == (4, None, {})


def test_no_scatter_at_all_is_no_outlier() -> None:
    found = steadiness(*made(5, sd=0.0, block_sd=0.0), NO_CLOCK)[0]
    assert found.outliers == ()
    assert found.within_sd_percent == pytest.approx(0.0, abs=1e-9)


def test_the_same_order_in_every_block_cannot_tell_places() -> None:
    suite, energy = made(4)
    runs = [
        replace(r, t_start_ns=(r.block * 4 + list(KINDS).index(r.configuration)) * HOUR_NS)
        for r in suite.runs
    ]
    found = steadiness(replace(suite, runs=tuple(runs)), energy, NO_CLOCK)[0]
    assert (found.place_percent, found.carry_over_p) == (None, None)
    assert found.drift_percent_per_hour is not None


def test_times_across_boots_need_the_clock() -> None:
    suite, energy = made(4)
    runs = tuple(replace(r, boot_id="two") if r.block > 1 else r for r in suite.runs)
    assert hours_of(runs, NO_CLOCK) == {}
    found = steadiness(replace(suite, runs=runs), energy, NO_CLOCK)[0]
    assert found.drift_percent_per_hour is None
    clock = TargetClock.fit(
        {
            "t_send_ns": t + shift,
            "t_target_ns": t + 1000,
            "t_receive_ns": t + shift + 2000,
            "boot_id": boot,
        }
        for boot, shift in (("one", 0), ("two", 9 * HOUR_NS))
        for t in range(77 * HOUR_NS, 90 * HOUR_NS, HOUR_NS)
    )
    hours = hours_of(runs, clock)
    first, last = (min(r.t_start_ns for r in runs), max(r.t_start_ns for r in runs))
    assert max(hours.values()) == pytest.approx((last - first) / HOUR_NS + 9, abs=1e-6)


def test_deleted_residuals_are_those_of_statsmodels() -> None:
    blocks, names = np.repeat(range(4), 3), np.tile(range(3), 4)
    layout = known(Layout.of(tuple(blocks.tolist()), tuple(names.tolist())))
    logs = np.random.default_rng(6).normal(0, 1, 12)
    design = np.array(
        [
            [*(b == k for k in range(4)), *(c == k for k in range(1, 3))]
            for b, c in zip(blocks, names, strict=True)
        ],
        float,
    )
    theirs = OLS(logs, design).fit().get_influence().resid_studentized_external
    assert layout.deleted_t(logs) == pytest.approx(theirs, rel=1e-9)


def test_no_residual_at_all_is_no_distance() -> None:
    layout = known(Layout.of((0, 0, 1, 1, 2, 2), (0, 1, 0, 1, 0, 1)))
    assert layout.deleted_t(np.zeros(6)).tolist() == [0.0] * 6


def test_stalled_runs_are_counted_by_configuration() -> None:
    """One run that took 40 % more of 18, and one that took less, which is no stall."""
    more = made(6, outlier=(2, "opal", math.log(1.4)), workloads=["write", "read", "sql"])
    less = made(6, outlier=(3, "soft", math.log(0.7)), workloads=["write", "read", "sql"])
    by = {s.configuration: s for s in stalls(steadiness(*more, NO_CLOCK), list(KINDS))}
    assert {name: (s.stalled, s.runs) for name, s in by.items()} == {
        **dict.fromkeys(KINDS, (0, 18)),
        "opal": (3, 18),  # made() adds it to the block's run of each workload
    }
    assert known(by["opal"].most_percent) == pytest.approx(40, abs=1.5)
    assert by["plain"].most_percent is None
    assert not any(s.stalled for s in stalls(steadiness(*less, NO_CLOCK), list(KINDS)))


@pytest.mark.parametrize(("count", "total"), [(0, 20), (1, 20), (7, 30), (20, 20)])
def test_the_share_of_stalls_is_that_of_clopper_and_pearson(count: int, total: int) -> None:
    interval = stats.binomtest(count, total).proportion_ci(method="exact")
    assert share_within(count, total) == pytest.approx((interval.low, interval.high))
