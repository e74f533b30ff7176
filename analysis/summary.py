"""A row a workload × configuration × source × component: joules, interval, ratio, verdict."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from analysis.inference.stats import Comparison, Estimate, compare, estimate
from analysis.records import BASELINE, Suite

BlockValues = Mapping[int, float]

SUMMARY_SCHEMA: Mapping[str, pl.DataType] = {
    "suite_id": pl.String(),
    "host": pl.String(),
    "workload": pl.String(),
    "configuration": pl.String(),
    "source": pl.String(),
    "component": pl.String(),
    "n": pl.Int64(),
    "mean_j": pl.Float64(),
    "ci_low_j": pl.Float64(),
    "ci_high_j": pl.Float64(),
    "mean_s": pl.Float64(),
    "mean_w": pl.Float64(),
    "ratio": pl.Float64(),
    "ratio_low": pl.Float64(),
    "ratio_high": pl.Float64(),
    "verdict": pl.String(),
    "origin": pl.String(),
}


def block_values(
    energy: pl.DataFrame,
    workload: str,
    configuration: str,
    component: str,
    *,
    phase: str = "all",
    column: str = "energy_j",
) -> dict[int, float]:
    """Mean of `column` by block; a block without a figure is left out."""
    rows = (
        energy.filter(
            (pl.col("workload") == workload)
            & (pl.col("configuration") == configuration)
            & (pl.col("component") == component)
            & (pl.col("phase") == phase)
            & pl.col(column).is_not_null()
        )
        .group_by("block")
        .agg(pl.col(column).mean())
        .sort("block")
    )
    return {int(block): float(value) for block, value in rows.iter_rows()}


def estimate_of(values: BlockValues) -> Estimate | None:
    """Mean and interval over blocks, None where there is none."""
    return estimate(list(values.values())) if values else None


def compare_blocks(base: BlockValues, other: BlockValues, margin: float) -> Comparison | None:
    """Paired ratio over the blocks that have both."""
    both = sorted(base.keys() & other.keys())
    return compare([base[b] for b in both], [other[b] for b in both], margin)


def joint_origin(energy: pl.DataFrame) -> str:
    """`modelled` if any row is, else `measured`; what rests on both is modelled."""
    return "modelled" if (energy["origin"] == "modelled").any() else "measured"


def summarise(suite: Suite, energy: pl.DataFrame) -> pl.DataFrame:
    """The table of `SUMMARY_SCHEMA`, in the plan's order."""
    keys = ["workload", "configuration", "source", "component"]
    whole = energy.filter(pl.col("phase") == "all")
    rank = {
        "workload": {name: i for i, name in enumerate(suite.workloads)},
        "configuration": {name: i for i, name in enumerate(suite.configurations)},
    }
    groups = sorted(
        whole.partition_by(keys, as_dict=True).items(),
        key=lambda item: (
            rank["workload"].get(str(item[0][0]), 99),
            rank["configuration"].get(str(item[0][1]), 99),
            str(item[0][2]),
            str(item[0][3]),
        ),
    )
    base = {(k[0], k[2], k[3]): frame for k, frame in groups if k[1] == BASELINE}
    rows = []
    for (workload, configuration, source, component), frame in groups:
        values = _by_block(frame, "energy_j")
        mean = estimate_of(values)
        if mean is None:
            continue
        plain = base.get((workload, source, component))
        versus = None
        if configuration != BASELINE and plain is not None:
            versus = compare_blocks(_by_block(plain, "energy_j"), values, suite.margin)
        pair = frame if plain is None or versus is None else pl.concat([frame, plain])
        rows.append(
            {
                "suite_id": suite.suite_id,
                "host": suite.host,
                "workload": workload,
                "configuration": configuration,
                "source": source,
                "component": component,
                "n": mean.n,
                "mean_j": mean.mean,
                "ci_low_j": mean.low,
                "ci_high_j": mean.high,
                "mean_s": _mean(_by_block(frame, "duration_s")),
                "mean_w": _mean(_by_block(frame, "power_w")),
                "ratio": versus.ratio if versus else None,
                "ratio_low": versus.low if versus else None,
                "ratio_high": versus.high if versus else None,
                "verdict": _word(configuration, versus),
                "origin": joint_origin(pair),
            }
        )
    return pl.DataFrame(rows, schema=dict(SUMMARY_SCHEMA))


def _by_block(frame: pl.DataFrame, column: str) -> dict[int, float]:
    rows = (
        frame.filter(pl.col(column).is_not_null())
        .group_by("block")
        .agg(pl.col(column).mean())
        .sort("block")
    )
    return {int(block): float(value) for block, value in rows.iter_rows()}


def _mean(values: BlockValues) -> float | None:
    return sum(values.values()) / len(values) if values else None


def _word(configuration: str, versus: Comparison | None) -> str:
    if configuration == BASELINE:
        return ""
    return versus.verdict if versus else "inconclusive"
