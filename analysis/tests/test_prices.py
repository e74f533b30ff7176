"""Prices as people write them, and the command that takes them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.library import Suite
from analysis.money.prices import Price, parse_price, parse_price_per_kwh, price_changes
from analysis.suite.records import SuiteError
from contract.assumptions import parse_assumptions
from controller.cli.app import main
from validation.synthetic.suite import ASSUMPTIONS, Options, write_suite


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("25EUR", Price(25, "EUR")),
        ("€25", Price(25, "EUR")),
        ("25 chf", Price(25, "CHF")),
        ("$ 24.90", Price(24.9, "USD")),
        ("24,9", Price(24.9, "")),
        ("0,250GBP", Price(0.25, "GBP")),
    ],
)
def test_the_price_of_a_drive(text: str, price: Price) -> None:
    assert parse_price(text) == price


@pytest.mark.parametrize(
    ("text", "amount"),
    [("0.42/kWh", 0.42), ("0.42", 0.42), ("0.42 EUR/kWh", 0.42), ("420€ / MWh", 0.42)],
)
def test_a_price_of_electricity(text: str, amount: float) -> None:
    assert parse_price_per_kwh(text).amount == pytest.approx(amount)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "EUR",
        "-3EUR",
        "0EUR",
        "1e3EUR",
        "1,250EUR",
        "1.250EUR",
        "25Euro",
        "25ct",
        "€25EUR",
        "25EUR/h",
    ],
)
def test_what_is_no_price_is_refused(text: str) -> None:
    for parse in (parse_price, parse_price_per_kwh):
        with pytest.raises(ValueError, match=r"Write|not above 0"):
            parse(text)


def test_prices_of_another_currency_come_together_or_not_at_all() -> None:
    declared = replace(parse_assumptions(ASSUMPTIONS), plain_price=65.0)
    both = price_changes(declared, "0.42/kWh", "25EUR")
    assert both == {
        "electricity_price_per_kwh": 0.42,
        "sed_extra_price": 25.0,
        "currency": "EUR",
        "plain_price": None,
    }
    assert price_changes(declared, "0.42USD/kWh", None) == {"electricity_price_per_kwh": 0.42}
    assert price_changes(declared, None, None) == {}
    for electricity, extra in (("0.42EUR/kWh", None), (None, "25EUR"), ("0.4EUR/kWh", "25USD")):
        with pytest.raises(SuiteError, match=r"in EUR|one currency"):
            price_changes(declared, electricity, extra)


def test_a_range_of_a_replaced_price_no_longer_holds() -> None:
    ranges = {"sed_extra_price": (10.0, 30.0), "life_years": (2.0, 8.0)}
    changes = price_changes(replace(parse_assumptions(ASSUMPTIONS), ranges=ranges), None, "90USD")
    assert changes["ranges"] == {"life_years": (2.0, 8.0)}


def test_the_command_computes_what_the_library_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "s"
    write_suite(folder, Options(blocks=3, workloads=("sql", "video")))
    options = ["--electricity", "0.42/kWh", "--extra", "3EUR", "--machines", "500", "--hours", "6"]
    assert main(["payback", str(folder), *options, "--years", "4", "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    table = Suite.open(folder).payback(
        electricity_price_per_kwh=0.42,
        sed_extra_price=3.0,
        currency="EUR",
        hours_per_day=6.0,
        life_years=4.0,
    )
    for saving, row in zip(document["savings"], table.iter_rows(named=True), strict=False):
        assert (saving["against"], saving["work"]) == (row["against"], "profile")
        assert saving["per_year"]["mean"] == pytest.approx(row["saving_per_year"])
        assert saving["fleet_per_year"]["high"] == pytest.approx(500 * row["saving_per_year_high"])
        assert saving["fleet_net"]["low"] == pytest.approx(500 * row["net_present_value_low"])
        assert saving["at_most"]["low"] == pytest.approx(row["break_even_price_low"])
    assert len(document["savings"]) == 2 and document["assumptions"]["currency"] == "EUR"
    text = " ".join(printed.err.split())
    assert "500 machines, a year" in text and "6 hours of all workloads in turn" in text
    assert main(["payback", str(folder), "--extra", "25EUR"]) == 1
    assert "Give --electricity" in capsys.readouterr().err


def test_without_software_the_command_fails_and_states_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_suite(tmp_path / "s", Options(blocks=2, configurations=("plain", "opal")))
    assert main(["payback", str(tmp_path / "s")]) == 1
    assert "no encryption in software" in " ".join(capsys.readouterr().out.split())
