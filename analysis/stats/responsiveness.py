"""Latencies of requests by configuration, relative to the base's; they have no verdict."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from statistics import fmean, median

from analysis.stats.comparison import Comparison
from analysis.stats.summary import compare_pairs
from analysis.suite.latencies import PERCENTILES
from analysis.suite.records import DRIFT_CHECK, Suite

NAMES = tuple(name for name, _ in PERCENTILES.values())
Work = tuple[str, str, str]  # workload, phase, way


@dataclass(frozen=True)
class Delay:
    """A percentile of a phase's latencies on a configuration.

    `median_ms` is over `n` blocks, `ratio` to the base configuration's in the same blocks: None for
    the base, or if no block has both.
    """

    work: Work
    configuration: str
    percentile: str
    n: int
    median_ms: float
    ratio: Comparison | None


def delays(suite: Suite) -> list[Delay]:
    """Return each percentile of each phase by configuration, in the order of the runs."""
    blocks = _by_block(suite)
    works = dict.fromkeys(work for work, _, _ in blocks)
    percentiles = []
    for work, name, percentile in product(works, suite.configurations, NAMES):
        if ns := blocks.get((work, percentile, name)):
            base = blocks.get((work, percentile, suite.base_of(name) or ""), {})
            ratio = None if name == suite.baseline else compare_pairs(suite, base, ns)
            median_ms = median(ns.values()) / 1e6
            percentiles.append(Delay(work, name, percentile, len(ns), median_ms, ratio))
    return percentiles


def _by_block(suite: Suite) -> dict[tuple[Work, str, str], dict[int, float]]:
    """Return the mean in ns by (work, percentile, configuration) and block."""
    values: dict[tuple[Work, str, str], dict[int, list[int]]] = {}
    for run in suite.runs:
        if run.workload == DRIFT_CHECK:
            continue
        for latency in suite.latencies.get(run.run_id, ()):
            for name, ns in latency.ns.items():
                work = run.workload, latency.phase, latency.way
                blocks = values.setdefault((work, name, run.configuration), {})
                blocks.setdefault(run.block, []).append(ns)
    return {
        key: {block: fmean(ns) for block, ns in blocks.items()} for key, blocks in values.items()
    }
