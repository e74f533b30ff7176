# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What disk encryption costs in joules
# The statistics of one suite, each step to be read and changed. `FDE_SUITE_DIR` names the suite's
# folder, else the newest one below `data/suites` is taken. Run it with the repository in
# `PYTHONPATH`. The report adds Holm's correction, equivalence tests and the other components.

# %%
import os
from pathlib import Path

import numpy as np
import polars as pl
from scipy import stats

import analysis
from analysis.energy.energy import of_references
from analysis.money.costs import paybacks
from analysis.suite.suite_folder import read

suites = Path(analysis.__path__[0]).parent / "data" / "suites"
named = os.environ.get("FDE_SUITE_DIR")
folder = Path(named) if named else max(suites.glob("*/plan.json"), key=os.path.getmtime).parent
suite = read(folder)
suite.suite_id

# %% [markdown]
# ## Joules by phase
# A row a run, phase and component; `origin` says whether figures are measured.

# %%
component = "system"  # of the external meter; package-0 or dram is RAPL's
energy = of_references(suite, analysis.load(folder)).filter(pl.col("component") == component)
by_phase = energy.group_by("workload", "configuration", "phase", maintain_order=True).agg(
    pl.col("energy_j").mean(), pl.col("duration_s").mean(), pl.len().alias("runs"), "origin"
)
by_phase.with_columns(pl.col("origin").list.unique())

# %% [markdown]
# ## Means with 95 % intervals
# The block is the unit: repeats within a block are averaged first. Student's t over blocks:
# mean ± t(0.975, n − 1) · s / √n.


# %%
def with_interval(frame: pl.DataFrame, values: str, *by: str) -> pl.DataFrame:
    """Mean of a column by others, and its 95 % limits; no limits for a single value."""
    x = pl.col(values)
    found = frame.group_by(*by, maintain_order=True).agg(
        pl.len().alias("n"), x.mean().alias("mean"), x.std().alias("sd")
    )
    n = found["n"].to_numpy()
    half = pl.col("sd") * pl.Series(stats.t.ppf(0.975, n - 1) / np.sqrt(n))
    return found.with_columns(low=pl.col("mean") - half, high=pl.col("mean") + half)


blocks = (
    energy.filter((pl.col("phase") == "all") & pl.col("energy_j").is_not_null())
    .group_by("workload", "configuration", "block", maintain_order=True)
    .agg(pl.col("energy_j").mean())
)
means = with_interval(blocks, "energy_j", "workload", "configuration")
means

# %% [markdown]
# ## Change against the disk without encryption
# Paired within blocks: the logarithm of the ratio in each block, its mean and interval, and back.

# %%
plain = blocks.filter(pl.col("configuration") == suite.baseline).drop("configuration")
pairs = blocks.filter(pl.col("configuration") != suite.baseline).join(
    plain, on=["workload", "block"], suffix="_plain"
)
logs = pairs.with_columns(log_ratio=(pl.col("energy_j") / pl.col("energy_j_plain")).log())
ratios = with_interval(logs, "log_ratio", "workload", "configuration").with_columns(
    pl.col("mean", "low", "high").exp()
)
ratios

# %% [markdown]
# ## Does the self-encrypting drive pay for itself?
# What a run saves beside software, in joules, and how many runs repay the drive's extra price:
# price / (J × price per kWh / 3.6 MJ). The interval holds what the meter may be off by, by the
# saving's uncertainty budget; the machine is taken to sleep once its work is done. Without a saving
# whose whole interval is above 0 there is no demonstrated payback. Where the suite has both disks
# without encryption, the report takes off what they differ by; here nothing is taken off.

# %%
money = suite.assumptions
workload = "kernel_tree"
here = (  # and what was written after the last mark
    energy.filter((pl.col("workload") == workload) & pl.col("phase").is_in(["all", "tail"]))
    .group_by("run_id", "workload", "configuration", "block", maintain_order=True)
    .agg(pl.col("energy_j").sum())
    .group_by("workload", "configuration", "block", maintain_order=True)
    .agg(pl.col("energy_j").mean())
)
sed = here.filter(pl.col("configuration") == suite.sed).drop("workload", "configuration")
saved = here.filter(pl.col("configuration").is_in(suite.software)).join(
    sed, on="block", suffix="_sed"
)
savings = with_interval(
    saved.with_columns(saving_j=pl.col("energy_j") - pl.col("energy_j_sed")),
    "saving_j",
    "configuration",
)
computed = [p for p in paybacks(suite, energy) if p.workload == workload]
asleep = [p if p.after_work == "sleep" else p.otherwise for p in computed]
half_j = {p.against: p.budget.expanded for p in asleep if p is not None}
half = pl.col("configuration").replace_strict(half_j, default=None, return_dtype=pl.Float64)
savings = savings.with_columns(low=pl.col("mean") - half, high=pl.col("mean") + half)
payback = pl.DataFrame()
if money is not None:
    price_j = money.sed_extra_price / money.electricity_price_per_kwh * 3_600_000
    payback = savings.filter(pl.col("low") > 0).select(
        "configuration",
        runs=price_j / pl.col("mean"),
        runs_low=price_j / pl.col("high"),
        runs_high=price_j / pl.col("low"),
        years_without_interest=price_j / pl.col("mean") / (money.runs_per_day * 365.25),
    )
payback
