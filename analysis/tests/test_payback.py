from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from analysis.money.payback import Payback, annuity, payback
from analysis.report.payback_text import chance, payback_line, price
from analysis.stats.budget import Row
from analysis.tests.known import known
from contract.assumptions import Assumptions, parse_assumptions
from contract.command_results import AnswerLine
from contract.estimates import Estimate
from validation.synthetic.suite import ASSUMPTIONS

PAPER = Assumptions(25.0, "USD", 0.12, 50.0, 3.0, 100.0)
SAVES = ([3000.0, 3010.0, 3020.0], [2000.0, 2000.0, 2000.0])


def reckon(base_j: list[float], sed_j: list[float], assumptions: Assumptions = PAPER) -> Payback:
    return payback(
        "kernel_tree", "dmcrypt-aes128", base_j, sed_j, assumptions=assumptions, origin="measured"
    )


def answered(repaid: Payback, assumptions: Assumptions = PAPER) -> AnswerLine:
    return payback_line(repaid, assumptions, lambda name: name)


def runs_to_repay(price: float, saving_j: float, price_per_kwh: float) -> float:
    return price / (saving_j * price_per_kwh / 3.6e6)


def test_the_papers_arithmetic() -> None:
    assert runs_to_repay(25, 1000, 0.12) == pytest.approx(750_000, rel=1e-12)
    repaid = reckon([3000.0, 3001.0, 2999.0], [2000.0, 2000.0, 2000.0])
    assert known(repaid.runs).mean == pytest.approx(750_000)
    assert known(replace(repaid, run_s=120.0).hours).mean == pytest.approx(25_000)


def test_the_savings_interval_gives_those_of_runs_and_years() -> None:
    repaid = reckon(*SAVES)
    assert repaid.runs is not None
    assert repaid.runs.mean == pytest.approx(runs_to_repay(25, 1010, 0.12))
    assert repaid.runs.low == pytest.approx(runs_to_repay(25, known(repaid.saving_j.high), 0.12))
    assert repaid.runs.high == pytest.approx(runs_to_repay(25, known(repaid.saving_j.low), 0.12))
    free = reckon(*SAVES, replace(PAPER, discount_rate=0.0))
    assert known(free.years).mean == pytest.approx(repaid.runs.mean / (100 * 365.25))


def limits(span: Estimate) -> list[float]:
    assert known(span.low) <= span.mean <= known(span.high)
    return [span.mean, known(span.low), known(span.high)]


def test_break_even_prices_repay_themselves_exactly_in_a_life() -> None:
    repaid = reckon(*SAVES, replace(PAPER, discount_rate=0.0))
    runs = runs_to_repay(repaid.break_even_price.mean, repaid.saving_j.mean, 0.12)
    assert runs == pytest.approx(100 * 365.25 * 3)
    runs = runs_to_repay(25, repaid.saving_j.mean, known(repaid.break_even_electricity).mean)
    assert runs == pytest.approx(100 * 365.25 * 3)
    limits(known(repaid.break_even_electricity))


def test_present_value_is_the_sum_of_discounted_cash_flows() -> None:
    assert annuity(0.03, 3) == pytest.approx(1 / 1.03 + 1 / 1.03**2 + 1 / 1.03**3)
    assert annuity(0.0, 3) == 3
    assert annuity(1e-9, 3) == pytest.approx(3)
    repaid = reckon(*SAVES)
    yearly = 1010 * 100 * 365.25 * 0.12 / 3.6e6
    assert repaid.saving_per_year.mean == pytest.approx(yearly)
    assert repaid.kwh_per_year.mean == pytest.approx(1010 * 100 * 365.25 / 3.6e6)
    expected = sum(yearly / 1.03**year for year in (1, 2, 3)) - 25
    assert repaid.net_present_value.mean == pytest.approx(expected)
    low = known(repaid.saving_j.low) / 1010
    assert limits(repaid.net_present_value)[1] == pytest.approx((expected + 25) * low - 25)


def test_carbon_only_where_the_grid_is_known() -> None:
    repaid = reckon(*SAVES)
    assert repaid.co2_kg_per_year is None
    grid = parse_assumptions({**ASSUMPTIONS, "life_years": 3, "grid_g_co2_per_kwh": 400})
    repaid = reckon(*SAVES, grid)
    assert known(repaid.co2_kg_per_year).mean == pytest.approx(1010 / 3.6e6 * 50 * 365.25 * 0.4)


def test_an_interval_with_zero_has_no_payback() -> None:
    repaid = reckon([2000.0, 2500.0, 1800.0], [2000.0, 2000.0, 2000.0])
    assert repaid.saving_j.contains(0)
    assert not repaid.demonstrated
    assert repaid.runs is repaid.years is repaid.break_even_electricity is None
    assert repaid.break_even_price.low == 0
    top = known(repaid.break_even_price.high)
    assert 0 < top < PAPER.sed_extra_price
    assert answered(repaid).code == "not-shown"
    dear = replace(PAPER, sed_extra_price=top / 2)
    assert answered(reckon([2000.0, 2500.0, 1800.0], [2000.0] * 3, dear), dear).code == "unsettled"
    assert answered(reckon([2000.0], [1000.0])).code == "unsettled"
    assert reckon([2000.0], [1000.0]).probability is None
    needs_more = reckon([1000.0, 1001.0, 999.0], [2000.0, 2000.0, 2000.0])
    assert needs_more.break_even_price.high == 0 and known(needs_more.probability) < 0.001
    assert answered(needs_more).code == "does-not-pay"


def test_the_verdict_comes_first() -> None:
    line = answered(reckon(*SAVES))
    assert (line.question, line.code) == ("payback", "does-not-pay")
    assert line.verdict == "The drive does not pay for itself"
    assert "At 100 runs of “Kernel tree” a day, against dmcrypt-aes128" in line.reason
    years = known(reckon(*SAVES).years)
    assert line.facts["years"] == limits(years)
    assert (line.facts["life_years"], line.facts["blocks"]) == (3.0, 3)
    cheap = replace(PAPER, sed_extra_price=3.0)
    assert answered(reckon(*SAVES, cheap), cheap).code == "pays"
    open_ = replace(PAPER, life_years=years.mean)
    assert answered(reckon(*SAVES, open_), open_).code == "unsettled"


def test_headline_and_present_value_never_disagree() -> None:
    """Repaid within its life without interest, and not with it."""
    a = replace(PAPER, life_years=26.0, discount_rate=0.05)
    repaid = reckon(*SAVES, a)
    assert 25 / repaid.saving_per_year.mean < 26
    assert known(repaid.net_present_value.high) < 0
    assert repaid.years is None
    line = answered(repaid, a)
    assert (line.code, line.facts["years"]) == ("does-not-pay", None)
    assert "interest exceeds what it saves" in line.reason
    for price_ in np.linspace(1, 6, 20):
        priced = replace(PAPER, sed_extra_price=float(price_))
        repaid = reckon(*SAVES, priced)
        worth = repaid.net_present_value
        code = answered(repaid, priced).code
        assert (code == "pays") == (known(worth.low) >= 0)
        assert (code == "does-not-pay") == (known(worth.high) < 0)


def of_meter(half_width_95_j: float) -> Row:
    """Return a term of error whose 95 % interval has this half width."""
    return Row("range", "B", "rectangular", "J", half_width_95_j / 0.95, math.sqrt(3))


def test_the_meters_error_widens_the_payback() -> None:
    base_j, sed_j = [2100.0, 2110.0, 2090.0], [2000.0] * 3
    exact, doubtful, hopeless = (
        payback(
            "kernel_tree", "dmcrypt", base_j, sed_j, assumptions=PAPER,
            origin="measured", meter=[of_meter(meter_j)],
        )
        for meter_j in (0.0, 50.0, 120.0)
    )  # fmt: skip
    assert exact.saves and doubtful.saves and not hopeless.saves
    narrow, wide = known(exact.runs), known(doubtful.runs)
    assert wide.mean == narrow.mean
    assert known(wide.low) < known(narrow.low) and known(wide.high) > known(narrow.high)
    assert hopeless.saving_j.mean == exact.saving_j.mean


def test_savings_without_any_scatter_are_sure() -> None:
    for extra, sure in ((2.0, 1.0), (200.0, 0.0)):
        repaid = reckon(
            [3000.0] * 3, [2000.0] * 3, Assumptions(extra, "USD", 0.12, 50.0, 3.0, 100.0)
        )
        assert repaid.probability == sure
        assert repaid.saves and repaid.demonstrated == (sure == 1)


def test_battery_limits_are_swapped() -> None:
    held = Estimate(12_000, 10_000, 15_000).dividing(180_000)
    assert (held.mean, held.low, held.high) == (15, 12, 18)
    assert Estimate(12_000, -1, 25_000).dividing(180_000).high is None


TRUE_SAVING_J, RATE = 1000.0, 0.01
TRUE_YEARLY = TRUE_SAVING_J * 100 * 365.25 * 0.12 / 3.6e6


def test_probability_is_uniform_at_the_break_even_price() -> None:
    """A price that is just repaid in the drive's life: the probability is then uniform."""
    generator = np.random.default_rng(5)
    price = TRUE_YEARLY * annuity(RATE, 3)
    just = replace(PAPER, sed_extra_price=price, discount_rate=RATE)
    said_so = []
    for _ in range(1500):
        saving = TRUE_SAVING_J + generator.normal(0, 300, 8)
        repaid = reckon(saving.tolist(), [0.0] * 8, just)
        said_so.append(known(repaid.probability))
    for level in (0.05, 0.5, 0.95):
        assert np.mean(np.asarray(said_so) < level) == pytest.approx(level, abs=0.03)


@pytest.mark.parametrize("value", [None, 0, -1, "25", True, math.nan, math.inf])
def test_assumptions_that_are_not_positive_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="sed_extra_price"):
        parse_assumptions({**ASSUMPTIONS, "sed_extra_price": value})


def test_optional_assumptions_have_defaults() -> None:
    parsed = parse_assumptions(ASSUMPTIONS)
    assert parsed.discount_rate == 0.03
    assert parsed.grid_g_co2_per_kwh is None
    assert (parsed.hours_per_day, parsed.machines) == (None, 1)
    assert parsed.ranges == {}
    declared = {
        **ASSUMPTIONS,
        "discount_rate": 0,
        "grid_g_co2_per_kwh": 380,
        "duty": {"sql": 2, "video": 1},
        "ranges": {"life_years": [3, 8]},
    }
    parsed = parse_assumptions(declared)
    assert parsed.discount_rate == 0
    assert parsed.grid_g_co2_per_kwh == 380
    assert parsed.duty == {"sql": 2, "video": 1}
    assert parsed.ranges == {"life_years": (3, 8)}
    nothing = dict.fromkeys(("discount_rate", "grid_g_co2_per_kwh", "duty", "ranges"))
    assert parse_assumptions({**ASSUMPTIONS, **nothing}) == parse_assumptions(ASSUMPTIONS)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("discount_rate", -0.01),
        ("discount_rate", "3 %"),
        ("grid_g_co2_per_kwh", 0),
        ("duty", {"sql": 0}),
        ("duty", ["sql"]),
        ("ranges", {"life_years": [8, 3]}),
        ("ranges", {"life_years": 3}),
        ("electricity", 0.3),
    ],
)
def test_wrong_optional_assumptions_are_refused(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{key}|range"):
        parse_assumptions({**ASSUMPTIONS, key: value})


def test_money_has_cents_only_where_they_matter() -> None:
    shown = [
        price(Estimate(mid, low, high), PAPER)
        for mid, low, high in (
            (-24.998, -25.004, -24.99),
            (140.14, 107.69, 172.6),
            (-17.54, -19.08, -15.99),
            (-250.02, -250.03, -250.01),
            (0.0213, 0.0189, 0.0237),
            (12.5, None, None),
        )
    ]
    assert shown == [
        "−25.00 (−25.00 to −24.99) USD",
        "140 (108 to 173) USD",
        "−17.5 (−19.1 to −16.0) USD",
        "−250.02 (−250.03 to −250.01) USD",
        "0.0213 (0.0189 to 0.0237) USD",
        "12.50 USD (no interval: too few blocks)",
    ]


def test_a_chance_is_never_0_or_100_percent() -> None:
    assert [chance(p) for p in (0.0, 0.0123, 0.5, 0.951, 0.99995, 1.0)] == [
        "below 0.1 %",
        "1.2 %",
        "50 %",
        "95.1 %",
        "above 99.9 %",
        "above 99.9 %",
    ]


def test_a_payback_is_demonstrated_by_its_probability() -> None:
    """Nothing is demonstrated at 97 %, and a declared range of the price lowers the probability."""
    sure = replace(PAPER, sed_extra_price=1.0, discount_rate=0.0)
    repaid = reckon(*SAVES, sure)
    assert repaid.demonstrated and known(repaid.probability) > 0.99
    ranged = reckon(*SAVES, replace(sure, ranges={"sed_extra_price": (0.5, 100.0)}))
    assert 0.01 < known(ranged.probability) < 0.975 and not ranged.demonstrated
    assert ranged.saves and answered(ranged, sure).code == "unsettled"
    assert (
        ranged.probability
        == reckon(*SAVES, replace(sure, ranges={"sed_extra_price": (0.5, 100.0)})).probability
    )
