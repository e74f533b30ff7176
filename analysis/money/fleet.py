"""What a mix of machines would save: one report's joules, each group's own duty and prices.

Every machine is taken to be the one that was measured; that is the assumption of the whole table.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import yaml

from analysis.money.costs import profiles
from analysis.money.payback import Payback
from analysis.stats.stats import ENDS, columns
from analysis.suite.assumptions import Assumptions, assumptions_of
from analysis.suite.records import Suite, SuiteError, joint
from contract import files, schema
from contract.schema import REST, Range

TOTAL = "all"
COLUMNS = (
    *("group", "machines", "against", "currency", "demonstrated", "probability", "origin"),
    *(
        f"{what}{end}"
        for what in ("kwh_per_year", "saving_per_year", "net_present_value", "co2_kg_per_year")
        for end in ENDS
    ),
    *("extra_price", "years_to_repay", "break_even_price_each"),
)


@dataclass(frozen=True)
class _Group:
    """Machines that do the same; `assumptions` are what differs from the report's, `duty` too."""

    name: str
    machines: Annotated[int, Range(least=1)]
    assumptions: Annotated[Mapping[str, Any], REST] = field(default_factory=dict)


@dataclass(frozen=True)
class _Fleet:
    groups: tuple[_Group, ...]


def write(suite: Suite, energy: pl.DataFrame, fleet: Path, out: Path) -> None:
    """The fleet described in a YAML file as CSV, a line for each group and software, then totals.

    Raises SuiteError with the way out for a file that describes none, or one with work that the
    suite did not measure.
    """
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, COLUMNS)
    writer.writeheader()
    writer.writerows(rows(suite, energy, fleet))
    files.write(out, [table.getvalue().encode()])


def rows(suite: Suite, energy: pl.DataFrame, fleet: Path) -> Iterator[dict[str, Any]]:
    """The lines of the table by column; see `write`."""
    found: list[tuple[_Group, Assumptions, Payback]] = []
    for group in _read(fleet):
        own = {**suite.plan.get("assumptions", {}), **group.assumptions}
        assumptions = assumptions_of(own)
        stray = set(group.assumptions) - {each.name for each in fields(Assumptions)}
        if assumptions is None or stray:
            raise SuiteError(
                f"The group {group.name} of {fleet} has assumptions that are none "
                f"({', '.join(sorted(stray)) or 'a value that cannot be'}): give those of "
                "fde_assumptions, as duty or electricity_price_per_kwh."
            )
        told = profiles(replace(suite, plan={**suite.plan, "assumptions": own}), energy)
        if not told:
            raise SuiteError(
                f"The suite has no payback for the duty of the group {group.name} "
                f"({', '.join(assumptions.profile)}): give it workloads that were measured on a "
                "self-encrypting disk and under software, with a meter of the system."
            )
        found += [(group, assumptions, payback) for payback in told]
    yield from (_row(suite, *each) for each in found)
    for against in dict.fromkeys(payback.against for *_, payback in found):
        yield _total(suite, against, [each for each in found if each[2].against == against])


def _read(path: Path) -> Sequence[_Group]:
    try:
        groups = schema.read(_Fleet, yaml.safe_load(path.read_text(encoding="utf-8"))).groups
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SuiteError(
            f"{path} describes no fleet ({error}): list groups, each with name, machines and what "
            "differs from the report's assumptions."
        ) from error
    names = [group.name for group in groups]
    if not names or len(set(names)) < len(names) or TOTAL in names:
        raise SuiteError(f"{path}: give each group a name of its own, other than {TOTAL}.")
    return groups


def _row(suite: Suite, group: _Group, assumptions: Assumptions, one: Payback) -> dict[str, Any]:
    count = group.machines
    return {
        **_common(suite, one.against, [one]),
        "group": group.name,
        "machines": count,
        "currency": assumptions.currency,
        "probability": one.probability,
        **columns("kwh_per_year", one.kwh_per_year.scaled(count)),
        **columns("saving_per_year", one.saving_per_year.scaled(count)),
        **columns("net_present_value", one.net_present_value.scaled(count)),
        **columns("co2_kg_per_year", one.co2_kg_per_year and one.co2_kg_per_year.scaled(count)),
        "extra_price": assumptions.sed_extra_price * count,
        "years_to_repay": one.years and one.years.mid,
        "break_even_price_each": one.break_even_price.mid,
    }


def _total(
    suite: Suite, against: str, found: Sequence[tuple[_Group, Assumptions, Payback]]
) -> dict[str, Any]:
    """Sums; ends of intervals too, for all groups rest on the same runs and err together. Money is
    left out where currencies differ, carbon where a group has no intensity of its grid."""
    parts = [_row(suite, *each) for each in found]
    currencies = {str(part["currency"]) for part in parts}
    total = {**_common(suite, against, [each[2] for each in found]), "group": TOTAL}
    total["currency"] = currencies.pop() if len(currencies) == 1 else ""
    for name in ("machines", *COLUMNS[7:-2]):
        money = name.startswith(("saving", "net", "extra"))
        values = [part[name] for part in parts]
        known = all(value is not None for value in values) and (total["currency"] or not money)
        total[name] = sum(values) if known else None
    return total


def _common(suite: Suite, against: str, paybacks: Sequence[Payback]) -> dict[str, Any]:
    return {
        "against": suite.label(against),
        "demonstrated": "yes" if all(each.demonstrated for each in paybacks) else "no",
        "origin": joint(each.origin for each in paybacks),
    }
