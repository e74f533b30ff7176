"""Published figures beside those of a suite, for every paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from analysis import origin
from analysis.inference.stats import Comparison, Estimate
from analysis.published.reference import Published, configurations
from analysis.records import SYSTEM, Suite
from analysis.summary import block_values, compare_blocks, estimate_of

# Quantity of a paper -> column of the energy table; unit of a paper -> how many of that column's.
COLUMNS = {"energy": "energy_j", "time": "duration_s", "power": "power_w"}
SCALES = {"J": 1.0, "s": 1.0, "ms": 1e-3, "min": 60.0, "W": 1.0}


@dataclass(frozen=True)
class Beside:
    """A published figure and ours, in the paper's unit.

    `configuration` is the suite's name of the same storage stack. The ratios are to the baseline,
    the paper's to the paper's own; both are None on the baseline itself. Sizes and machines
    differ, so only the ratios can be compared.
    """

    published: Published
    configuration: str
    is_baseline: bool
    published_ratio: float | None
    measured: Estimate | None
    measured_ratio: Comparison | None
    origin: str


def beside(suite: Suite, energy: pl.DataFrame, figures: Sequence[Published]) -> list[Beside]:
    """Those of `figures` whose workload, phase, configuration and quantity the suite has, too."""
    bases = {_group(p): p.value for p in figures if _kind(p) == "plain"}
    phases = set(energy.select("workload", "phase").unique().iter_rows())
    rows = []
    for figure in figures:
        here = configuration_here(suite, figure.configuration)
        known = figure.quantity in COLUMNS and figure.unit in SCALES
        if here is None or not known or (figure.workload, figure.phase) not in phases:
            continue
        rows.append(_beside(suite, energy, figure, here, bases.get(_group(figure))))
    return rows


def configuration_here(suite: Suite, name: str) -> str | None:
    """The suite's configuration that is the same as `name` of the reference tables, or None.

    One of the same name goes before others of the same kind, cipher and key.
    """
    wanted = configurations().get(name)
    if wanted is None:
        return None
    if wanted.kind == "plain":
        return suite.baseline
    alike = [
        str(entry.get("name"))
        for entry in _entries(suite)
        if entry.get("kind") == wanted.kind
        and (not wanted.cipher or str(entry.get("cipher") or "").split("-")[0] == wanted.cipher)
        and (not wanted.key_bits or entry.get("key_bits") == wanted.key_bits)
    ]
    return name if name in alike else next(iter(alike), None)


def _entries(suite: Suite) -> list[Mapping[str, Any]]:
    given = suite.plan.get("configurations")
    return [e for e in given if isinstance(e, Mapping)] if isinstance(given, list) else []


def _kind(figure: Published) -> str:
    known = configurations().get(figure.configuration)
    return known.kind if known else ""


def _group(p: Published) -> tuple[object, ...]:
    """What a figure shares with those of the other configurations."""
    return (p.paper, p.entry, p.workload, p.phase, p.quantity, p.unit, p.size_bytes, p.block_bytes)


def _beside(
    suite: Suite, energy: pl.DataFrame, figure: Published, here: str, base_value: float | None
) -> Beside:
    own = _own(energy, figure, here)
    is_baseline = here == suite.baseline
    base = {} if is_baseline else _own(energy, figure, suite.baseline or "")
    measured = estimate_of(own)
    return Beside(
        published=figure,
        configuration=here,
        is_baseline=is_baseline,
        published_ratio=None if is_baseline or not base_value else figure.value / base_value,
        measured=measured.scaled(1 / SCALES[figure.unit]) if measured else None,
        measured_ratio=None if is_baseline else compare_blocks(base, own, suite.margin),
        origin=_origin(energy, figure),
    )


def _origin(energy: pl.DataFrame, figure: Published) -> str:
    """Durations are measured even where joules are modelled, but not where no machine ran."""
    rows = energy.filter(pl.col("workload") == figure.workload)
    if COLUMNS[figure.quantity] != "duration_s":
        rows = rows.filter(pl.col("component") == SYSTEM)
        return origin.joint(rows["origin"].unique())
    there = set(rows["origin"].unique())
    return origin.SYNTHETIC if origin.SYNTHETIC in there else origin.MEASURED


def _own(energy: pl.DataFrame, figure: Published, configuration: str) -> dict[int, float]:
    column = COLUMNS[figure.quantity]
    # A duration is the same for every component, so that any of them will do.
    there = energy["component"].unique().sort().to_list()
    component = SYSTEM if SYSTEM in there or column != "duration_s" or not there else there[0]
    return block_values(
        energy, figure.workload, configuration, component, phase=figure.phase, column=column
    )
