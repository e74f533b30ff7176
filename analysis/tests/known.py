"""Builders of records, plans, runs, windows and results for the tests of the analysis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl

from analysis.energy.curve import Edge
from analysis.energy.metered import Metered
from analysis.energy.windows import Windows
from analysis.stats.family import as_table, judge, summary_rows
from analysis.stats.results import Results, results
from analysis.suite.records import Run, Suite
from analysis.suite.samples import of_table
from contract.documents import Proof
from contract.plan import FORMAT, SuitePlan
from validation.synthetic.suite import Options, write_suite

Value = TypeVar("Value")


def known(value: Value | None) -> Value:
    """Return the value; a test whose figure, picture or interval is missing fails here."""
    assert value is not None
    return value


def analysed(folder: Path, options: Options | None = None, **changes: Any) -> Results:
    """Return the results of a synthetic suite that is written there."""
    write_suite(folder, replace(options or Options(), **changes))
    return results(folder)


def summarise(suite: Suite, energy: pl.DataFrame) -> pl.DataFrame:
    """Return the table of `SUMMARY_SCHEMA`."""
    return as_table(summary_rows(suite, energy, judge(suite, energy)))


def run_of(**fields: Any) -> Run:
    """Make a finished run of `plain` in block 0, with these fields."""
    usual = {
        "format": "fde-run/1",
        "status": "finished",
        "plan_sha256": 64 * "0",
        "run_id": "r",
        "block": 0,
        "configuration": "plain",
        "workload": "sql",
        "boot_id": "boot",
        "origin": "measured",
        "t_start_ns": 0,
        "proof": Proof(ok=True),
    }
    return Run(**{**usual, **fields})


def plan_of(**fields: Any) -> SuitePlan:
    """Make a plan with these fields, which names nothing else."""
    return SuitePlan(
        format=FORMAT, suite_id="s", suite="s", host="s", origin="synthetic", sha256="", **fields
    )


def replanned(suite: Suite, **changes: Any) -> Suite:
    """Return the suite as if its plan had these fields."""
    return replace(suite, plan=replace(suite.plan, **changes))


def frame_of(powers_w: Sequence[float] | np.ndarray, window_s: float) -> pl.DataFrame:
    """Make records of a meter whose windows of `window_s` have these mean powers."""
    count = len(powers_w)
    return pl.DataFrame(
        {
            "seq": range(count),
            "epoch": [1] * count,
            "t_mono_ns": [round((k + 1) * window_s * 1e9) for k in range(count)],
            "t_device_us": pl.Series([None] * count, dtype=pl.Int64),
            "window_s": [window_s] * count,
            "flags": [""] * count,
            "power_w_system": powers_w,
        }
    )


def metered_of(
    powers_w: Sequence[float] | np.ndarray,
    edges: Iterable[Edge],
    *,
    window_s: float = 1.0,
    limit_s: float = 0.0,
    **options: Any,
) -> Metered:
    """Read a polled meter whose windows have these mean powers in channel `system`."""
    samples = of_table(frame_of(powers_w, window_s))
    return Metered.from_samples(samples, "poll", limit_s, ["system"], set(edges), **options)


def windows_of(
    parts: Iterable[Sequence[float] | np.ndarray], channel: str, step_ns: int
) -> Iterator[Windows]:
    """Yield consecutive windows of one channel with these mean powers, part by part."""
    begin = 0
    for powers_w in parts:
        end_ns = (begin + 1 + np.arange(len(powers_w))) * step_ns
        ones = np.ones(len(powers_w), np.int64)
        yield Windows(end_ns - step_ns, end_ns, ones, {channel: np.array(powers_w)})
        begin += len(powers_w)
