"""Latencies of requests by configuration, against the base's; no verdict rests on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from statistics import fmean, median

import polars as pl

from analysis.stats.comparison import Comparison
from analysis.stats.summary import BlockValues, block_means, compare_in_blocks, compare_pairs
from analysis.suite.latencies import PERCENTILES
from analysis.suite.records import DRIFT_CHECK, Suite

NAMES = tuple(name for name, _ in PERCENTILES.values())
TAIL_LATENCY = "p99"
Work = tuple[str, str, str]  # workload, phase, way


@dataclass(frozen=True)
class Delay:
    """A percentile of a phase's latencies on a configuration.

    `median_ms` is over blocks, `ratio` to the base configuration's in the same blocks; None for
    the base and where no block has both.
    """

    work: Work
    configuration: str
    percentile: str
    n: int
    median_ms: float
    ratio: Comparison | None


@dataclass(frozen=True)
class Overall:
    """A configuration against its base: the geometric means over all phases that both have.

    `joules` are those of a byte, in the phases that have `TAIL_LATENCY`.
    """

    configuration: str
    latency: Mapping[str, Comparison]
    joules: Comparison | None


Blocks = Mapping[tuple[Work, str, str], BlockValues]


def by_block(suite: Suite) -> dict[tuple[Work, str, str], dict[int, float]]:
    """Mean ns by (work, percentile, configuration) and block, in the order of the plan."""
    values: dict[tuple[Work, str, str], dict[int, list[int]]] = {}
    for run in suite.runs:
        if run.workload == DRIFT_CHECK:
            continue
        for latency in suite.latencies.get(run.run_id, ()):
            for name, ns in latency.ns.items():
                work = run.workload, latency.phase, latency.way
                of_blocks = values.setdefault((work, name, run.configuration), {})
                of_blocks.setdefault(run.block, []).append(ns)
    return {
        key: {block: fmean(ns) for block, ns in of_blocks.items()}
        for key, of_blocks in values.items()
    }


def works(blocks: Blocks) -> list[Work]:
    """Return all phases with latencies, in the order in which they were run."""
    return list(dict.fromkeys(work for work, _, _ in blocks))


def delays(suite: Suite) -> list[Delay]:
    """Each percentile of each phase by configuration."""
    blocks, each = by_block(suite), []
    for work, name, percentile in product(works(blocks), suite.configurations, NAMES):
        if ns := blocks.get((work, percentile, name)):
            base = blocks.get((work, percentile, suite.base_of(name) or ""), {})
            ratio = None if name == suite.baseline else compare_pairs(suite, base, ns)
            each.append(Delay(work, name, percentile, len(ns), median(ns.values()) / 1e6, ratio))
    return each


def overall(suite: Suite, energy: pl.DataFrame, component: str) -> Iterator[Overall]:
    """Each configuration but the baseline, over all phases."""
    blocks = by_block(suite)
    for name in suite.configurations:
        base = suite.base_of(name)
        if base is None or name == suite.baseline:
            continue
        pair, latency = (base, name), {}
        for percentile in NAMES:
            shared = _shared(blocks, pair, percentile)
            delays = [[blocks[work, percentile, side] for side in pair] for work in shared]
            if ratio := compare_in_blocks(suite, delays):
                latency[percentile] = ratio
        if TAIL_LATENCY in latency:
            shared = _shared(blocks, pair, TAIL_LATENCY)
            sides = [[_joules(energy, work, side, component) for side in pair] for work in shared]
            yield Overall(name, latency, compare_in_blocks(suite, sides))


def _shared(blocks: Blocks, pair: tuple[str, str], percentile: str) -> list[Work]:
    return [w for w in works(blocks) if all((w, percentile, side) in blocks for side in pair)]


def _joules(energy: pl.DataFrame, work: Work, configuration: str, component: str) -> BlockValues:
    """Joules of a byte in one phase, by block."""
    workload, phase, _ = work
    rows = energy.filter(
        pl.col("bytes") > 0,
        workload=workload,
        phase=phase,
        configuration=configuration,
        component=component,
    )
    return block_means(rows, pl.col("energy_j") / pl.col("bytes"))
