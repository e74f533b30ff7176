"""Latencies of requests by configuration, against the base's; no verdict rests on them."""

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

    `median_ms` is over `n` blocks, `ratio` to the base configuration's in the same blocks; None for
    the base and where no block has both.
    """

    work: Work
    configuration: str
    percentile: str
    n: int
    median_ms: float
    ratio: Comparison | None


def delays(suite: Suite) -> list[Delay]:
    """Each percentile of each phase by configuration, in the order of the runs."""
    blocks = _by_block(suite)
    works = dict.fromkeys(work for work, _, _ in blocks)
    each = []
    for work, name, percentile in product(works, suite.configurations, NAMES):
        if ns := blocks.get((work, percentile, name)):
            base = blocks.get((work, percentile, suite.base_of(name) or ""), {})
            ratio = None if name == suite.baseline else compare_pairs(suite, base, ns)
            each.append(Delay(work, name, percentile, len(ns), median(ns.values()) / 1e6, ratio))
    return each


def _by_block(suite: Suite) -> dict[tuple[Work, str, str], dict[int, float]]:
    """Mean ns by (work, percentile, configuration) and block."""
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
