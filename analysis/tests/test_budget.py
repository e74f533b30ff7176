from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from analysis.money import budgets, costs
from analysis.report.build import BUDGET, build
from analysis.report.trust_section import meters_section
from analysis.stats.budget import (
    Budget,
    Reading,
    Row,
    instrument_error,
    instrument_rows,
    joules_budget,
    ratio_readings,
)
from analysis.stats.comparison import SURE, compare
from analysis.stats.results import Results
from analysis.stats.stats import LEVEL
from analysis.tests.known import analysed, known
from analysis.tests.pages import text_of
from contract.estimates import NORMAL, Estimate
from contract.strict_json import Document
from instrumentation.accuracy import LINEARITY, POWER_FACTOR, ErrorTerm, read_terms
from instrumentation.meters.wt310 import WT310
from instrumentation.sources.accuracy import rapl_terms
from validation.synthetic.suite import Options, write_suite

RANGES: Document = {"model": "WT310E", "voltage_range_v": 150.0, "current_range_a": 1.0}
WT310E = WT310({"1": "system"}, {**RANGES, "power_factor": 0.95}).description()["accuracy"]
GAIN = ErrorTerm("gain", 0.03, "a data sheet")
RANGE = ErrorTerm("range", 0.3, "a data sheet")


def row(contribution: float, df: float = math.inf, kind: str = "B") -> Row:
    assert kind in ("A", "B")
    return Row("a term", kind, "normal", "nm", contribution, 1.0, df=df)  # type: ignore[arg-type]


def test_the_guides_own_example_of_an_end_gauge() -> None:
    """JCGM 100:2008, H.1: contributions in nm and their degrees of freedom; 32 nm, 16."""
    terms = [(25, 18), (9.7, 25.6), (2.9, 50), (16.6, 2)]
    budget = Budget("length", "nm", 0.0, tuple(row(*term) for term in terms))
    assert budget.combined == pytest.approx(31.67, abs=0.005)
    assert math.floor(budget.freedom) == 16
    t = special.stdtrit(budget.freedom, 0.975)
    assert known(budget.expanded) == pytest.approx(t * budget.combined, rel=1e-6)
    assert known(budget.factor) == pytest.approx(t, rel=1e-6)


def test_joules_of_a_wattmeter_by_hand() -> None:
    """10 000 J in 100 s, mean of 10 blocks with a standard error of 4 J, on a WT310E.

    Gain 0.1 %: 10 J / √3 = 5.774 J. Range 0.05 % of 150 W × 100 s: 7.5 J / √3 = 4.330 J. Power
    factor 0.95: tan φ = 0.32868, 0.1 % of it 3.287 J / √3 = 1.898 J. With 4 J: √71.684 = 8.467 J,
    and 9 × (8.467 / 4)⁴ = 180.7 degrees of freedom.
    """
    budget = joules_budget(read_terms(WT310E), (10_000.0, 100.0), 4.0, 9)
    by = {row.term: row for row in budget.rows}
    contributions = {name: known(term.contribution) for name, term in by.items()}
    assert contributions == pytest.approx(
        {"scatter": 4.0, "gain": 5.7735, "range": 4.3301, "power_factor": 1.8976}, rel=1e-4
    )
    assert budget.combined == pytest.approx(8.4666, rel=1e-4)
    assert budget.freedom == pytest.approx(180.65, rel=1e-3)
    assert sum(known(budget.share(term)) for term in budget.rows) == pytest.approx(1)
    assert by["scatter"].divisor == pytest.approx(2.262, abs=5e-4)
    assert budget.missing == ()
    # The rectangle of the gain is not a normal distribution: less than 1.97 × 8.467 J.
    assert 16.0 < known(budget.expanded) < 1.973 * 8.4666


@given(
    st.lists(
        st.tuples(*[st.tuples(st.floats(1.0, 1e6), st.floats(0.1, 1e5))] * 2),
        min_size=1,
        max_size=7,
    ),
    st.floats(1e-4, 0.5),
)
def test_a_gain_cancels_in_every_ratio_and_stays_in_joules(
    pairs: list[tuple[tuple[float, float], tuple[float, float]]], limit: float
) -> None:
    gain = replace(GAIN, limit=limit)
    (in_ratio,) = instrument_rows([gain], ratio_readings(pairs))
    assert in_ratio.contribution == 0
    linearity = replace(LINEARITY, limit=limit)
    (share,) = instrument_rows([linearity], ratio_readings(pairs))
    expected = limit / math.sqrt(3) * math.sqrt(2 / len(pairs))
    assert share.contribution == pytest.approx(expected)
    energy_j, seconds = pairs[0][0]
    (in_joules,) = instrument_rows([gain], [Reading(energy_j, seconds, 1.0)])
    assert in_joules.contribution == pytest.approx(limit * energy_j / math.sqrt(3))


def test_a_gain_applies_to_the_saving_and_a_range_to_both_readings() -> None:
    readings = [Reading(1000.0, 100.0, 1.0), Reading(900.0, 80.0, -1.0)]
    gain, of_range, offset = instrument_rows([GAIN, RANGE, ErrorTerm("offset", 0.3, "")], readings)
    root = math.sqrt(3)
    assert gain.contribution == pytest.approx(0.03 * 100 / root)
    assert of_range.contribution == pytest.approx(0.3 * math.hypot(100, 80) / root)
    assert offset.contribution == pytest.approx(0.3 * 20 / root)


@pytest.mark.parametrize("r", [0.0, 0.3, 1.0])
def test_a_correlation_counts_as_in_equation_16(r: float) -> None:
    readings = [Reading(1000.0, 1.0, 1.0), Reading(700.0, 1.0, -1.0), Reading(200.0, 1.0, 0.5)]
    (row,) = instrument_rows([replace(GAIN, correlation=r)], readings)
    c = np.array([1000.0, -700.0, 100.0]) * 0.03 / math.sqrt(3)
    correlations = np.full((3, 3), r) + (1 - r) * np.eye(3)
    assert row.contribution == pytest.approx(math.sqrt(c @ correlations @ c))


def test_a_ratio_without_instrument_error_has_its_comparisons_interval() -> None:
    c = known(compare([100.0, 103.0, 99.0, 101.0], [110.0, 112.0, 111.0, 108.0], 0.02))
    exact = budgets.ratio_budget([GAIN], c, [((101.0, 10.0), (110.0, 11.0))])
    assert exact.interval.low == pytest.approx(c.low, rel=1e-7)
    assert exact.interval.high == pytest.approx(c.high, rel=1e-7)
    pairs = [((101.0, 10.0), (110.0, 11.0))]
    known_error = replace(c, systematic=instrument_error([GAIN, RANGE], pairs))
    wider = budgets.ratio_budget([GAIN, RANGE], known_error, [*pairs])
    assert known(wider.interval.low) < known(c.low) < known(c.high) < known(wider.interval.high)


def test_one_block_has_no_expanded_uncertainty() -> None:
    budget = joules_budget([GAIN], (100.0, 10.0), None, 0)
    assert budget.expanded is None and budget.factor is None
    assert budget.interval == Estimate(100.0, None, None)
    assert budget.missing == ("scatter",)


def test_a_term_that_is_not_stated_makes_a_budget_incomplete() -> None:
    once = [Reading(100.0, 10.0, 1.0)]
    twice = ratio_readings([((100.0, 10.0), (110.0, 11.0))])

    def missing(terms: tuple[ErrorTerm, ...], readings: list[Reading]) -> tuple[str, ...]:
        return Budget("a", "J", 1.0, instrument_rows(terms, readings)).missing

    # A limit of the reading bounds the reading's linearity too, but not that of a ratio.
    assert missing((GAIN, LINEARITY), once) == ()
    assert missing((GAIN, LINEARITY), twice) == ("linearity",)
    assert missing((GAIN, POWER_FACTOR), once) == ("power_factor",)
    # An unknown gain cancels; RAPL's package states none, memory 30 %.
    assert missing(rapl_terms("package-0"), once) == ("gain",)
    assert missing(rapl_terms("package-0"), twice) == ("linearity",)
    assert missing(rapl_terms("package-1/dram"), once) == ()
    memory = Budget("joules", "J", 100.0, instrument_rows(rapl_terms("dram"), once))
    assert memory.combined == pytest.approx(30 / math.sqrt(3), rel=1e-6)
    assert read_terms({})[0].limit is None
    assert missing(read_terms({}), once) == ("gain", "range", "power_factor")


@pytest.mark.parametrize("limit", [0.0, 1e-300, 1e150, 1e300])
def test_extreme_limits_give_a_budget(metered: Results, limit: float) -> None:
    (meter,) = metered.suite.meters
    terms = {"terms": [{"name": n, "limit": limit, "source": ""} for n, _ in LIMITS]}
    odd = replace(
        metered, suite=replace(metered.suite, meters=(replace(meter, terms=read_terms(terms)),))
    )
    assert len(budgets.table(odd)) > 0
    assert "nan" not in text_of(meters_section(odd))


def test_count_and_update_of_a_counter_are_triangular() -> None:
    """10 W: 2⁻¹⁴ J and 10 mJ of a millisecond, each a triangle (√6)."""
    rows = {
        row.term: row for row in instrument_rows(rapl_terms("dram"), [Reading(100.0, 10.0, 1.0)])
    }
    assert rows["count"].contribution == pytest.approx(2**-14 / math.sqrt(6))
    assert rows["update"].contribution == pytest.approx(0.01 / math.sqrt(6))


@pytest.fixture(scope="module")
def metered(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Return a suite read by a WT310E whose every term is known."""
    folder = tmp_path_factory.mktemp("metered") / "s"
    return analysed(folder, interval_ms=100, accuracy=WT310E)


def test_saved_time_has_the_meters_error_of_the_declared_rule(metered: Results) -> None:
    """At rest until the other is done, both sides take the same time: an offset cancels."""
    (meter,) = metered.suite.meters
    terms = {"terms": [{"name": n, "limit": x, "source": ""} for n, x in LIMITS]}
    suite = replace(metered.suite, meters=(replace(meter, terms=read_terms(terms)),))
    idles = replace(known(suite.assumptions), after_work="idle")
    first = costs.paybacks(suite, metered.energy)[0]
    idle = costs.paybacks(replace(suite, assumptions=idles), metered.energy)[0]
    assert (first.after_work, idle.after_work) == ("sleep", "idle")
    assert idle.saving_j.mean < first.saving_j.mean
    for payback in (first, idle):
        gain = next(row for row in payback.budget.rows if row.term == "gain")
        assert gain.contribution == pytest.approx(0.01 * payback.saving_j.mean / math.sqrt(3))
    offsets = [next(r for r in p.budget.rows if r.term == "offset") for p in (first, idle)]
    sooner_s = math.fsum(offsets[0].sensitivities)
    assert sooner_s > 0.1
    assert offsets[0].contribution == pytest.approx(0.2 * sooner_s / math.sqrt(3))
    assert offsets[1].contribution == pytest.approx(0, abs=1e-9)


LIMITS = (("gain", 0.01), ("offset", 0.2))


def test_a_range_counts_the_seconds_of_the_tail(metered: Results) -> None:
    """A range's share of the seconds counts those of the delayed writes."""
    p = costs.paybacks(metered.suite, metered.energy)[0]
    of_range = next(row for row in p.budget.rows if row.term == "range")
    rows = metered.energy.filter(
        pl.col("phase").is_in(["all", "tail"]),
        component="system",
        workload=p.workload,
        configuration=p.against,
    )
    per_run = rows.group_by("run_id").agg(pl.col("duration_s").sum())
    assert of_range.sensitivities[0] == pytest.approx(per_run["duration_s"].mean())


def test_summary_and_paybacks_agree_with_their_budgets(metered: Results) -> None:
    summary = {
        (r["workload"], r["configuration"], r["source"], r["component"]): r
        for r in metered.summary.iter_rows(named=True)
    }
    for budgeted in [*budgets.joules(metered), *budgets.ratios(metered)]:
        key = budgeted.workload, budgeted.configuration, budgeted.source, budgeted.component
        value = "ratio" if budgeted.base else "mean_j"
        low, high = ("ratio_low", "ratio_high") if budgeted.base else ("ci_low_j", "ci_high_j")
        alone = budgeted.budget.interval
        stated = [summary[key][name] for name in (value, low, high)]
        assert stated == pytest.approx([alone.mean, alone.low, alone.high], rel=1e-7)
    for p in costs.paybacks(metered.suite, metered.energy):
        alone = p.budget.interval
        assert (p.saving_j.low, p.saving_j.high) == (alone.low, alone.high)


def test_a_meter_without_all_its_terms_says_which_are_not_stated(
    metered: Results, derived: Results
) -> None:
    shown = [text_of(meters_section(results)) for results in (metered, derived)]
    assert ["not stated" in text for text in shown] == [False, True]


def test_an_error_that_does_not_cancel_enters_interval_and_verdict(metered: Results) -> None:
    """A meter that may be off by 20 W of some 25 W shows no change at all."""
    (meter,) = metered.suite.meters
    rough = {"relative_limit": 0.0, "absolute_limit_w": 20.0, "source": "-"}
    suite = replace(metered.suite, meters=(replace(meter, terms=read_terms(rough)),))
    other = replace(metered, suite=suite)
    key = next(
        key
        for key, c in metered.family.versus.items()
        if key[3] == "system" and c.verdict == "differs"
    )
    sure, open_ = metered.family.versus[key], other.family.versus[key]
    assert open_.verdict == "inconclusive" and "meter-decides" in open_.doubts
    assert (open_.ratio, open_.error) == (sure.ratio, sure.error)
    assert known(open_.high) / known(open_.low) > 1.5 * known(sure.high) / known(sure.low)
    joules = other.summary.filter(workload=key[0], configuration=key[1], component="system")
    half_j = joules["ci_high_j"][0] - joules["mean_j"][0]
    assert half_j > 0.9 * 20.0 * joules["mean_s"][0]


def test_budget_csv_has_every_budget(tmp_path: Path) -> None:
    write_suite(tmp_path / "s", Options(blocks=2, interval_ms=100, workloads=("sql", "idle")))
    build(tmp_path / "s")
    before = (tmp_path / "s" / BUDGET).read_bytes()
    table = pl.read_csv(tmp_path / "s" / BUDGET)
    assert table.columns == list(budgets.COLUMNS)
    assert {*table["figure"]} == {"joules of a run", "ratio", "saving"}
    assert {*table.filter(figure="ratio")["workload"]} == {"sql", "idle", "all"}
    rapl = table.filter(source="rapl", component="package-0")
    assert {*rapl.filter(figure="joules of a run")["not_stated"]} == {"gain"}
    build(tmp_path / "s")
    assert (tmp_path / "s" / BUDGET).read_bytes() == before


def test_the_quantiles_of_the_normal_distribution_are_scipys() -> None:
    assert special.ndtri(1 - LEVEL / 2) == NORMAL and special.ndtri(0.995) == SURE
