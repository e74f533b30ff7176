from __future__ import annotations

import pytest

from analysis.inference.stats import Estimate
from analysis.money.payback import (
    Assumptions,
    Payback,
    assumptions_of,
    battery_runs,
    payback,
    runs_to_repay,
)
from analysis.page.answer import payback_sentence
from analysis.published import paper
from analysis.tests.synthetic import ASSUMPTIONS

PAPER = Assumptions(25.0, "USD", 0.12, 50.0, 3.0, 100.0)


def reckon(base_j: list[float], sed_j: list[float]) -> Payback:
    return payback(
        "kernel_tree",
        "dmcrypt-aes128",
        base_j,
        sed_j,
        run_s=120.0,
        assumptions=PAPER,
        origin="measured",
    )


def test_the_papers_arithmetic() -> None:
    assert runs_to_repay(25, 1000, 0.12) == pytest.approx(750_000, rel=1e-12)
    computed = {s.what: s.computed for s in paper.arithmetic()}
    assert computed["Runs until the dearer disk is repaid"] == pytest.approx(750_000)
    assert computed["Hours of these runs"] == pytest.approx(25_000)
    assert round(computed["Years without a pause"]) == 3
    names = ("plain", "opal", "dmcrypt-aes128")
    assert [round(computed[f"Runs on a battery, {name}"]) for name in names] == [15, 14, 13]


def test_interval_of_the_saving_is_carried_to_runs_hours_and_years() -> None:
    found = reckon([3000.0, 3010.0, 3020.0], [2000.0, 2000.0, 2000.0])
    assert found.runs is not None
    assert found.hours is not None
    assert found.years is not None
    assert found.saving_j.low is not None
    assert found.saving_j.high is not None
    assert found.runs.mid == pytest.approx(runs_to_repay(25, 1010, 0.12))
    assert found.runs.low == pytest.approx(runs_to_repay(25, found.saving_j.high, 0.12))
    assert found.runs.high == pytest.approx(runs_to_repay(25, found.saving_j.low, 0.12))
    assert found.hours.mid == pytest.approx(found.runs.mid * 120 / 3600)
    assert found.years.mid == pytest.approx(found.runs.mid / (100 * 365.25))


def test_break_even_price_repays_itself_exactly_in_a_life() -> None:
    found = reckon([3000.0, 3010.0, 3020.0], [2000.0, 2000.0, 2000.0])
    runs = runs_to_repay(found.break_even_price.mid, found.saving_j.mean, 0.12)
    assert runs == pytest.approx(100 * 365.25 * 3)


def test_no_payback_where_the_interval_holds_zero() -> None:
    found = reckon([2000.0, 2500.0, 1800.0], [2000.0, 2000.0, 2000.0])
    assert found.saving_j.contains(0)
    assert not found.demonstrated
    assert found.runs is None
    assert found.break_even_price.low == 0
    said = payback_sentence(found, PAPER)
    assert "No demonstrated payback" in said
    assert "an interval that holds 0" in said


def test_no_payback_from_one_block() -> None:
    found = reckon([3000.0], [2000.0])
    assert not found.demonstrated
    assert "n = 1: no interval" in payback_sentence(found, PAPER)


def test_a_drive_that_needs_more_is_never_repaid() -> None:
    found = reckon([1000.0, 1001.0, 1002.0], [2000.0, 2000.0, 2000.0])
    assert not found.demonstrated
    assert found.break_even_price.high == 0
    assert "needs more energy" in payback_sentence(found, PAPER)
    with pytest.raises(ValueError, match="never repaid"):
        runs_to_repay(25, 0, 0.12)


def test_battery_limits_are_swapped() -> None:
    held = battery_runs(180_000, Estimate(3, 12_000, 10_000, 15_000))
    assert (held.mid, held.low, held.high) == (15, 12, 18)


@pytest.mark.parametrize("value", [None, 0, -1, "25", True])
def test_assumptions_that_are_no_positive_number_are_refused(value: object) -> None:
    assert assumptions_of(ASSUMPTIONS) is not None
    assert assumptions_of({**ASSUMPTIONS, "sed_extra_price": value}) is None


def test_published_figures_are_marked_not_mended() -> None:
    by = {(p.entry, p.configuration, p.unit): p for p in paper.published()}
    odd = by["untar", "dmcrypt-aes128", "s"]
    assert odd.half_width == 15.444
    assert odd.doubtful
    assert not by["untar", "plain", "s"].doubtful
    assert all(p.note for p in paper.published() if p.doubtful)
