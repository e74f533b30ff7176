"""The answer of `fde here` on the terminal: at most 25 lines of the report's own figures."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from analysis.money import costs
from analysis.report import first_page, words
from analysis.stats.comparison import Comparison
from analysis.stats.results import Results, results
from contract.command_results import AnswerLine, HereCost, HereResult
from contract.estimates import Estimate
from contract.places import command_line
from controller.here.survey import NO_METER, Machine, limits

WIDTH = 80
OVERALL = "over all"
COLUMN = 28


def answer(folder: Path, page: Path, machine: Machine) -> HereResult:
    """Return the figures of a sealed suite of `here`, and its answer in lines of 80 columns."""
    computed = results(folder)
    rows = tuple(_costs(computed))
    replies = first_page.lines(computed, folder)
    lines = [
        *_wrapped(_title(computed)),
        *_table(computed, rows),
        *(line for reply in replies for line in _reply(reply)),
        *_battery(computed),
        *([] if computed.suite.meters else [NO_METER]),
        *(line for sentence in limits(machine) for line in _wrapped(sentence)),
        f"report: {page}",
        f"to share it: {command_line('publish', folder)}",
    ]
    return HereResult(True, str(folder), str(page), computed.origin, rows, replies, tuple(lines))


def _wrapped(text: str) -> list[str]:
    plain = text.replace("\u202f", "").replace("\u00a0", " ")
    return textwrap.wrap(plain, WIDTH, break_long_words=False, break_on_hyphens=False)


def _title(computed: Results) -> str:
    component = words.name_of(computed.family.component)
    blocks = computed.suite.blocks_done
    return f"What dm-crypt costs here in energy of {component} ({computed.origin}, {blocks}):"


def _costs(computed: Results) -> Iterator[HereCost]:
    """Yield the change of energy by workload and over all, for each encryption."""
    family = computed.family
    for workload, configuration, source, component in family.versus:
        if component == family.component:
            pair = family.versus[workload, configuration, source, component]
            yield _cost(workload, configuration, pair)
    for contrast in family.contrasts:
        if contrast.base == computed.suite.baseline and contrast.comparison is not None:
            yield _cost(OVERALL, contrast.other, contrast.comparison)


def _cost(workload: str, configuration: str, pair: Comparison) -> HereCost:
    return HereCost(workload, configuration, pair.ratio, pair.low, pair.high, pair.verdict, pair.n)


def _table(computed: Results, rows: tuple[HereCost, ...]) -> Iterator[str]:
    configurations = list(dict.fromkeys(row.configuration for row in rows))
    width = max(len(row.workload) for row in rows) if rows else 0
    heads = "".join(f"  {name:<{COLUMN}}" for name in configurations)
    yield f"{'':<{width}}{heads}".rstrip()
    for workload in dict.fromkeys(row.workload for row in rows):
        of_it = {row.configuration: row for row in rows if row.workload == workload}
        cells = "".join(f"  {_cell(of_it.get(name)):<{COLUMN}}" for name in configurations)
        yield f"{workload:<{width}}{cells}".rstrip()
    yield f"▲ more, ▼ less, ≈ the same within {computed.suite.margin:.0%}, ? not settled"


def _cell(row: HereCost | None) -> str:
    if row is None:
        return words.NOTHING
    arrow = "▲" if row.ratio >= 1 else "▼"
    sign = {"differs": arrow, "equivalent": "≈"}.get(row.verdict, "?")
    return f"{sign} {words.change_of(row.ratio, row.ratio_low, row.ratio_high)}".replace(
        "\u202f", ""
    )


def _reply(reply: AnswerLine) -> list[str]:
    """Return the lines of the answers that the table does not give."""
    if reply.question == "payback" and "kwh_per_year" in reply.facts:
        facts = reply.facts
        kwh, price = (
            words.span(Estimate(*facts[key])) for key in ("kwh_per_year", "saving_per_year")
        )
        year = f"{facts['against']} takes {kwh} kWh, {price} {facts['currency']} a year more."
        reason = reply.reason if reply.reason.startswith((";", ",")) else f" {reply.reason}"
        return [*_wrapped(year), *_wrapped(f"{reply.verdict.rstrip()}{reason}")]
    return _wrapped(reply.verdict) if reply.question == "trust" else []


def _battery(computed: Results) -> Iterator[str]:
    """Yield what dm-crypt takes of the declared battery, in minutes of this work."""
    for hours in costs.battery_hours(computed.suite, computed.energy):
        if hours.lost_min is not None and hours.configuration in computed.suite.software:
            lost = words.span(hours.lost_min, "minutes")
            yield from _wrapped(f"{hours.configuration} takes {lost} of a battery charge.")
