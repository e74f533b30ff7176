"""hosts.parquet and hosts.csv (columns: data/README.md): a row an effect × host, and its means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from analysis.stats.comparison import Comparison
from analysis.stats.hosts import Effect, Hosts

HOST, THESE, GENERAL = "host", "these-hosts", "hosts-in-general"
SCHEMA: Mapping[str, pl.DataType] = {
    "workload": pl.String(),
    "base": pl.String(),
    "configuration": pl.String(),
    "component": pl.String(),
    "statement": pl.String(),
    "host": pl.String(),
    "suite_id": pl.String(),
    "n": pl.Int64(),
    "ratio": pl.Float64(),
    "ratio_low": pl.Float64(),
    "ratio_high": pl.Float64(),
    "p_value": pl.Float64(),
    "p_adjusted": pl.Float64(),
    "p_equivalence": pl.Float64(),
    "p_equivalence_adjusted": pl.Float64(),
    "verdict": pl.String(),
    "p_differ": pl.Float64(),
    "p_differ_holm": pl.Float64(),
    "p_alike": pl.Float64(),
    "p_alike_holm": pl.Float64(),
    "hosts": pl.String(),
    "origin": pl.String(),
}


def table(found: Hosts) -> pl.DataFrame:
    """All statements; the tests between hosts stand in the rows of `these-hosts`."""
    rows = [row for effect in (*found.overall, *found.single) for row in _rows(found, effect)]
    return pl.DataFrame(rows, schema=dict(SCHEMA))


def _rows(found: Hosts, effect: Effect) -> Iterator[dict[str, Any]]:
    same = {
        "workload": effect.workload,
        "base": effect.base,
        "configuration": effect.other,
        "component": found.component,
        "host": "",
        "suite_id": "",
        "hosts": "",
        "origin": found.origin,
    }
    for host in found.hosts:
        if host.name in effect.by_host:
            own = {"host": host.name, "suite_id": host.suite.suite_id, "origin": host.found.origin}
            yield {**same, "statement": HOST, **own, **_of(effect.by_host[host.name])}
    if effect.these is not None:
        tests = {
            "p_differ": effect.p_differ,
            "p_differ_holm": effect.p_differ_holm,
            "p_alike": effect.p_alike,
            "p_alike_holm": effect.p_alike_holm,
            "hosts": effect.hosts,
        }
        yield {**same, "statement": THESE, **_of(effect.these), **tests}
    if effect.general is not None:
        yield {**same, "statement": GENERAL, **_of(effect.general)}


def _of(c: Comparison) -> dict[str, Any]:
    return {"n": c.n, **c.columns, "verdict": c.verdict}
