"""A row a workload × configuration × source × component: joules, interval, ratio, verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from analysis.stats.family import judged
from analysis.stats.planning import detectable
from analysis.stats.stats import Comparison, Estimate, compare, estimate
from analysis.suite import origin
from analysis.suite.records import CANARY, Suite

BlockValues = Mapping[int, float]
Key = tuple[str, str, str, str]
KEYS = ("workload", "configuration", "source", "component")

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
    "p_value": pl.Float64(),
    "p_holm": pl.Float64(),
    "p_equivalence": pl.Float64(),
    "p_equivalence_holm": pl.Float64(),
    "detectable": pl.Float64(),
    "verdict": pl.String(),
    "origin": pl.String(),
}


def rows_of(
    energy: pl.DataFrame, workload: str, configuration: str, component: str, phase: str
) -> pl.DataFrame:
    """The rows of one phase and component of all runs of a workload on a configuration."""
    return energy.filter(
        (pl.col("workload") == workload)
        & (pl.col("configuration") == configuration)
        & (pl.col("component") == component)
        & (pl.col("phase") == phase)
    )


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
        rows_of(energy, workload, configuration, component, phase)
        .filter(pl.col(column).is_not_null())
        .group_by("block")
        .agg(pl.col(column).mean())
        .sort("block")
    )
    return {int(block): float(value) for block, value in rows.iter_rows()}


def quotients(energy: pl.DataFrame, over: pl.Expr, under: pl.Expr) -> dict[int, float]:
    """By block, the mean over its runs of one quantity over another; without it where one lacks."""
    quotient = (over / under).alias("quotient")
    rows = (
        energy.select("block", quotient)
        .filter(pl.col("quotient").is_finite())
        .group_by("block")
        .agg(pl.col("quotient").mean())
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
    """The origin of what rests on all these rows: the worst of theirs."""
    return origin.joint(energy["origin"].unique())


@dataclass(frozen=True)
class _Group:
    """Block values of whole runs that share `KEYS`, and the origins of their joules."""

    energy_j: BlockValues
    seconds: BlockValues
    power_w: BlockValues
    origins: frozenset[str]


def summarise(suite: Suite, energy: pl.DataFrame) -> pl.DataFrame:
    """The table of `SUMMARY_SCHEMA`, in the plan's order.

    All comparisons with the baseline that share a source and a component are one family, so the
    verdicts follow from p-values adjusted over them.
    """
    groups = _groups(suite, energy)
    versus = _versus(suite, groups)
    rows = []
    for key, group in groups.items():
        mean = estimate_of(group.energy_j)
        if mean is None:
            continue
        found = versus.get(key)
        beside = frozenset() if found is None else groups[_base_of(key, suite)].origins
        rows.append(
            {
                "suite_id": suite.suite_id,
                "host": suite.host,
                **dict(zip(KEYS, key, strict=True)),
                "n": mean.n,
                "mean_j": mean.mean,
                "ci_low_j": mean.low,
                "ci_high_j": mean.high,
                "mean_s": _mean(group.seconds),
                "mean_w": _mean(group.power_w),
                **_compared(found),
                "verdict": _word(key[1] == suite.baseline, found),
                "origin": origin.joint(group.origins | beside),
            }
        )
    return pl.DataFrame(rows, schema=dict(SUMMARY_SCHEMA))


def _groups(suite: Suite, energy: pl.DataFrame) -> dict[Key, _Group]:
    """Whole runs by `KEYS`; what the plan does not name comes last."""
    rows = (
        energy.filter((pl.col("phase") == "all") & (pl.col("workload") != CANARY))
        .group_by(*KEYS, "block")
        .agg(
            pl.col("energy_j").mean(),
            pl.col("duration_s").mean(),
            pl.col("power_w").mean(),
            pl.col("origin").unique(),
        )
        .sort("block")
    )
    workload = {name: i for i, name in enumerate(suite.workloads)}
    configuration = {name: i for i, name in enumerate(suite.configurations)}

    def place(key: Key) -> tuple[int, int, str, str]:
        last = len(workload) + len(configuration)
        return workload.get(key[0], last), configuration.get(key[1], last), key[2], key[3]

    found = {_key(values): frame for values, frame in rows.partition_by(KEYS, as_dict=True).items()}
    return {key: _group(found[key]) for key in sorted(found, key=place)}


def _group(frame: pl.DataFrame) -> _Group:
    """From the rows of one group, one a block; a block without a figure is left out of it."""

    def by_block(column: str) -> dict[int, float]:
        values = zip(frame["block"], frame[column], strict=True)
        return {int(block): float(value) for block, value in values if value is not None}

    origins = frozenset(str(name) for names in frame["origin"] for name in names)
    return _Group(by_block("energy_j"), by_block("duration_s"), by_block("power_w"), origins)


def _key(values: Sequence[object]) -> Key:
    workload, configuration, source, component = (str(value) for value in values)
    return workload, configuration, source, component


def _base_of(key: Key, suite: Suite) -> Key:
    return key[0], suite.baseline or "", key[2], key[3]


def _versus(suite: Suite, groups: Mapping[Key, _Group]) -> dict[Key, Comparison]:
    """Each group against the baseline's, judged by families of one source and component."""
    alone = {
        key: found
        for key, group in groups.items()
        if (base := _base_of(key, suite)) != key
        and base in groups
        and (found := compare_blocks(groups[base].energy_j, group.energy_j, suite.margin))
    }
    judged_by_key: dict[Key, Comparison] = {}
    for family in dict.fromkeys(key[2:] for key in alone):
        members = [key for key in alone if key[2:] == family]
        judged_by_key |= zip(members, judged([alone[key] for key in members]), strict=True)
    return judged_by_key


def _compared(found: Comparison | None) -> dict[str, float | None]:
    return {
        "ratio": found.ratio if found else None,
        "ratio_low": found.low if found else None,
        "ratio_high": found.high if found else None,
        "p_value": found.p_value if found else None,
        "p_holm": found.p_holm if found else None,
        "p_equivalence": found.p_equivalence if found else None,
        "p_equivalence_holm": found.p_equivalence_holm if found else None,
        "detectable": detectable(found.sd_log, found.n) if found else None,
    }


def _mean(values: BlockValues) -> float | None:
    return sum(values.values()) / len(values) if values else None


def _word(baseline: bool, versus: Comparison | None) -> str:
    if baseline:
        return ""
    return versus.verdict if versus else "inconclusive"
