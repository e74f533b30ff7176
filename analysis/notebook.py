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
# One suite from its raw readings to its payback, each step in NumPy, SciPy and Polars, to be read
# and changed. Steps that the report takes as well end with a comparison: how many figures differ
# from the report's. It uses nothing of the testbed but its library, `fde_testbed`. `fde notebook`
# opens it on a suite; the folder is the one that `FDE_SUITE_DIR` names, else the one in which this
# notebook lies, else the newest in `data/suites`.

# %%
import json
import os
from pathlib import Path

try:
    import matplotlib.pyplot as plt
    import numpy as np
    import polars as pl
    from fde_testbed import Suite, SuiteError
    from scipy import stats
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
    """Return the folder of the suite that is meant."""
    if named := os.environ.get("FDE_SUITE_DIR"):
        return Path(named)
    if Path("plan.json").is_file():
        return Path()
    plans = list(Path("data", "suites").glob("*/plan.json"))
    if not plans:
        raise SystemExit("There is no suite here: name its folder in FDE_SUITE_DIR.")
    return max(plans, key=os.path.getmtime).parent


folder = find_suite()
try:
    suite = Suite.open(folder)
except SuiteError as error:
    raise SystemExit(str(error)) from None
plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
print(f"{suite.id}: its figures are {suite.origin}.", *suite.problems, sep="\n- ")


# %%
def compare(title: str, ours: pl.DataFrame, theirs: pl.DataFrame, *keys: str) -> int:
    """Print how many figures of two tables differ by more than rounding; join them by `keys`."""
    joined = ours.join(theirs, on=list(keys), suffix="_report", nulls_equal=True)
    names = [n for n in ours.columns if n not in keys and f"{n}_report" in joined.columns]
    pairs = [(a, b) for n in names for a, b in joined.select(n, f"{n}_report").iter_rows()]
    figures = [(a, b) for a, b in pairs if a is not None or b is not None]
    wrong = sum(
        a is None or b is None or abs(a - b) > 1e-9 * max(abs(a), abs(b)) for a, b in figures
    )
    lacking = max(ours.height, theirs.height) - joined.height
    print(
        f"{title}: {wrong + lacking} of {len(figures) + lacking} figures differ from the report's."
    )
    return int(wrong + lacking)


def label_of(origin: str) -> str:
    """Return what a picture of figures that were not measured must state."""
    return "" if origin == "measured" else f" ({origin})"


differing: dict[str, int] = {}  # what was compared, and how many figures differ

# %% [markdown]
# ## The suite as tables
# A run is one workload on one configuration, once; a block has every configuration once.

# %%
runs = suite.runs
runs

# %%
runs.group_by("workload", "configuration", "state").len().sort("workload", "configuration")

# %% [markdown]
# The joules: a row a run, phase and component. `all` is the sum of the phases, `tail` the rest
# after the last of them, in which delayed writes reach the disk. `origin` says whether a figure is
# measured.

# %%
energy = suite.energy
energy.select(
    *("run_id", "phase", "component", "duration_s", "energy_j", "energy_u95_j"),
    *("coverage", "flags", "origin"),
)

# %%
component = suite.component  # the whole system where a meter saw it: try "drive" or "package-0"
of_component = energy.filter(pl.col("component") == component)
by_phase = of_component.group_by("workload", "configuration", "phase", maintain_order=True).agg(
    pl.col("energy_j").mean(),
    pl.col("duration_s").mean(),
    pl.len().alias("runs"),
    pl.col("origin").unique(),
)
by_phase

# %% [markdown]
# ## Raw power around one run
# Each reading is the mean power of a window. What is missing is a gap and stays one.

# %%
finished = runs.filter((pl.col("state") == "finished") & (pl.col("workload") != "drift_check"))
run_id = finished["run_id"][0] if finished.height else ""  # or any other of `runs`
around_s = 3.0
power = suite.power(run_id, around_s) if run_id else pl.DataFrame()
phases = suite.phases(run_id) if run_id else pl.DataFrame()
phases

# %%
if run_id and power.height:
    figure, axis = plt.subplots(figsize=(9, 3.4))
    for (source, name), curve in power.group_by("source", "component", maintain_order=True):
        start_s, end_s = curve["start_s"].to_numpy(), curve["end_s"].to_numpy()
        gaps = np.flatnonzero(start_s[1:] > end_s[:-1] + 1e-6) + 1
        seconds_of = np.insert(np.column_stack([start_s, end_s]).ravel(), 2 * gaps, np.nan)
        watts_of = np.insert(np.repeat(curve["power_w"].to_numpy(), 2), 2 * gaps, np.nan)
        axis.plot(seconds_of, watts_of, lw=0.9, label=f"{name} ({source})")
    for i, (name, _, _, begin, end) in enumerate(phases.iter_rows()):
        axis.axvspan(begin, end, color="tab:blue", alpha=0.12 if i % 2 else 0.06, lw=0)
        axis.text(
            *((begin + end) / 2, 1.01 + 0.06 * (i % 3), name),
            transform=axis.get_xaxis_transform(),
            ha="center",
            fontsize=8,
        )
    axis.set(xlabel="time since the start of the run (s)", ylabel="power (W)", ylim=(0, None))
    axis.set_title(f"{run_id}{label_of(suite.origin)}", pad=38, fontsize=10)
    axis.legend(ncols=4, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.18))
    plt.show()
else:
    print("No run finished, or nothing recorded its power: there is no picture.")

# %% [markdown]
# How much the power scatters within each phase, by the windows that lie in it whole.

# %%
if run_id and power.height:
    inside = power.join(phases, how="cross", suffix="_phase").filter(
        (pl.col("start_s") >= pl.col("start_s_phase")) & (pl.col("end_s") <= pl.col("end_s_phase"))
    )
    scatter = inside.group_by("phase", "component", maintain_order=True).agg(
        pl.len().alias("windows"),
        pl.col("power_w").mean().alias("mean_w"),
        pl.col("power_w").std().alias("sd_w"),
        pl.col("power_w").max().alias("max_w"),
    )
else:
    scatter = pl.DataFrame()
scatter

# %% [markdown]
# ## Joules of a phase from RAPL: the difference of a counter
# The processor counts its own energy in µJ and starts again at 2³² units. The unit u follows from
# the range that the kernel states, max = ⌊(2³² − 1) · u⌋. So
#
# E = (c₂ − c₁) mod 2³² u,
#
# with c₁ and c₂ read at the edges of the phase. They stand in `run.json` as they were read.

# %%
document = json.loads((folder / "runs" / run_id / "run.json").read_text()) if run_id else {}
edges_of_counters = pl.DataFrame(
    [
        (
            *(phase["name"], counter["zone"], (counter["start"] or {}).get("energy_uj")),
            *((counter["end"] or {}).get("energy_uj"), counter["max_range_uj"]),
        )
        for phase in document.get("phases", [])
        for counter in phase.get("counters") or []
    ],
    schema={"phase": pl.String, "component": pl.String}
    | dict.fromkeys(("start_uj", "end_uj", "max_uj"), pl.Int64),
    orient="row",
).unique(["phase", "component"], keep="first", maintain_order=True)  # the first source of a zone
edges_of_counters

# %%
unit_nj = -(-pl.col("max_uj") * 1000 // (2**32 - 1))  # rounded up
in_units = unit_nj * (2**32 - 1) // 1000 == pl.col("max_uj")  # else it is no counter of 32 bits
modulus_uj = pl.when(in_units).then((unit_nj * 2**32 + 500) // 1000).otherwise(pl.col("max_uj") + 1)
counted_uj = pl.col("end_uj") - pl.col("start_uj")
by_counter = edges_of_counters.with_columns(
    energy_j=pl.when(counted_uj < 0).then(counted_uj + modulus_uj).otherwise(counted_uj) / 1e6
)
by_counter

# %%
from_rapl = energy.filter((pl.col("run_id") == run_id) & (pl.col("source") == "rapl"))
plain_rapl = from_rapl.filter(~pl.col("flags").str.contains("double-wrap|beyond|failed|reopened"))
print(f"{from_rapl.height - plain_rapl.height} rows that need the samples between are left out.")
ours = by_counter.select("phase", "component", "energy_j").drop_nulls()
reported = plain_rapl.select("phase", "component", "energy_j").drop_nulls()
print(f"{plain_rapl.height - reported.height} rows have no joules in the report: see their flags.")
reported = reported.join(ours, on=["phase", "component"], how="semi")
ours = ours.join(reported, on=["phase", "component"], how="semi")
differing["rapl"] = compare("Joules by RAPL", ours, reported, "phase", "component")

# %% [markdown]
# ## Joules of a phase from a meter: the overlap of its windows
# A meter gives mean powers Pᵢ of windows [aᵢ, bᵢ). In a phase from t₁ to t₂ lies
#
# E = Σ Pᵢ · max(0, min(bᵢ, t₂) − max(aᵢ, t₁)).
#
# A window that an edge cuts is shared by time here, as if its power were even. It is not: the load
# steps at the edge. The report corrects each edge by the windows and the rests beside it
# (docs/metrology.md), so that its figure differs by a part of one window.

# %%
meters = [json.loads(path.read_text()) for path in sorted(folder.glob("meters/*/meter.json"))]
channels = [(m["name"], channel) for m in meters for channel in m["channels"].values()]
ordered = sorted(channels, key=lambda of: of[1] != component)  # the component first
meter, channel = ordered[0] if ordered and run_id else ("", "")
of_meter = suite.power(run_id, 60.0) if meter else pl.DataFrame(schema=power.schema)
if meter:
    of_meter = of_meter.filter((pl.col("source") == meter) & (pl.col("component") == channel))
else:
    print("There is no meter, or no run: nothing to integrate.")
of_meter

# %%
placed = phases.drop_nulls() if phases.height else pl.DataFrame()
by_overlap = pl.DataFrame(
    [
        (name, float(seconds @ of_meter["power_w"].to_numpy()), float(seconds.sum()))
        for name, start, end, *_ in (placed.iter_rows() if of_meter.height else ())
        for begin, until in [(of_meter["start_ns"].to_numpy(), of_meter["end_ns"].to_numpy())]
        for seconds in [np.clip(np.minimum(until, end) - np.maximum(begin, start), 0, None) / 1e9]
    ],
    schema={"phase": pl.String} | dict.fromkeys(("share_j", "covered_s"), pl.Float64),
    orient="row",
)
of_report = energy.filter((pl.col("run_id") == run_id) & (pl.col("source") == meter))
of_report = of_report.filter(pl.col("component") == channel)
by_overlap.join(
    of_report.select("phase", "energy_j", "energy_u95_j", "flags"), on="phase"
).with_columns(difference_percent=100 * (pl.col("share_j") / pl.col("energy_j") - 1))

# %% [markdown]
# ## Means with 95 % intervals
# The block is the unit of repetition: repeats within a block are averaged first. Over n blocks the
# interval is Student's, mean ± t(0.975, n − 1) · s / √n. The report's is wider: it holds the
# meter's own error as well.


# %%
def with_interval(frame: pl.DataFrame, values: str, *by: str) -> pl.DataFrame:
    """Mean of a column by others, its standard error and 95 % limits: null for too few."""
    means = frame.group_by(*by, maintain_order=True).agg(
        pl.len().alias("n"), pl.col(values).mean().alias("mean"), pl.col(values).std().alias("sd")
    )
    n = means["n"].to_numpy().astype(float)
    factor = stats.t.ppf(0.975, np.maximum(n - 1, 1))  # one value has no deviation, and no limits
    half = pl.col("sd") * pl.Series(factor / np.sqrt(n))
    return means.with_columns(low=pl.col("mean") - half, high=pl.col("mean") + half)


# Phases that ended by time are taken for the same work; without any it is `energy` itself.
compared = suite.compared_energy
blocks = (
    compared.filter(
        (pl.col("component") == component)
        & (pl.col("phase") == "all")
        & pl.col("energy_j").is_not_null()
    )
    .filter(pl.col("workload") != "drift_check")
    .group_by("workload", "configuration", "block", maintain_order=True)
    .agg(pl.col("energy_j").mean())
)
means = with_interval(blocks, "energy_j", "workload", "configuration")
means

# %%
summary = suite.summary.filter(pl.col("component") == component)
reported = summary.select("workload", "configuration", "n", mean="mean_j")
ours = means.select(reported.columns)
differing["means"] = compare("Means", ours, reported, "workload", "configuration")

# %%
if means.height:
    figure, axis = plt.subplots(figsize=(9, 0.28 * means.height + 1.2))
    names = [f"{w}, {c}" for w, c in means.select("workload", "configuration").iter_rows()]
    half = (means["high"] - means["mean"]).fill_null(0.0).to_numpy()
    axis.barh(names, means["mean"], xerr=half, color="tab:blue", alpha=0.6, capsize=2)
    axis.invert_yaxis()
    axis.set(xlabel=f"joules of a run, {component}: mean and 95 % interval")
    axis.set_title(f"Energy of a run{label_of(suite.origin)}", fontsize=10)
    plt.show()

# %% [markdown]
# ## Change against the baseline
# Paired within blocks, so that what all runs of a block share (the room, the machine's warmth)
# cancels: dᵢ = ln(Eᵢ / Eᵢ,₀) in block i, their mean and interval, and back, exp(d̄ ± t s / √n).

# %%
baseline = suite.baseline or ""
base = blocks.filter(pl.col("configuration") == baseline).drop("configuration")
pairs = blocks.filter((pl.col("configuration") != baseline) & (pl.col("energy_j") > 0)).join(
    base.filter(pl.col("energy_j") > 0), on=["workload", "block"], suffix="_base"
)
logs = pairs.with_columns(log_ratio=(pl.col("energy_j") / pl.col("energy_j_base")).log())
logs.sort("workload", "configuration", "block")

# %%
ratios = with_interval(logs, "log_ratio", "workload", "configuration")
ratios = ratios.with_columns(pl.col("mean", "low", "high").exp())
ratios

# %% [markdown]
# Where a run is missing, its block has no pair. The report still uses such a block, by the other
# configurations in it, and its interval holds what does not cancel of the meter's error: only the
# ratios of workloads that lack no run are compared.

# %%
planned = blocks.group_by("workload").agg(pl.col("block").n_unique().alias("all_blocks"))
complete = (
    blocks.group_by("workload", "configuration")
    .agg(pl.len().alias("n"))
    .join(planned, on="workload")
    .group_by("workload")
    .agg((pl.col("n") == pl.col("all_blocks")).all().alias("complete"))
    .filter("complete")
)
without_gaps = ratios.join(complete, on="workload", how="semi")
print(f"{ratios.height - without_gaps.height} ratios of workloads that lack runs are left out.")
reported = summary.filter(pl.col("ratio").is_not_null()).join(complete, on="workload", how="semi")
reported = reported.select("workload", "configuration", mean="ratio")
ours = without_gaps.select(reported.columns)
differing["ratios"] = compare("Ratios", ours, reported, "workload", "configuration")

# %%
margin = (plan.get("analysis") or {}).get(
    "margin", 0.02
)  # the change that is declared to be too small to matter
if ratios.height:
    figure, axis = plt.subplots(figsize=(9, 0.28 * ratios.height + 1.2))
    names = [f"{w}, {c}" for w, c in ratios.select("workload", "configuration").iter_rows()]
    change = 100 * (ratios["mean"].to_numpy() - 1)
    ends = [
        np.nan_to_num(100 * (ratios[e].fill_null(np.nan).to_numpy() - 1) - change)
        for e in ("low", "high")
    ]
    axis.axvspan(100 / (1 + margin) - 100, 100 * margin, color="tab:green", alpha=0.12, lw=0)
    axis.axvline(0, color="grey", lw=0.8)
    axis.errorbar(change, names, xerr=np.abs(ends), fmt="o", ms=4, capsize=3)
    axis.invert_yaxis()
    axis.set(xlabel=f"change of the joules against {baseline} (%); shaded: the declared margin")
    axis.set_title(f"Change with 95 % intervals{label_of(suite.origin)}", fontsize=10)
    plt.show()
else:
    print("There is nothing to compare: no block has the baseline and another configuration.")

# %% [markdown]
# ## Different, or equivalent?
# The verdict follows from the interval: *equivalent* if it lies within 1/(1 + m) … 1 + m, with the
# margin m, over six blocks at least; *differs* if it excludes 1; else *inconclusive*, which is not
# "no difference". All verdicts of a page are one family with at most 5 % for any false one: `level`
# is the part of the 5 % that is left for a row (docs/verdicts.md). The report's interval also holds
# the meter's error and what rare events may add.


# %%
def limits_at(log_ratios: np.ndarray, level: float) -> tuple[float, float]:
    """Return the limits of the ratio that miss it with probability `level`."""
    low, high = stats.t.interval(
        1 - level, len(log_ratios) - 1, np.mean(log_ratios), stats.sem(log_ratios)
    )
    return float(np.exp(low)), float(np.exp(high))


levels = {
    (row["workload"], row["configuration"]): row["level"]
    for row in summary.drop_nulls("level").iter_rows(named=True)
}
decided = pl.DataFrame(
    [
        (*key, levels[key], *limits_at(frame["log_ratio"].to_numpy(), levels[key]))
        for key, frame in logs.group_by("workload", "configuration", maintain_order=True)
        if key in levels and len(frame) > 1
    ],
    schema={"workload": pl.String, "configuration": pl.String}
    | dict.fromkeys(("level", "low", "high"), pl.Float64),
    orient="row",
)
decided.join(
    summary.select("workload", "configuration", "ratio_low", "ratio_high", "verdict", "doubts"),
    on=["workload", "configuration"],
)

# %% [markdown]
# ## How many blocks would do
# The half width of an interval falls with √n: for a half width h, n ≈ (t · s / h)². Set h.

# %%
wanted_percent = 1.0
sd_percent = with_interval(logs, "log_ratio", "workload", "configuration").select(
    "workload", "configuration", "n", sd_percent=100 * pl.col("sd")
)
sd_percent.with_columns(blocks=((1.96 * pl.col("sd_percent") / wanted_percent) ** 2).ceil().clip(2))

# %% [markdown]
# ## What the blocks have in common
# Their effects, as a change in %. A trend is drift of the machine.

# %%
effects = (
    blocks.filter(pl.col("energy_j") > 0)
    .with_columns(log_j=pl.col("energy_j").log())
    .with_columns(left=pl.col("log_j") - pl.col("log_j").mean().over("workload", "configuration"))
    .group_by("block")
    .agg(percent=100 * pl.col("left").mean(), runs=pl.len())
    .sort("block")
)
if effects.height > 2:
    trend = stats.linregress(effects["block"].to_numpy(), effects["percent"].to_numpy())
    print(f"Trend: {trend.slope:+.3f} % a block, p = {trend.pvalue:.2g}")
effects

# %% [markdown]
# ## All workloads at once: the declared contrasts
# The geometric mean over the workloads that do something, within blocks; the same test, as the
# questions that the suite declared before its first run. The ratio of energy is that of time
# multiplied by that of mean power: does it cost more because it lasts longer, or because it draws
# more power?

# %%
contrasts = suite.contrasts().drop("workloads")
parts = contrasts.select("ratio", product=pl.col("time") * pl.col("power"))
print("Energy less time × power:", (parts["ratio"] - parts["product"]).abs().max())
contrasts

# %% [markdown]
# ## Does the self-encrypting drive pay for itself?
# What a run saves beside encryption in software, tail included, block by block. If no
# self-encrypting drive was measured, the disk without encryption stands for it. The report takes
# off what the two disks differ by without encryption, where the suite has both; for a machine that
# idles after its work, also the power at rest in the time that is saved. So it may differ.

# %%
assumed = suite.assumptions
table = suite.payback().filter(pl.col("workload") != "profile")
paid = table.sort(pl.col("workload") != "kernel_tree", maintain_order=True)["workload"]
workload = paid[0] if len(paid) else ""  # or any other of `suite.workloads`
if assumed is None or not workload:
    print("No payback: the plan lacks assumptions, or software to compare with.")
else:
    print(assumed)

# %%
# One value a block of each configuration: joules with the tail, and without.
saved_of = table["component"][0] if len(table) else "system"
system = compared.filter((pl.col("component") == saved_of) & pl.col("energy_j").is_not_null())
tails = system.filter(pl.col("phase") == "tail").select("run_id", tail_j="energy_j")
with_tails = (
    system.filter(pl.col("phase") == "all")
    .join(tails, on="run_id", how="left")
    .with_columns(total_j=pl.col("energy_j") + pl.col("tail_j").fill_null(0.0))
    .group_by("workload", "configuration", "block")
    .agg(pl.col("total_j", "energy_j").mean())
    .sort("block")
)
sed = table["drive"][0] if len(table) else ""
of_workload = with_tails.filter(pl.col("workload") == workload)
of_sed = of_workload.filter(pl.col("configuration") == sed).select("block", sed_j="total_j")
per_block = (
    of_workload.filter(pl.col("configuration") != sed)
    .join(of_sed, on="block")
    .select("configuration", "block", saving_j=pl.col("total_j") - pl.col("sed_j"))
)
with_interval(per_block, "saving_j", "configuration").join(
    table.filter(pl.col("workload") == workload).select(
        "against", "saving_j", "saving_j_low", "saving_j_high", "after_work"
    ),
    left_on="configuration",
    right_on="against",
)

# %% [markdown]
# With the price P of the drive, c of a kWh, S = 365.25 · (runs a day) · E c / 3.6 MJ saved a year,
# the interest r and the life L:
#
# runs = P / (E c / 3.6 MJ), years = −ln(1 − r P / S) / ln(1 + r),
# worth = S (1 − (1 + r)^−L) / r − P.
#
# No time is named unless the whole interval of the saving lies above 0. From here on the savings
# are the report's, with their intervals.


# %%
def payback(
    saving_j: float, price: float, per_kwh: float, *, interest: float, a_day: float, life: float
) -> tuple[float, float, float]:
    """Return runs and years until the drive is repaid, and its worth today; NaN where never."""
    a_run = saving_j * per_kwh / 3.6e6
    a_year = 365.25 * a_day * a_run
    annuity = life if interest == 0 else (1 - (1 + interest) ** -life) / interest
    worth = a_year * annuity - price
    if saving_j <= 0:
        return np.nan, np.nan, worth
    years = price / a_year
    if interest > 0:
        share = 1 - interest * price / a_year
        years = -np.log(share) / np.log1p(interest) if share > 0 else np.nan
    return price / a_run, float(years), worth


savings = table.filter(pl.col("workload") == workload).select(
    "against", "saving_j", "saving_j_low", "saving_j_high"
)


def paid_back(
    price: float, per_kwh: float, *, interest: float, a_day: float, life: float
) -> pl.DataFrame:
    """Return the payback of every saving with its interval, under these assumptions."""
    rows: list[dict[str, object]] = []
    for against, *of_saving in savings.iter_rows():
        ends = [
            payback(
                *(np.nan if joules_saved is None else joules_saved, price, per_kwh),
                interest=interest,
                a_day=a_day,
                life=life,
            )
            for joules_saved in of_saving
        ]
        (runs_, years, worth), low, high = ends  # what falls with the saving swaps its limits
        if of_saving[1] is None or of_saving[1] <= 0:
            never = (np.nan, np.nan)  # no saving is shown
            (runs_, years), low, high = never, (*never, low[2]), (*never, high[2])
        rows.append(
            {"against": against, "runs": runs_, "runs_low": high[0], "runs_high": low[0]}
            | {"years": years, "years_low": high[1], "years_high": low[1]}
            | {"net_present_value": worth, "net_present_value_low": low[2]}
            | {"net_present_value_high": high[2]}
        )
    return pl.DataFrame(rows, schema_overrides={"against": pl.String}).fill_nan(None)


declared = (
    {}
    if assumed is None
    else {
        "price": assumed.sed_extra_price,
        "per_kwh": assumed.electricity_price_per_kwh,
        "interest": assumed.discount_rate,
        "a_day": assumed.runs_per_day,
        "life": assumed.life_years,
    }
)
payback_table = paid_back(**declared) if declared and savings.height else savings.select("against")
payback_table

# %%
names = [n for n in payback_table.columns if n != "against"]
reported = table.filter(pl.col("workload") == workload).select("against", *names)
reported = reported.join(payback_table, on="against", how="semi")
differing["payback"] = compare("Payback", payback_table, reported, "against")


# %% [markdown]
# ### Other prices, interest and duty
# Net saving over the years, in today's money: S (1 − (1 + r)^−t) / r − P. Move the sliders; without
# a front end there is the picture of what the plan assumes.


# %%
def draw_payback(
    price: float, per_kwh: float, *, interest: float, a_day: float, life: float
) -> None:
    """Table and picture of the payback under these assumptions."""
    moved = paid_back(price, per_kwh, interest=interest, a_day=a_day, life=life)
    shown[:] = moved.rows(named=True)
    t = np.linspace(0, 2 * life, 200)
    worth = t if interest == 0 else (1 - (1 + interest) ** -t) / interest
    _, axis = plt.subplots(figsize=(8, 3))
    for i, (against, *limits) in enumerate(savings.iter_rows()):
        per_year = [
            np.nan if j is None else 365.25 * a_day * j * per_kwh / 3.6e6 * worth - price
            for j in limits
        ]
        colour = f"C{i}"
        axis.plot(t, per_year[0], color=colour, label=f"instead of {against}")
        if limits[1] is not None:
            axis.fill_between(t, per_year[1], per_year[2], color=colour, alpha=0.15, lw=0)
    axis.axhline(0, color="grey", lw=0.8)
    axis.axvline(life, color="grey", lw=0.8, ls=":")
    currency = "" if assumed is None else assumed.currency
    axis.set(xlabel="years; dotted: the drive's life", ylabel=f"net saving ({currency})")
    axis.set_title(f"Payback of {workload}{label_of(suite.origin)}", fontsize=10)
    axis.legend(fontsize=8)
    plt.show()
    for against, runs_, years, worth_now in moved.select(
        *("against", "runs", "years", "net_present_value")
    ).iter_rows():
        repaid = "no payback" if years is None else f"repaid after {years:.3g} years"
        often = "" if runs_ is None else f" ({runs_:,.0f} runs)"
        print(f"instead of {against}: {repaid}{often}, worth today {worth_now:,.2f} {currency}")


shown: list[dict[str, object]] = []  # what the last move of a slider gave
if declared and savings.height:
    draw_payback(**declared)
else:
    print("There is no saving to draw.")

# %%
sliders: dict[str, object] = {}
try:
    import ipywidgets
    from IPython.display import display

    if declared and savings.height:
        text = {
            "price": "extra price",
            "per_kwh": "price of a kWh",
            "interest": "interest",
            "a_day": "runs a day",
            "life": "life (years)",
        }
        sliders = {
            name: ipywidgets.FloatSlider(
                value=value,
                min=0.0 if name == "interest" else value / 10,
                max=0.25 if name == "interest" else value * 4,
                step=0.005 if name == "interest" else value / 50,
                description=text[name],
                continuous_update=False,
                readout_format=".3g",
                style={"description_width": "110px"},
                layout={"width": "460px"},
            )
            for name, value in declared.items()
        }
        picture = ipywidgets.interactive_output(draw_payback, sliders)
        display(ipywidgets.VBox([*sliders.values(), picture]))
    else:
        print("There is no saving to move.")
except ModuleNotFoundError:
    from contract.installation import with_extra

    print(f"Sliders need ipywidgets: {with_extra('notebook')}.")

# %% [markdown]
# ### Batteries
# Runs that a full battery holds: 3600 J/Wh · (Wh) / (mean joules of a run). Change the capacity.

# %%
battery_wh = assumed.battery_wh if assumed is not None else 50.0
batteries = (
    with_interval(with_tails, "energy_j", "workload", "configuration")
    .filter((pl.col("mean") > 0) & ~pl.col("workload").is_in(["idle", "drift_check"]))
    .select(
        *("workload", "configuration"),
        runs=battery_wh * 3600 / pl.col("mean"),
        runs_low=battery_wh * 3600 / pl.col("high"),
        runs_high=pl.when(pl.col("low") > 0).then(battery_wh * 3600 / pl.col("low")),
    )
)
if assumed is not None:
    keys = ["workload", "configuration"]
    reported = suite.battery(battery_wh=battery_wh).select(*keys, "runs")
    ours = batteries.join(reported, on=keys, how="semi").select(reported.columns)
    differing["battery"] = compare("Batteries", ours, reported, *keys)
batteries

# %% [markdown]
# ### The paper's sums
# Fujimoto and others have 25 USD more for the drive and 1,000 J saved a run, at 0.12 USD a kWh:
# almost 750,000 runs, with 2 minutes each 25,000 hours, almost 3 years. 180,000 J of a battery are
# 15, 14 and 13 runs. A run of these joules takes longer than 2 minutes at the paper's power.

# %%
paper_runs, *_ = payback(1000.0, 25.0, 0.12, interest=0.0, a_day=1.0, life=1.0)
hours = paper_runs * 2 / 60
print(f"{paper_runs:,.0f} runs, {hours:,.0f} hours, {hours / 24 / 365.25:.2f} years")
paper_w = 2414.687 / 80.464  # plain, unpacking
print(f"A run without encryption: {180_000 / 15:,.0f} J, {180_000 / 15 / paper_w / 60:.1f} minutes")

# %% [markdown]
# ## The papers beside this suite
# Each printed figure that this suite has a counterpart of, with both ratios to the same base. Where
# conditions differ from the paper's, `differs` names them, and the figure is not compared.

# %%
suite.published().select(
    *("paper", "place", "subject", "operation", "quantity", "unit", "published", "ours"),
    *("published_ratio", "ratio", "ratio_low", "ratio_high", "verdict", "differs"),
)

# %% [markdown]
# What the papers claim in words: the ratio that each sentence is about, in the paper and here.

# %%
claims = suite.claims()
claims.select(
    *("paper", "claim", "predicate", "threshold", "configuration", "against", "published"),
    *("ratio", "ratio_low", "ratio_high", "ratio_verdict", "verdict", "differs"),
)

# %% [markdown]
# Their own figures that violate their own sentences:


# %%
def outside(predicate: str, ratio: float) -> bool:
    """Return whether a ratio is outside what a predicate claims."""
    name, _, percent = predicate.removesuffix(" %").replace(" by", "").rpartition(" ")
    factor = 1 + float(percent) / 100 if percent.replace(".", "").isdigit() else 1.0
    bounds = {"same within": (1 / factor, factor), "at most": (0.0, factor)}
    bounds |= {"less": (0.0, 1 / factor), "more": (factor, float("inf"))}
    low, high = bounds[name or predicate]
    return not low < ratio < high


printed = claims.drop_nulls("published").select("paper", "claim", "predicate", "published").unique()
printed.filter(
    [
        outside(predicate, ratio)
        for predicate, ratio in printed.select("predicate", "published").rows()
    ]
)

# %% [markdown]
# ## How far this notebook and the report agree

# %%
print(f"{sum(differing.values())} figures differ.", differing)

# %% [markdown]
# ## Your question
# `suite`, `runs`, `energy`, `blocks`, `logs`, `savings` and `power` are there, as Polars frames;
# `fde_testbed.to_pandas(energy)` makes pandas of one. The names are described in `docs/library.md`.

# %%
