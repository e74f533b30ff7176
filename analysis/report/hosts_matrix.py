"""Workload × configuration with the hosts side by side, their mean, and whether they differ."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from analysis.report import view, words
from analysis.report.hosts_sections import heading
from analysis.report.tables import cell_of
from analysis.report.view import Blocks, Group, Matrix, MatrixCell
from analysis.stats.contrasts import counted
from analysis.stats.hosts import Effect, Hosts

SIGNS = {"differ": "≠", "alike": "≈", "inconclusive": "?"}
VERDICTS = {"differ": "differs", "alike": "equivalent", "inconclusive": "inconclusive"}


def matrix(found: Hosts) -> Blocks:
    """The table and its legend."""
    effects = [*_overall(found), *found.single]
    if not effects:
        return ()
    baseline = found.first.label(found.first.baseline or "")
    shown = Matrix(
        f"Energy of the {words.name_of(found.component)} against {baseline}, by host",
        ("Configuration", *found.names, f"Mean of {len(found.names)}", "Hosts"),
        tuple(
            Group(name, tuple((found.first.label(e.other), tuple(_cells(found, e))) for e in of))
            for name, of in groupby(effects, key=lambda effect: heading(effect, found))
        ),
        found.origin,
    )
    return (shown, *view.paragraph(_legend(found), "key"))


def _overall(found: Hosts) -> Iterator[Effect]:
    """Against the baseline; one working workload alone would say the same twice."""
    if len(counted(found.first)) > 1:
        yield from (e for e in found.overall if e.base == found.first.baseline)


def _cells(found: Hosts, effect: Effect) -> Iterator[MatrixCell]:
    for c in (*map(effect.by_host.get, found.names), effect.these):
        cell, sign = cell_of(c), words.sign(c.verdict, c.ratio, c.both) if c else ""
        yield cell._replace(text=f"{sign} {cell.text}".strip(), below="")
    if effect.these is None:
        yield MatrixCell("")
        return
    told = f"p {words.p_value(effect.p_differ_holm)} that all are the same (Holm)"
    yield MatrixCell(f"{SIGNS[effect.hosts]} {effect.hosts}", VERDICTS[effect.hosts], told)


def _legend(found: Hosts) -> str:
    margin = f"±{found.margin * 100:g} %"
    return (
        f"▲ significant increase, ▼ significant decrease. ≈ equivalent: within {margin}. "
        "? inconclusive. The mean weighs each host the same, and is of these hosts only. Hosts "
        "≠ differ: significantly not all the same; ≈ alike: every two of them within "
        f"{margin} of each other; ? inconclusive. Among all of a column at most 5 % risk (Holm)."
    )
