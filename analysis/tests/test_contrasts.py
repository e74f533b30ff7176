from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from analysis.stats import contrasts
from analysis.stats.family import judge
from analysis.tests.known import known, summarise
from validation.synthetic.tables import energy_of, suite_of

KINDS = {"bare": "plain", "sed": "opal", "soft": "dmcrypt", "true": "tcrypt"}
WORK = ("write", "sql", "idle")
EFFECTS = {"bare": 0.0, "sed": 0.004, "soft": 0.08, "true": 0.12}


def rows(blocks: int = 5, seed: int = 1) -> Iterator[dict[str, Any]]:
    generator = np.random.default_rng(seed)
    for block, name, workload in itertools.product(range(blocks), KINDS, WORK):
        scatter = float(generator.normal(0, 0.003))
        log = math.log({"write": 900, "sql": 120, "idle": 30}[workload]) + block * 0.01 + scatter
        yield {
            "workload": workload,
            "configuration": name,
            "block": block,
            "energy_j": math.exp(log + EFFECTS[name] * (workload != "idle")),
        }


def contrasts_of(
    runs: Iterable[Mapping[str, Any]], declared: Iterable[tuple[str, str]] = ()
) -> list[contrasts.Contrast]:
    return contrasts.contrasts(suite_of(KINDS, WORK, declared), energy_of(runs))


def test_declared_ones_first_then_each_against_the_baseline_once() -> None:
    pairs = contrasts_of(
        rows(), [("soft", "sed"), ("sed", "bare"), ("sed", "soft"), ("true", "true")]
    )
    assert [(c.base, c.other, c.declared) for c in pairs] == [
        ("soft", "sed", True),
        ("sed", "bare", True),
        ("bare", "soft", False),
        ("bare", "true", False),
    ]


def test_the_baseline_need_not_be_planned_first() -> None:
    suite = suite_of({"sed": "opal", "bare": "plain"}, WORK, [("sed", "soft")])
    pairs = contrasts.contrasts(suite, energy_of(rows()))
    assert [(c.base, c.other, c.declared) for c in pairs] == [
        ("sed", "soft", True),
        ("bare", "sed", False),
    ]


def test_the_ratio_is_over_working_workloads_by_blocks() -> None:
    runs = list(rows())
    logs = {(r["workload"], r["configuration"], r["block"]): math.log(r["energy_j"]) for r in runs}
    per_block = [
        np.mean([logs[w, "soft", b] - logs[w, "bare", b] for w in ("write", "sql")])
        for b in range(5)
    ]
    test = stats.ttest_1samp(per_block, 0)
    contrast = next(c for c in contrasts_of(runs) if c.other == "soft")
    assert contrast.workloads == ("write", "sql")
    assert known(contrast.comparison).ratio == pytest.approx(
        math.exp(np.mean(per_block)), rel=1e-12
    )
    assert known(contrast.comparison).p_value == pytest.approx(test.pvalue, rel=1e-9)
    assert known(contrast.comparison).low == pytest.approx(
        math.exp(test.confidence_interval().low), rel=1e-12
    )
    assert known(contrast.comparison).verdict == "differs"


def test_a_page_is_one_family_of_contrasts_and_judged_rows() -> None:
    """Three contrasts and nine rows of the system; the drive has intervals alone."""
    both = [*rows(), *({**r, "component": "drive", "energy_j": r["energy_j"] / 9} for r in rows())]
    suite = suite_of(KINDS, WORK)
    family, alone = judge(suite, energy_of(both)), judge(suite, energy_of(rows()))
    assert (family.component, family.tested) == ("system", 12) == (alone.component, alone.tested)
    plain = [known(c.comparison).p_value or 1.0 for c in family.contrasts]
    plain += [c.p_value or 1.0 for key, c in family.versus.items() if key[3] == "system"]
    adjusted = [known(c.comparison).p_adjusted or 1.0 for c in family.contrasts]
    adjusted += [c.p_adjusted or 1.0 for key, c in family.versus.items() if key[3] == "system"]
    assert min(adjusted) == pytest.approx(12 * min(plain))
    summary = summarise(suite, energy_of(both))
    drive = summary.filter(pl.col("configuration") != "bare", component="drive")
    assert set(drive["verdict"]) == {""} and drive["p_adjusted"].is_null().all()
    assert not drive["ratio_low"].is_null().any()
    by_name = {
        (r["workload"], r["configuration"]): r["verdict"]
        for r in summary.filter(component="system").iter_rows(named=True)
    }
    assert by_name["write", "soft"] == "differs" and by_name["write", "bare"] == ""
    assert set(summary["origin"]) == {"synthetic"}


def test_fewer_than_six_blocks_are_never_equivalent() -> None:
    """What is in 39 % of runs is in none of six with 5 % probability."""
    for blocks, word in ((5, "inconclusive"), (6, "equivalent")):
        summary = summarise(suite_of(KINDS, WORK), energy_of(rows(blocks)))
        of_idle = summary.filter(workload="idle", configuration="soft")
        assert of_idle["verdict"].to_list() == [word], blocks


def test_a_run_that_is_missing_costs_its_comparisons_that_block() -> None:
    runs = [
        {**r, "energy_j": None}
        if (r["workload"], r["configuration"], r["block"]) == ("sql", "soft", 2)
        else r
        for r in rows()
    ]
    complete, lacking = (
        {c.other: known(c.comparison) for c in contrasts_of(g)} for g in (rows(), runs)
    )
    assert lacking["true"] == complete["true"]
    assert (lacking["soft"].n, lacking["soft"].df) == (complete["soft"].n - 1, 3.0)
    assert lacking["soft"].ratio == pytest.approx(complete["soft"].ratio, rel=0.003)
    assert lacking["soft"].ratio != complete["soft"].ratio


def test_what_cannot_be_compared_is_none_and_not_a_guess() -> None:
    runs = [r for r in rows() if r["configuration"] != "soft"]
    runs += [{**r, "energy_j": 0.0} for r in rows() if r["configuration"] == "soft"]
    runs = [r for r in runs if r["configuration"] != "true"]
    by_configuration = {c.other: c for c in contrasts_of(runs, [("bare", "never-planned")])}
    for name in ("soft", "true", "never-planned"):
        assert by_configuration[name].comparison is None
        assert by_configuration[name].workloads == ()
    assert by_configuration["sed"].comparison is not None


def test_no_baseline_leaves_the_declared_ones() -> None:
    kinds = {"sed": "opal", "soft": "dmcrypt"}
    suite = suite_of(kinds, WORK, [("sed", "soft")])
    runs = energy_of(r for r in rows() if r["configuration"] in kinds)
    pairs = contrasts.contrasts(suite, runs)
    assert [(c.base, c.other) for c in pairs] == [("sed", "soft")]
    summary = summarise(suite, runs)
    assert set(summary["verdict"]) == {""}
    assert summary["ratio"].is_null().all()


def test_nothing_at_all() -> None:
    empty = energy_of([])
    assert all(c.comparison is None for c in contrasts.contrasts(suite_of(KINDS, WORK), empty))
    assert contrasts.contrasts(suite_of({}, ()), empty) == []
    assert len(summarise(suite_of(KINDS, WORK), empty)) == 0


def test_summary_takes_the_worse_origin_of_both_sides() -> None:
    runs = [
        {**r, "origin": "modelled" if r["configuration"] == "bare" else "measured"} for r in rows()
    ]
    summary = summarise(suite_of(KINDS, WORK), energy_of(runs))
    assert set(summary["origin"]) == {"modelled"}
