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
# The answer first, then one question a section. The first line of each section's cell is yours to
# change. All figures are from the library `fde_testbed`, and so the report's. `fde notebook` opens
# this on a suite; otherwise name its folder or bundle in `FDE_SUITE_DIR`.

# %%
import os
from pathlib import Path

try:
    import matplotlib.pyplot as plt
    import numpy as np
    import polars as pl
    from fde_testbed import Suite, SuiteError
except ModuleNotFoundError as missing:
    try:
        import fde_testbed  # noqa: F401 - it finds the next

        from contract import installation

        remedy = installation.install(*installation.requirements())
    except ImportError:
        remedy = "open it with `fde notebook`, or choose a kernel of the environment that has `fde`"
    raise SystemExit(
        f"This notebook needs {missing.name}, which its kernel lacks: {remedy}."
    ) from None

pl.Config.set_tbl_rows(24)
plt.rcParams["text.parse_math"] = False  # names come from the suite's folder


def find_suite() -> Path:
    """Return the suite of FDE_SUITE_DIR, else of this folder, else the newest of data/suites."""
    if named := os.environ.get("FDE_SUITE_DIR"):
        return Path(named)
    if Path("plan.json").is_file():
        return Path()
    plans = list(Path("data", "suites").glob("*/plan.json"))
    if not plans:
        raise SystemExit("There is no suite here: name its folder in FDE_SUITE_DIR.")
    return max(plans, key=os.path.getmtime).parent


try:
    suite = Suite.open(find_suite())
except SuiteError as error:
    raise SystemExit(str(error)) from None
print(suite.id, suite.answer, sep="\n\n")

# %% [markdown]
# ## What costs how much?
# Joules of one run and the ratio to the baseline, with 95 % intervals; verdicts are the report's.

# %%
component = suite.component  # or "drive", "package-0", "dram"
costs = suite.summary.filter(component=component)
costs.select(
    *("workload", "configuration", "n", "mean_j", "ci_low_j", "ci_high_j"),
    *("ratio", "ratio_low", "ratio_high", "verdict", "mean_s", "mean_w", "origin"),
)

# %%
ratios = costs.drop_nulls(["ratio", "ratio_low"])
if ratios.height:
    change, low, high = (
        100 * (ratios[f"ratio{end}"].to_numpy() - 1) for end in ("", "_low", "_high")
    )
    _, axis = plt.subplots(figsize=(9, 0.28 * ratios.height + 1.2))
    names = [", ".join(pair) for pair in ratios.select("workload", "configuration").iter_rows()]
    axis.errorbar(change, names, xerr=[change - low, high - change], fmt="o", ms=4, capsize=3)
    axis.axvline(0, color="grey", lw=0.8)
    axis.invert_yaxis()
    axis.set(xlabel=f"change of the {component}'s joules against {suite.baseline} (%)")
    axis.set_title(f"Change with 95 % intervals ({suite.origin})", fontsize=10)
    plt.show()
else:
    print("There is nothing to compare: no block has the baseline and another configuration.")

# %% [markdown]
# ## Longer, or more power?
# Over all workloads that count: the ratio of joules is that of time multiplied by that of power.

# %%
base = suite.baseline  # or any other configuration
contrasts = suite.contrasts()
contrasts.filter(pl.any_horizontal(pl.col("base", "other").eq_missing(base))).drop("workloads")

# %% [markdown]
# ## Which phase of a workload?
# `all` is the sum of the phases; `tail` comes after them, while delayed writes reach the disk.

# %%
workload = suite.workloads[0] if suite.workloads else ""  # or any other of suite.workloads
energy = suite.energy
of_workload = energy.filter(workload=workload, component=component)
by_phase = of_workload.group_by("phase", "configuration", maintain_order=True).agg(
    pl.col("energy_j", "duration_s", "power_w").mean(), pl.len().alias("runs")
)
by_phase

# %% [markdown]
# ## What does one run look like?
# Each reading is the mean power of a window. What is missing is a gap and stays one.

# %%
finished = suite.runs.filter(state="finished")
run_id = finished["run_id"][-1] if finished.height else ""  # or any other of suite.runs
power = suite.power(run_id, around_s=3.0) if run_id else pl.DataFrame()
phases = suite.phases(run_id) if run_id else pl.DataFrame()
if power.height:
    _, axis = plt.subplots(figsize=(9, 3.4))
    for (source, name), curve in power.group_by("source", "component", maintain_order=True):
        start_s, end_s = curve["start_s"].to_numpy(), curve["end_s"].to_numpy()
        gaps = 2 * (np.flatnonzero(start_s[1:] > end_s[:-1] + 1e-6) + 1)
        seconds = np.insert(np.column_stack([start_s, end_s]).ravel(), gaps, np.nan)
        watts = np.insert(np.repeat(curve["power_w"].to_numpy(), 2), gaps, np.nan)
        axis.plot(seconds, watts, lw=0.9, label=f"{name} ({source})")
    for i, (name, _, _, begin, end) in enumerate(phases.iter_rows()):
        axis.axvspan(begin, end, color="tab:blue", alpha=0.12 if i % 2 else 0.06, lw=0)
        axis.text(begin, axis.get_ylim()[1], name, fontsize=8, rotation=30)
    axis.set(xlabel="time since the start of the run (s)", ylabel="power (W)", ylim=(0, None))
    axis.set_title(f"{run_id} ({suite.origin})", pad=38, fontsize=10)
    axis.legend(ncols=4, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.18))
    plt.show()
else:
    print("No run finished, or nothing recorded its power: there is no picture.")

# %% [markdown]
# ## How many blocks would do?
# The half width of an interval falls with √n.

# %%
half_width_percent = 1.0
half = 50 * (pl.col("ratio_high") / pl.col("ratio_low")).log()
needed = ratios.select(
    *("workload", "configuration", "n"),
    half_width_percent=half,
    blocks=(pl.col("n") * (half / half_width_percent) ** 2).ceil().clip(2),
)
needed

# %% [markdown]
# ## Does the self-encrypting drive pay for itself?
# What it saves a year instead of each software, what it may cost more, and when it is repaid. An
# empty `prices` takes the plan's assumptions; try
# `{"sed_extra_price": 10.0, "electricity_price_per_kwh": 0.42}`.

# %%
prices: dict[str, object] = {}
print(suite.assumptions)
payback = suite.payback(**prices)
payback

# %% [markdown]
# Fujimoto and others have 25 USD more for the drive and 1,000 J saved a run, at 0.12 USD a kWh:
# almost 750,000 runs, with 2 minutes each 25,000 hours, almost 3 years.

# %%
paper_runs = 25.0 / (1000.0 / 3.6e6 * 0.12)
print(f"{paper_runs:,.0f} runs, {paper_runs / 30:,.0f} hours, {paper_runs / 30 / 8766:.2f} years")

# %% [markdown]
# ## How long does a battery last?

# %%
battery_wh = suite.assumptions.battery_wh if suite.assumptions else 50.0
battery = suite.battery(battery_wh=battery_wh) if suite.assumptions else pl.DataFrame()
battery

# %%
suite.battery_hours() if suite.assumptions else pl.DataFrame()

# %% [markdown]
# ## What do the papers say?
# The ratio of each claim in the paper and here, then each printed figure with ours. Conditions that
# differ from the paper's are in `differs`; such a figure is not compared.

# %%
paper = "fujimoto"  # or any other of the column `paper`
claims = suite.claims()
claims.filter(paper=paper).select(
    *("claim", "predicate", "configuration", "against", "published"),
    *("ratio", "ratio_low", "ratio_high", "verdict", "differs"),
)

# %%
published = suite.published()
published.filter(paper=paper).select(
    *("place", "subject", "operation", "quantity", "unit", "published", "ours"),
    *("published_ratio", "ratio", "ratio_low", "ratio_high", "verdict", "differs"),
)

# %% [markdown]
# ## May I believe it?

# %%
state = "void"  # or "finished", "skipped"
print(*(suite.problems or ["Nothing limits these figures."]), sep="\n")
suite.runs.filter(state=state)

# %% [markdown]
# ## Your question
# `suite`, `costs`, `contrasts`, `energy`, `power`, `payback` and `claims` are there, as Polars
# frames; `fde_testbed.to_pandas(energy)` makes pandas of one. `docs/library.md` has all names.

# %%
