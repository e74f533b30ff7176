"""Workload × configuration with the hosts side by side, their mean, and whether they differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from analysis.report import markup, words
from analysis.report.hosts_sections import heading
from analysis.report.markup import Html
from analysis.report.tables import Cell, cell_of
from analysis.stats.contrasts import counted
from analysis.stats.hosts import Effect, Hosts

SIGNS = {"differ": "≠", "alike": "≈", "not settled": "?"}
CLASSES = {"differ": "differs", "alike": "equivalent", "not settled": "inconclusive"}


def matrix(found: Hosts) -> Html:
    """The table and its legend."""
    effects = [*_overall(found), *found.single]
    if not effects:
        return markup.EMPTY
    baseline = found.first.label(found.first.baseline or "")
    caption = f"Energy of the {words.name_of(found.component)} against {baseline}, by host"
    heads = ["Configuration", *found.names, f"Mean of {len(found.names)}", "Hosts"]
    head = "".join(f'<th scope="col">{markup.shown(text)}</th>' for text in heads)
    body = "".join(
        f'<tbody><tr><th scope="rowgroup" colspan="{len(heads)}">{markup.shown(name)}</th></tr>'
        f"{''.join(_row(found, effect) for effect in of)}</tbody>"
        for name, of in groupby(effects, key=lambda effect: heading(effect, found))
    )
    return Html(
        f'<section class="table"><p class="caption">{markup.shown(caption)}'
        f'{markup.tag(found.origin)}</p><div class="scroll" tabindex="0">'
        f'<table class="matrix hosts" aria-label="{escape(caption)}"><thead><tr>{head}</tr></thead>'
        f"{body}</table></div></section>\n"
    ) + markup.paragraph(_legend(found), "key")


def _overall(found: Hosts) -> Iterator[Effect]:
    """Against the baseline; one working workload alone would say the same twice."""
    if len(counted(found.first)) > 1:
        yield from (e for e in found.overall if e.base == found.first.baseline)


def _row(found: Hosts, effect: Effect) -> str:
    cells = [cell_of(effect.by_host.get(name)) for name in found.names]
    name = markup.shown(found.first.label(effect.other))
    return f'<tr><th scope="row">{name}</th>{"".join(_cells(cells, effect))}</tr>'


def _cells(cells: Sequence[Cell], effect: Effect) -> Iterator[str]:
    for cell in [*cells, cell_of(effect.these)]:
        text = f"{cell.sign} {cell.change}".strip()
        yield (
            f'<td class="cell {escape(cell.word)}" title="{escape(cell.hint, quote=True)}">'
            f"{markup.shown(text)}</td>"
        )
    if effect.these is None:
        yield '<td class="cell"></td>'
        return
    word = effect.hosts
    told = f"p {words.p_value(effect.p_differ_holm)} that all are the same (Holm)"
    yield f'<td class="cell {CLASSES[word]}" title="{escape(told)}">{SIGNS[word]} {word}</td>'


def _legend(found: Hosts) -> str:
    margin = f"±{found.margin * 100:g} %"
    return (
        f"▲ more, ▼ less: it differs, surely. ≈ equivalent: surely within {margin}. ? not settled. "
        "The mean weighs each host the same, and is of these hosts only. Hosts ≠ differ: surely "
        f"not all the same; ≈ alike: every two of them surely within {margin} of each other; "
        "? neither is shown. “Surely”: among all of a column at most 5 % risk (Holm)."
    )
