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
# from the report's. `fde notebook` opens it on a suite; the folder is the one that `FDE_SUITE_DIR`
# names, else the one in which this notebook lies, else the newest suite.

# %%
import json
import os
from pathlib import Path

try:
    import matplotlib.pyplot as plt
    import numpy as np
    import numpy.typing as npt
    import polars as pl
    from fde_testbed import Suite, SuiteError
    from scipy import optimize, special, stats

    from analysis.energy.curve import level_part, level_w
    from analysis.energy.energy import run_edges
    from analysis.energy.uncertainty import Resolution
    from analysis.energy.windows import fit, windows
    from analysis.money import budgets, costs
    from analysis.published.reference import FOLDER as REFERENCE
    from analysis.stats.comparison import LogRatio
    from analysis.stats.stats import critical
    from contract.places import CHECKOUT, ROOT, suites_folder
except ModuleNotFoundError as missing:
    raise SystemExit(
        f"This notebook needs the package fde-energy-testbed, and {missing.name} is not here: run "
        "pip install 'fde-energy-testbed[notebook]' in the environment of this kernel, or in a "
        "checkout pip install '.[notebook]'; or open it with fde notebook."
    ) from None

Floats = npt.NDArray[np.float64]
pl.Config.set_tbl_rows(24)
plt.rcParams["text.parse_math"] = False  # names come from the suite's folder


def find_suite() -> Path:
    """The folder of the suite that is meant."""
    if named := os.environ.get("FDE_SUITE_DIR"):
        return Path(named)
    if Path("plan.json").is_file():
        return Path()
    known = [suites_folder(), *([ROOT / "data" / "suites"] if CHECKOUT else [])]
    plans = [plan for place in known for plan in place.glob("*/plan.json")]
    if not plans:
        raise SystemExit("There is no suite here: name its folder in FDE_SUITE_DIR.")
    return max(plans, key=os.path.getmtime).parent


folder = find_suite()
try:
    suite = Suite.open(folder)
except SuiteError as error:
    raise SystemExit(str(error)) from None
print(f"{suite.id}: its figures are {suite.origin}.", *suite.problems, sep="\n- ")


# %%
def compare(what: str, ours: pl.DataFrame, theirs: pl.DataFrame, *keys: str) -> int:
    """Say how many figures of two tables differ by more than rounding; join them by `keys`."""
    both = ours.join(theirs, on=list(keys), suffix="_report", nulls_equal=True)
    names = [n for n in ours.columns if n not in keys and f"{n}_report" in both.columns]
    pairs = [(a, b) for n in names for a, b in both.select(n, f"{n}_report").iter_rows()]
    there = [(a, b) for a, b in pairs if a is not None or b is not None]
    wrong = sum(a is None or b is None or abs(a - b) > 1e-9 * max(abs(a), abs(b)) for a, b in there)
    lacking = max(ours.height, theirs.height) - both.height
    print(f"{what}: {wrong + lacking} of {len(there) + lacking} figures differ from the report's.")
    return int(wrong + lacking)


def label_of(origin: str) -> str:
    """What a picture of figures that were not measured must say."""
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
    for (source, name), one in power.group_by("source", "component", maintain_order=True):
        start_s, end_s = one["start_s"].to_numpy(), one["end_s"].to_numpy()
        gaps = np.flatnonzero(start_s[1:] > end_s[:-1] + 1e-6) + 1
        seconds_of = np.insert(np.column_stack([start_s, end_s]).ravel(), 2 * gaps, np.nan)
        watts_of = np.insert(np.repeat(one["power_w"].to_numpy(), 2), 2 * gaps, np.nan)
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
told = plain_rapl.select("phase", "component", "energy_j").drop_nulls()
print(f"{plain_rapl.height - told.height} rows have no joules in the report: see their flags.")
told = told.join(ours, on=["phase", "component"], how="semi")
ours = ours.join(told, on=["phase", "component"], how="semi")
differing["rapl"] = compare("Joules by RAPL", ours, told, "phase", "component")

# %% [markdown]
# ## Joules of a phase from a meter: the overlap of its windows
# A meter gives mean powers Pᵢ of windows [aᵢ, bᵢ). In a phase from t₁ to t₂ lies
#
# E = Σ Pᵢ · max(0, min(bᵢ, t₂) − max(aᵢ, t₁)).

# %%
meters = suite.results.suite.meters
meter = next((m for m in meters if component in m.channels), meters[0] if meters else None)
channel = "" if meter is None else component if component in meter.channels else meter.channels[0]
of_meter = pl.DataFrame() if meter is None or not run_id else suite.power(run_id, 60.0)
if of_meter.height and meter is not None:
    of_meter = of_meter.filter((pl.col("source") == meter.name) & (pl.col("component") == channel))
else:
    print("There is no meter, or no run: nothing to integrate.")
of_meter

# %%
a, b, p = (
    of_meter[name].to_numpy() if of_meter.height else np.empty(0)
    for name in ("start_ns", "end_ns", "power_w")
)
placed = phases.drop_nulls() if phases.height else pl.DataFrame()
overlap_s = np.array(
    [
        np.maximum(0, np.minimum(b, end) - np.maximum(a, start)) / 1e9
        for start, end in (placed.select("start_ns", "end_ns").iter_rows() if placed.height else ())
    ]
).reshape(placed.height, len(p))
overlap_j = overlap_s @ p
pl.DataFrame(
    {
        "phase": placed["phase"] if placed.height else [],
        "overlap_j": overlap_j,
        "covered_s": overlap_s.sum(axis=1),
    }
)

# %% [markdown]
# A window that an edge cuts is shared by time, as if its power were even. It is not: the load steps
# at the edge. Two things tell more, and the report uses them:
#
# - **The windows beside it.** With p₁ before and p₂ after (means of two windows each), a window of
#   length T that is cut at the share x holds (p₁ − p₂) T x (1 − x) more before the edge than its
#   share. Where only one of them is whole, or the window has several edges, what lies between an
#   edge and a whole neighbour has that one's power, and what is left has one power of its own,
#   from nothing to twice the window's mean.
# - **A rest beside it.** Where the machine rests beside the edge, the power of that rest, from
#   whole windows at its level, holds up to the edge: what is left of the cut windows is work.
#
# Each edge gets one correction, added to what lies before it.


# %%
def correction_j(edge_ns: int, edges_ns: npt.NDArray[np.int64]) -> float:
    """By the windows beside the cut one; 0 where both of them are cut as well, or missing."""
    cuts = np.searchsorted(b, edges_ns, side="right")
    cut = int(np.searchsorted(b, edge_ns, side="right"))
    if cut >= len(p):
        return 0.0

    def whole(i: int) -> bool:
        return 0 <= i < len(p) and not bool(np.any((edges_ns > a[i]) & (edges_ns < b[i])))

    length_ns, mean = b[cut] - a[cut], p[cut]
    # An edge in a gap lies before the window.
    x = max(edge_ns - a[cut], 0) / length_ns
    shares = np.maximum(edges_ns[cuts == cut] - a[cut], 0) / length_ns
    before = whole(cut - 1) and a[cut] == b[cut - 1]
    after = whole(cut + 1) and a[cut + 1] == b[cut]
    p1 = np.mean(p[cut - 2 : cut]) if whole(cut - 2) else p[cut - 1]
    p2 = np.mean(p[cut + 1 : cut + 3]) if whole(cut + 2) else p[min(cut + 1, len(p) - 1)]
    first = shares.min() if before else 0.0
    last = shares.max() if after else 1.0
    left_w = mean - p1 * first - p2 * (1 - last)
    middle_w = left_w / (last - first) if last > first else np.inf
    if before and after and not 0 <= middle_w <= 2 * mean:
        return float((p1 - p2) * x * (1 - x) * length_ns / 1e9)
    middle_w = np.clip(middle_w, 0, 2 * mean)
    up_to_w = p1 * first + middle_w * (x - first) if after else mean - middle_w * (1 - x)
    return float((up_to_w - mean * x) * length_ns / 1e9)


def rest_correction_j(
    edge_ns: int, side: str, rest_ns: int, bound_ns: float, quantum_w: float
) -> float | None:
    """By the rest before or after an edge; None where no level of it can be told."""
    step = -1 if side == "before" else 1
    near, far = sorted((edge_ns + step * bound_ns, edge_ns + step * (rest_ns - bound_ns)))
    first = int(np.searchsorted(a, np.ceil(near), side="left"))
    last = int(np.searchsorted(b, np.floor(far), side="right"))
    first, last = (max(first, last - 64), last) if step < 0 else (first, min(last, first + 64))
    if last - first < 2:
        return None
    begin, end = level_part(p[first:last][::step], quantum_w)
    if end - begin < 2 or begin:  # no level, or none up to the edge
        return None
    level = slice(last - end, last) if step < 0 else slice(first, first + end)
    rest_w, _ = level_w(p[level][::step])
    whole_ns = b[level.stop - 1] if step < 0 else a[level.start]  # where whole windows end
    low, high = min(whole_ns, edge_ns), max(whole_ns, edge_ns)
    seconds = np.maximum(0, np.minimum(b, high) - np.maximum(a, low)) / 1e9
    seen_j, seen_s = float(seconds @ p), float(seconds.sum())
    return (rest_w * seen_s - seen_j) * -step


# %%
corrected: dict[int, float] = {}  # joules to be added before each edge
if of_meter.height and meter is not None:
    found = suite.results
    run = next(r for r in found.suite.runs if r.run_id == run_id)
    timing = fit(meter.samples, meter.timing, meter.arrival_delay_limit_s)
    first_windows = next(windows(meter.samples, timing, meter.channels))
    quantum_w = Resolution.seen_in(first_windows, channel).quantum_w  # the last digit
    edges = run_edges(run, found.suite.plan, found.clock).values()
    edges_ns = np.array([edge.t_ns for edge in edges], np.int64)
    for edge in edges:
        by_rest = None
        if edge.rest is not None:
            bound_ns = edge.bound_ns + timing.bound_ns  # how far the clocks may be apart
            by_rest = rest_correction_j(edge.t_ns, edge.rest, edge.rest_ns, bound_ns, quantum_w)
        corrected[edge.t_ns] = correction_j(edge.t_ns, edges_ns) if by_rest is None else by_rest
by_overlap = pl.DataFrame(
    [
        (name, joules, joules + corrected[end] - corrected[start])
        for (name, start, end, *_), joules in zip(placed.iter_rows(), overlap_j, strict=True)
        if start in corrected and end in corrected
    ],
    schema={"phase": pl.String, "share_j": pl.Float64, "energy_j": pl.Float64},
    orient="row",
)
by_overlap

# %% [markdown]
# The report fills gaps from their surroundings; phases with one are left out here.

# %%
source_name = "" if meter is None else meter.name
told = energy.filter(
    (pl.col("run_id") == run_id)
    & (pl.col("source") == source_name)
    & (pl.col("component") == channel)
    & ~pl.col("flags").str.contains("gap|no-samples|no-clock")
).select("phase", "energy_j", "energy_u95_j")
told = told.join(by_overlap, on="phase", how="semi")
ours = by_overlap.join(told, on="phase", how="semi").select("phase", "energy_j")
differing["meter"] = compare("Joules by the meter", ours, told, "phase")
by_overlap.join(told, on="phase", suffix="_report")

# %% [markdown]
# ## Means with 95 % intervals
# The block is the unit of repetition: repeats within a block are averaged first. Over n blocks the
# interval is Student's, mean ± t(0.975, n − 1) · s / √n. A suite that may be looked at after any
# block (`looks: any` in its plan) has wider intervals, that hold at every look: their factor takes
# the place of Student's t.

# %%
any_look = suite.results.suite.any_look


def with_interval(frame: pl.DataFrame, values: str, *by: str) -> pl.DataFrame:
    """Mean of a column by others, its standard error and 95 % limits: null for too few."""
    x = pl.col(values)
    found = frame.group_by(*by, maintain_order=True).agg(
        pl.len().alias("n"), x.mean().alias("mean"), x.std().alias("sd")
    )
    n = found["n"].to_numpy().astype(float)
    several = np.maximum(n - 1, 1)  # one value has no deviation, and so no limits
    factor = critical(several, 0.05, any_look=True) if any_look else stats.t.ppf(0.975, several)
    bounded = pl.Series(np.isfinite(factor))
    found = found.with_columns(error=pl.when(bounded).then(pl.col("sd") / pl.Series(np.sqrt(n))))
    half = pl.col("error") * pl.Series(factor)
    return found.with_columns(low=pl.col("mean") - half, high=pl.col("mean") + half).with_columns(
        pl.col("low", "high").fill_nan(None)
    )


blocks = (
    of_component.filter((pl.col("phase") == "all") & pl.col("energy_j").is_not_null())
    .filter(pl.col("workload") != "drift_check")
    .group_by("workload", "configuration", "block", maintain_order=True)
    .agg(pl.col("energy_j").mean())
)
means = with_interval(blocks, "energy_j", "workload", "configuration")
means

# %% [markdown]
# The report's intervals hold the meter's own error as well; these are of the scatter alone. So what
# is compared is what both define alike: here the number of blocks, the mean, and its standard error
# s / √n, the first term of the report's uncertainty budget; below the ratio and the error of its
# logarithm.

# %%
summary = suite.summary.filter(pl.col("component") == component)
scatters = pl.DataFrame(
    [
        (*(of.workload, of.configuration, of.source), of.base, of.budget.rows[0].contribution)
        for of in [*budgets.joules(suite.results), *budgets.ratios(suite.results)]
        if of.component == component
    ],
    schema=dict.fromkeys(("workload", "configuration", "source", "base"), pl.String)
    | {"error": pl.Float64},
    orient="row",
)
told = summary.join(
    scatters.filter(pl.col("base") == ""), on=["workload", "configuration", "source"], how="left"
).select("workload", "configuration", "n", "error", mean="mean_j")
ours = means.select(told.columns)
differing["means"] = compare("Means and their errors", ours, told, "workload", "configuration")

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
# configurations in it, as the mixed model below does: then the figures differ, and only there.

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
whole = ratios.join(complete, on="workload", how="semi")
print(f"{ratios.height - whole.height} ratios of workloads that lack runs are left out.")
told = summary.filter(pl.col("ratio").is_not_null()).join(complete, on="workload", how="semi")
told = told.join(
    scatters.filter(pl.col("base") != ""), on=["workload", "configuration", "source"], how="left"
).select("workload", "configuration", "error", mean="ratio")
ours = whole.select(told.columns)
differing["ratios"] = compare("Ratios and their errors", ours, told, "workload", "configuration")

# %%
margin = suite.results.suite.margin  # the change that is declared to be too small to matter
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
# *Different*: a two-sided t test rejects d = 0. *Equivalent*: two one-sided t tests (TOST) reject
# d ≤ −ln(1 + m) and d ≥ ln(1 + m), with the margin m; p is the larger of the two. Neither is
# *inconclusive*, which is not "no difference".


# %%
def tests(log_ratios: Floats, margin: float) -> tuple[float, float]:
    """p of no difference, and of a difference beyond the margin (TOST)."""
    if len(log_ratios) < 2 or np.std(log_ratios) == 0:
        return np.nan, np.nan
    limit = np.log1p(margin)
    differs = stats.ttest_1samp(log_ratios, 0).pvalue
    above = stats.ttest_1samp(log_ratios, -limit, alternative="greater").pvalue
    below = stats.ttest_1samp(log_ratios, limit, alternative="less").pvalue
    return float(differs), float(max(above, below))


tested = pl.DataFrame(
    [
        (*key, *tests(frame["log_ratio"].to_numpy(), margin))
        for key, frame in logs.group_by("workload", "configuration", maintain_order=True)
    ],
    schema={"workload": pl.String, "configuration": pl.String}
    | dict.fromkeys(("p_value", "p_equivalence"), pl.Float64),
    orient="row",
).fill_nan(None)
tested

# %% [markdown]
# All verdicts of a page are one family, the contrasts over all workloads among them. Holm's
# procedure multiplies the k-th smallest of m p-values by m − k + 1; the report's goes one step
# further (`analysis.stats.comparison.closed`), because of the two tests of a row at most one can be
# wrong. It also counts the meter's error and what skewed blocks may hide, and calls nothing
# equivalent from fewer than six blocks, or where runs are on two levels. So its p-values are others
# than these; those that its ratios and their errors have by the scatter alone must be the same.

# %%
p_values = tested["p_value"].drop_nulls().to_numpy()
order = np.argsort(p_values)
holm = np.empty(len(p_values))
holm[order] = np.minimum(
    1, np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1))
)
adjusted = tested.filter(pl.col("p_value").is_not_null()).with_columns(holm=pl.Series(holm))
verdicts = summary.select(
    *("workload", "configuration", "p_adjusted", "p_equivalence_adjusted", "verdict", "doubts"),
)
of_scatter = [
    (*key[:2], LogRatio(np.asarray(np.log(c.ratio)), np.asarray(c.error), np.asarray(c.df)))
    for key, c in suite.results.family.versus.items()
    if key[3] == component and c.error
]
told = pl.DataFrame(
    [
        (*names, float(log.p_value()), float(log.p_equivalence(margin)))
        for *names, log in of_scatter
    ],
    schema=tested.schema,
    orient="row",
)
told = told.join(complete, on="workload", how="semi")
ours = tested.join(complete, on="workload", how="semi").drop_nulls()
if any_look:
    print("p-values of a suite that may be looked at any time are others than Student's.")
else:
    differing["p"] = compare("p-values of the scatter", ours, told, "workload", "configuration")
adjusted.join(verdicts, on=["workload", "configuration"], suffix="_report")

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
# ## The mixed model
# ln E = μ + configuration + block + ε, the configurations fixed, the blocks random with variance
# λσ². With V = I + λZZᵀ the estimates are β = (XᵀV⁻¹X)⁻¹XᵀV⁻¹y, and λ maximises the restricted
# likelihood (REML):
#
# −2ℓ = (N − p) ln(rᵀV⁻¹r) + ln|V| + ln|XᵀV⁻¹X|.
#
# Without missing runs its ratios are those of pairs. Its error is one for all configurations of a
# workload, so the intervals are narrower where that holds, and wrong where it does not.


# %%
def mixed_model(frame: pl.DataFrame, base: str) -> pl.DataFrame:
    """Ratios to `base` with 95 % intervals, of one workload; empty where too few runs tell them."""
    others = sorted(set(frame["configuration"]) - {base})
    places = sorted(set(frame["block"]))
    y = np.log(frame["energy_j"].to_numpy())
    fixed = [frame["configuration"].to_numpy() == name for name in others]
    x = np.column_stack([np.ones(len(y)), *fixed])
    z = (frame["block"].to_numpy()[:, None] == np.array(places)).astype(float)
    freedom = len(y) - x.shape[1] - len(places) + 1
    there = frame.filter(pl.col("configuration") == base).height
    if freedom < 1 or not others or not there:
        return pl.DataFrame()

    def solved(log_lambda: float) -> tuple[float, Floats, Floats]:
        v = np.eye(len(y)) + np.exp(log_lambda) * z @ z.T
        vx = np.linalg.solve(v, x)
        inverse = np.linalg.inv(x.T @ vx)
        beta = inverse @ (vx.T @ y)
        rest = y - x @ beta
        squares = max(float(rest @ np.linalg.solve(v, rest)), 1e-30)
        free = len(y) - x.shape[1]
        value = free * np.log(squares) + np.linalg.slogdet(v)[1] - np.linalg.slogdet(inverse)[1]
        return float(value), beta, squares / free * inverse

    best = optimize.minimize_scalar(lambda at: solved(at)[0], bounds=(-12, 12), method="bounded")
    _, beta, covariance = solved(float(best.x))
    error = np.sqrt(np.diag(covariance))[1:]
    half = special.stdtrit(freedom, 0.975) * error
    return pl.DataFrame(
        {
            "configuration": others,
            "ratio": np.exp(beta[1:]),
            "low": np.exp(beta[1:] - half),
            "high": np.exp(beta[1:] + half),
            "block_share": np.full(len(others), 1 / (1 + np.exp(-best.x))),
        }
    )


modelled = []
for (name,), frame in blocks.filter(pl.col("energy_j") > 0).group_by(
    "workload", maintain_order=True
):
    fitted = mixed_model(frame, baseline)
    if fitted.is_empty():
        print(f"{name}: too few runs for a mixed model.")
    else:
        modelled.append(fitted.select(pl.lit(name).alias("workload"), pl.all()))
mixed = pl.concat(modelled) if modelled else pl.DataFrame()
mixed

# %% [markdown]
# What the blocks had in common: their effects, as a change in %. A trend is drift of the machine.

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
# questions that the suite declared before its first run.

# %%
suite.contrasts().drop("workloads")

# %% [markdown]
# ## Does the self-encrypting drive pay for itself?
# What a run saves beside encryption in software, tail included. Where the suite has both disks
# without encryption, what they differ by is taken off, so that the saving is one of encryption; for
# a machine that idles after its work, so is the power at rest in the time that is saved.

# %%
assumed = suite.assumptions
table = suite.payback().filter(pl.col("workload") != "profile")
paid = table.sort(pl.col("workload") != "kernel_tree", maintain_order=True)["workload"]
workload = paid[0] if len(paid) else ""  # or any other of `suite.workloads`
if assumed is None or not workload:
    print("No payback: the plan lacks assumptions, a self-encrypting drive or software to compare.")
else:
    print(assumed)

# %%
# One value a block of each configuration: joules with the tail, seconds without.
system = energy.filter((pl.col("component") == "system") & pl.col("energy_j").is_not_null())
tails = system.filter(pl.col("phase") == "tail").select("run_id", tail_j="energy_j")
with_tails = (
    system.filter(pl.col("phase") == "all")
    .join(tails, on="run_id", how="left")
    .with_columns(whole_j=pl.col("energy_j") + pl.col("tail_j").fill_null(0.0))
    .group_by("workload", "configuration", "block")
    .agg(pl.col("whole_j", "energy_j", "duration_s").mean())
    .sort("block")
)
here = with_tails.filter(pl.col("workload") == workload)
joules, seconds = (
    here.pivot("configuration", index="block", values=values).sort("block")
    for values in ("whole_j", "duration_s")
)
joules

# %%
sed = suite.results.suite.sed or ""
at_rest = with_tails.filter(
    pl.col("workload").is_in(
        [w for w in suite.workloads if suite.results.suite.workload_of(w) == "idle"]
    )
    & (pl.col("configuration") == sed)
).with_columns(rest_w=pl.col("energy_j") / pl.col("duration_s"))
computed = [
    p for p in costs.paybacks(suite.results.suite, energy) if workload and p.workload == workload
]
saved: list[pl.DataFrame] = []
for p_of in computed:
    between = costs.between_disks(suite.results.suite, p_of.against)
    other_j, other_s = pl.col(sed), pl.col(sed)
    if between is not None:
        other_j = other_s = pl.col(sed) + pl.col(between[0]) - pl.col(between[1])
    saving = joules.select("block", saving_j=pl.col(p_of.against) - other_j).drop_nulls()
    if p_of.after_work == "idle":
        sooner = seconds.select("block", sooner_s=pl.col(p_of.against) - other_s)
        saving = (
            saving.join(sooner, on="block")
            .join(at_rest.select("block", "rest_w"), on="block", how="left")
            .with_columns(pl.col("rest_w").fill_null(at_rest["rest_w"].mean()))
            .select("block", saving_j=pl.col("saving_j") - pl.col("rest_w") * pl.col("sooner_s"))
        )
    saved.append(saving.select(pl.lit(p_of.against).alias("against"), pl.all()))
per_block = pl.concat(saved) if saved else pl.DataFrame(schema={"against": pl.String})
per_block

# %% [markdown]
# The interval of the saving holds the scatter between blocks and what the meter may be off by: the
# terms of the uncertainty budget add up as squares, u² = Σ uᵢ², and the interval is ± k · u with
# the coverage factor k.

# %%
budget = pl.DataFrame(
    [
        (p_of.against, row.term, row.distribution, row.contribution, p_of.budget.share(row))
        for p_of in computed
        for row in p_of.budget.rows
    ],
    schema=["against", "term", "distribution", "contribution_j", "share"],
    orient="row",
)
budget

# %%
rows = []
for p_of in computed:
    values = per_block.filter(pl.col("against") == p_of.against)["saving_j"].to_numpy()
    parts = [row.contribution for row in p_of.budget.rows if row.contribution is not None]
    own = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    u = np.sqrt(sum(part**2 for part in parts[1:]) + own**2)  # the first is the scatter
    half_j = u * p_of.budget.factor if p_of.budget.factor is not None else np.nan
    rows.append((p_of.against, np.mean(values), np.mean(values) - half_j, np.mean(values) + half_j))
savings = pl.DataFrame(
    rows,
    schema={"against": pl.String}
    | dict.fromkeys(("saving_j", "saving_j_low", "saving_j_high"), pl.Float64),
    orient="row",
).fill_nan(None)
savings

# %% [markdown]
# With the price P of the drive, c of a kWh, S = 365.25 · (runs a day) · E c / 3.6 MJ saved a year,
# the interest r and the life L:
#
# runs = P / (E c / 3.6 MJ), years = −ln(1 − r P / S) / ln(1 + r),
# worth = S (1 − (1 + r)^−L) / r − P.
#
# No time is named unless the whole interval of the saving lies above 0.


# %%
def payback(
    saving_j: float, price: float, per_kwh: float, *, interest: float, a_day: float, life: float
) -> tuple[float, float, float]:
    """Runs and years until the drive is repaid, and its worth today; NaN where never."""
    a_run = saving_j * per_kwh / 3.6e6
    a_year = 365.25 * a_day * a_run
    annuity = life if interest == 0 else (1 - (1 + interest) ** -life) / interest
    worth = a_year * annuity - price
    if saving_j <= 0:
        return np.nan, np.nan, worth
    years = price / a_year
    if interest > 0:
        left = 1 - interest * price / a_year
        years = -np.log(left) / np.log1p(interest) if left > 0 else np.nan
    return price / a_run, float(years), worth


def paid_back(
    price: float, per_kwh: float, *, interest: float, a_day: float, life: float
) -> pl.DataFrame:
    """The payback of every saving with its interval, under these assumptions."""
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
told = table.filter(pl.col("workload") == workload)
told = told.select("against", *[n for n in savings.columns if n != "against"])
differing["savings"] = compare("Savings", savings, told, "against")
names = [n for n in payback_table.columns if n != "against"]
told = table.filter(pl.col("workload") == workload).select("against", *names)
told = told.join(payback_table, on="against", how="semi")
differing["payback"] = compare("Payback", payback_table, told, "against")


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
    print("Sliders need ipywidgets: pip install 'fde-energy-testbed[notebook]'.")

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
    told = suite.battery(battery_wh=battery_wh).drop("energy_j", "origin")
    ours = batteries.join(told, on=["workload", "configuration"], how="semi")
    differing["battery"] = compare("Batteries", ours, told, "workload", "configuration")
batteries

# %% [markdown]
# ## The papers' figures
# The figures that five papers print, drawn again from `data/reference`; they are theirs, not this
# suite's. † marks a cipher that is unsafe today.


# %%
def paper(name: str) -> pl.DataFrame:
    """The figures of one paper, as printed: fujimoto, sassani, analiza, panda or verma."""
    return pl.read_csv(REFERENCE / f"{name}.csv", infer_schema_length=None)


fujimoto = paper("fujimoto").filter(pl.col("entry") == "untar", pl.col("quantity") == "energy")
ours_untar = energy.filter((pl.col("phase") == "untar") & (pl.col("component") == "system"))
ours_untar = ours_untar.group_by("configuration", "block", maintain_order=True).agg(
    pl.col("energy_j").mean()
)  # this suite's, where it has them
figure, axes = plt.subplots(1, 2, figsize=(9, 2.8))
axes[0].bar(
    fujimoto["configuration"],
    fujimoto["value"],
    yerr=fujimoto["half_width_95"].fill_null(0.0),
    capsize=3,
    color="tab:grey",
)
axes[0].set(ylabel="J", title="Fujimoto et al., IV.B: unpack the kernel")
if ours_untar.height:
    here_untar = with_interval(ours_untar, "energy_j", "configuration")
    half = (here_untar["high"] - here_untar["mean"]).fill_null(0.0).to_numpy()
    axes[1].bar(here_untar["configuration"], here_untar["mean"], yerr=half, capsize=3)
    axes[1].set(ylabel="J", title=f"this suite{label_of(suite.origin)}")
else:
    axes[1].text(0.5, 0.5, "this suite does not unpack", ha="center", va="center")
    axes[1].axis("off")
for axis in axes:
    axis.tick_params(axis="x", labelsize=7, rotation=15)
figure.tight_layout()
plt.show()

# %%
sassani = paper("sassani").filter(pl.col("quantity") == "speed")
places = sassani["entry"].unique(maintain_order=True).to_list()
figure, axes = plt.subplots(3, 4, figsize=(11, 6))
for axis, place in zip(axes.flat, places, strict=False):
    one = sassani.filter(pl.col("entry") == place)
    names = [f"{s} {w}"[:22] for s, w in one.select("subject", "software").iter_rows()]
    axis.barh(names, one["value"], color="tab:grey")
    axis.set_title(
        f"{place.replace('figure-', 'Figure ')}: {one['operation'][0]}, {one['pattern'][0]}",
        fontsize=7,
    )
    axis.tick_params(labelsize=6)
figure.suptitle("Sassani et al. 2020: speeds as printed (Mb/s)", fontsize=10)
figure.tight_layout()
plt.show()

# %%
analiza = paper("analiza")
in_mb = pl.col("value") * pl.when(pl.col("unit") == "GB/s").then(1024).otherwise(1)
memory = analiza.filter(pl.col("entry") == "figure-1", pl.col("quantity") == "speed")
memory = memory.with_columns(mb_s=in_mb)
figure, axes = plt.subplots(1, 2, figsize=(11, 3.6))
for shift, operation in ((-0.2, "encrypt"), (0.2, "decrypt")):
    one = memory.filter(pl.col("operation") == operation)
    axes[0].barh(np.arange(one.height) + shift, one["mb_s"], height=0.4, label=operation)
    axes[0].set_yticks(np.arange(one.height), one["subject"].to_list(), fontsize=6)
axes[0].set(xscale="log", xlabel="MB/s", title="Analiza wpływu szyfrowania, Figure 1")
axes[0].legend(fontsize=7)
to_mb = {"KB/s": 1 / 1024, "MB/s": 1.0}
steps = analiza.filter(
    pl.col("entry") == "figure-8",
    pl.col("quantity") == "speed",
    pl.col("operation") == "write",
    pl.col("block_bytes").is_not_null(),
)
for (subject,), one in steps.sort("block_bytes").group_by("subject", maintain_order=True):
    axes[1].plot(one["block_bytes"], one["value"], marker="o", ms=3, lw=1, label=str(subject))
axes[1].set(xscale="log", xlabel="bytes of a block", ylabel="MB/s", title="Figure 8: writes, SSD")
axes[1].legend(fontsize=6)
figure.tight_layout()
plt.show()

# %%
panda = paper("panda").filter(pl.col("entry") == "table-i", pl.col("quantity") == "time")
figure, axis = plt.subplots(figsize=(8, 3))
for (subject,), one in panda.sort("size_bytes").group_by("subject", maintain_order=True):
    axis.plot(one["size_bytes"] / 2**20, one["value"], marker="o", ms=3, label=str(subject))
axis.set(xlabel="MB of a text file", ylabel="ms", title="Panda, Table I: time to encrypt († DES)")
axis.legend(fontsize=8)
plt.show()

# %%
verma = paper("verma").filter(
    pl.col("entry").is_in(["table-iii", "table-iv"]), pl.col("quantity") == "time"
)
figure, axes = plt.subplots(1, 2, figsize=(9, 3))
for axis, (key, part) in zip(
    axes, verma.group_by("place", "machine", maintain_order=True), strict=False
):
    for (subject,), one in part.sort("size_bytes").group_by("subject", maintain_order=True):
        axis.plot(one["size_bytes"] / 1024, one["value"], marker="o", ms=3, label=str(subject))
    axis.set(xlabel="KB", ylabel="s", title=f"Verma et al., {key[0]}: ECB†, {key[1]}")
    axis.title.set_fontsize(8)
    axis.legend(fontsize=7, title="DES, 3DES, Blowfish: †", title_fontsize=6)
figure.tight_layout()
plt.show()

# %% [markdown]
# The sums of the first paper on its payback, from its own numbers, by the function above: 25 USD
# more for the drive, 1,000 J saved a run.

# %%
printed = {
    (entry, configuration or ""): value
    for entry, configuration, value in paper("fujimoto")
    .select("entry", "configuration", "value")
    .iter_rows()
}
extra = printed["price", "opal"] - printed["price", "plain"]
paper_runs = payback(
    *(printed["saving", "opal"], extra, printed["electricity-price", ""]),
    interest=0.0,
    a_day=1.0,
    life=1.0,
)[0]
print(f"{paper_runs:,.0f} runs; the paper says almost {printed['payback-runs', 'opal']:,.0f}.")

# %% [markdown]
# ## How far this notebook and the report agree

# %%
print(f"{sum(differing.values())} figures differ.", differing)

# %% [markdown]
# ## Your question
# `suite`, `runs`, `energy`, `blocks`, `logs`, `savings` and `power` are there, as Polars frames;
# `fde_testbed.to_pandas(energy)` makes pandas of one. The names are described in `docs/library.md`.

# %%
