"""The answer of `fde here` on the terminal: at most 25 lines of the report's own figures."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from analysis.report import first_page, render, words
from analysis.stats.comparison import Comparison
from analysis.stats.results import Results, results
from contract.command_results import HereCost, HereResult
from contract.estimates import Estimate
from contract.places import command_line
from controller.here.survey import NO_METER, Machine, limits

OVERALL = "over all"
COLUMN = 28
# Of the first page; the table has the others, and `next` is for inventories.
REPLIES = ("payback", "battery", "trust")

Cell = tuple[str, str]  # workload and configuration


def answer(folder: Path, page: Path, machine: Machine) -> HereResult:
    """Return the figures of a sealed suite of `here`, and its answer in lines of 80 columns."""
    computed = results(folder)
    pairs = dict(_pairs(computed))
    replies = first_page.lines(computed, folder)
    answers = [reply for reply in replies if reply.question in REPLIES]
    texts = [*([] if computed.suite.meters else [NO_METER]), *limits(machine)]
    lines = [
        _title(computed),
        *_table(computed, pairs),
        *(line for reply in answers for line in _each_year(reply.facts)),
        *render.text(first_page.blocks(answers)).splitlines(),
        *texts,
        f"report: {page}",
        f"to share it: {command_line('publish', folder)}",
    ]
    costs = tuple(
        HereCost(*cell, pair.ratio, pair.low, pair.high, pair.verdict, pair.n)
        for cell, pair in pairs.items()
    )
    return HereResult(True, str(folder), str(page), computed.origin, costs, replies, tuple(lines))


def _title(computed: Results) -> str:
    component = words.name_of(computed.family.component)
    blocks = computed.suite.blocks_done
    return f"What dm-crypt costs here in energy of {component} ({computed.origin}, {blocks}):"


def _pairs(computed: Results) -> Iterator[tuple[Cell, Comparison]]:
    """Yield the comparisons with no encryption, by workload and over all."""
    family = computed.family
    for (workload, configuration, _, component), pair in family.versus.items():
        if component == family.component:
            yield (workload, configuration), pair
    for contrast in family.contrasts:
        if contrast.base == computed.suite.baseline and contrast.comparison is not None:
            yield (OVERALL, contrast.other), contrast.comparison


def _table(computed: Results, pairs: dict[Cell, Comparison]) -> Iterator[str]:
    workloads = list(dict.fromkeys(workload for workload, _ in pairs))
    configurations = list(dict.fromkeys(configuration for _, configuration in pairs))
    width = max(map(len, workloads), default=0)
    yield _row("", configurations, width)
    for workload in workloads:
        cells = (pairs.get((workload, name)) for name in configurations)
        texts = [f"{words.sign(pair)} {words.change_in(pair)}" if pair else "" for pair in cells]
        yield _row(workload, texts, width)
    yield f"▲ more, ▼ less, ≈ the same within {computed.suite.margin:.0%}, ? not settled"


def _row(head: str, texts: list[str], width: int) -> str:
    cells = "".join(f"  {text:<{COLUMN}}" for text in texts)
    return f"{head:<{width}}{cells}".replace("\u202f", "").rstrip()


def _each_year(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the energy and money of a year, from the facts of the payback's line."""
    if "kwh_per_year" not in facts:
        return
    kwh, price = (words.span(Estimate(*facts[key])) for key in ("kwh_per_year", "saving_per_year"))
    year = f"{facts['against']} takes {kwh} kWh, {price} {facts['currency']} a year more."
    yield from textwrap.wrap(year.replace("\u202f", ""), render.WIDTH)
