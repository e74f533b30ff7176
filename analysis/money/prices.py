"""Prices as people write them, 25EUR, €25, 0.42/kWh or 420 EUR/MWh, in place of declared ones."""

from __future__ import annotations

import re
from dataclasses import dataclass

from analysis.suite.records import SuiteError
from contract.assumptions import Assumptions

SYMBOLS = {"€": "EUR", "$": "USD", "£": "GBP"}
KWH = {"kwh": 1.0, "mwh": 1000.0}
_AMOUNT = r"\d+(?:[.,]\d+)?"
_CURRENCY = r"[^\W\d_]+|[^\w\s.,/+-]"
_PRICE = re.compile(rf"({_CURRENCY})?\s*({_AMOUNT})\s*({_CURRENCY})?\s*(?:/\s*(\w+))?")


@dataclass(frozen=True)
class Price:
    """An amount in `currency`, three letters; empty if none was written."""

    amount: float
    currency: str


def parse_price(text: str) -> Price:
    """Parse the price of a thing, such as `25EUR`. Raises ValueError, with what to write."""
    price, unit = _parse(text, "25EUR")
    if unit:
        raise ValueError(f"{text!r} is per {unit}. Write the price of one drive, such as 25EUR.")
    return price


def parse_price_per_kwh(text: str) -> Price:
    """Parse a price of electricity, per kWh unless it is per MWh. Raises ValueError."""
    price, unit = _parse(text, "0.42EUR/kWh")
    if unit and unit.lower() not in KWH:
        raise ValueError(f"{text!r} is per {unit}. Write a price per kWh or MWh.")
    return Price(price.amount / KWH[unit.lower() or "kwh"], price.currency)


def currency_code(name: str) -> str:
    """Return a currency's three letters for them or its sign. Raises ValueError."""
    code = SYMBOLS.get(name, name.upper())
    if not re.fullmatch("[A-Z]{3}", code):
        signs = ", ".join(SYMBOLS)
        raise ValueError(f"Unknown currency {name!r}. Write three letters, as in EUR, or {signs}.")
    return code


def price_changes(
    declared: Assumptions | None, electricity: str | None, extra: str | None
) -> dict[str, object]:
    """Return the assumptions that prices written by a person replace, in one currency.

    A declared range of a replaced price no longer holds. Raises SuiteError.
    """
    written = {
        "electricity_price_per_kwh": electricity and _read("--electricity", electricity),
        "sed_extra_price": extra and _read("--extra", extra),
    }
    prices = {key: price for key, price in written.items() if isinstance(price, Price)}
    currencies = {price.currency for price in prices.values()} - {""}
    if len(currencies) > 1:
        raise SuiteError("two-currencies", currencies=" and ".join(sorted(currencies)))
    changes: dict[str, object] = {key: price.amount for key, price in prices.items()}
    of_plan = declared.currency if declared else ""
    for currency in currencies:
        if currency != SYMBOLS.get(of_plan, of_plan.upper()):
            if declared and len(prices) < len(written):
                raise SuiteError("other-currency", plan=of_plan, currency=currency)
            changes |= {"currency": currency, "plain_price": None}
    if declared and declared.ranges:
        changes["ranges"] = {k: v for k, v in declared.ranges.items() if k not in changes}
    return changes


def _read(option: str, text: str) -> Price:
    try:
        return (parse_price if option == "--extra" else parse_price_per_kwh)(text)
    except ValueError as error:
        raise SuiteError("invalid-price", option=option, error=error) from None


def _parse(text: str, example: str) -> tuple[Price, str]:
    """Return the price and the unit after its slash, empty without one."""
    match = _PRICE.fullmatch(text.strip())
    if match is None or (match[1] and match[3]):
        raise ValueError(f"{text!r} is not a price. Write an amount and a currency: {example}.")
    before, amount, after, unit = match.groups(default="")
    units, _, decimals = amount.replace(",", ".").partition(".")
    if len(decimals) == len("000") and units.strip("0"):
        decimal = f"{units}.{decimals}0"
        raise ValueError(f"{amount!r} is ambiguous. Write {units}{decimals} or {decimal}.")
    value = float(f"{units}.{decimals}")
    if value <= 0:
        raise ValueError(f"{text!r} is not above 0.")
    name = before or after
    return Price(value, currency_code(name) if name else ""), unit
