"""The energy of a phase, computed from a meter's records, against the integral of the load."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.figure import Figure as Picture

from analysis.energy.curve import Edge
from analysis.energy.metered import Metered
from analysis.suite.samples import of_table
from validation.bench import Figure, at_most
from validation.metrology.loads import (
    AROUND,
    DELAY_S,
    INSTRUMENTS,
    Floats,
    Instrument,
    Trial,
    realistic,
    records,
    trial,
)

# What a phase lasts, in s and in periods (the longer counts), and the target for p95 in %.
KINDS = (
    ("≥ 30 s", (30.0, 120.0), (10, 10), 0.2),
    ("10 to 30 samples", (0.0, 0.0), (10, 30), 0.5),
    ("3 samples", (0.0, 0.0), (3, 4), 2.0),
)
SIDES: tuple[Literal["before", "after"] | None, ...] = (None, "before", "after")
SEED = 20_260_101
Limits = tuple[float, float]


def measure(quick: bool = False) -> list[Figure]:
    """Measure the error's p95 by meter and length; phases and pauses against the run."""
    count = 6 if quick else 400
    figures = errors_by_kind(count)
    for meter in INSTRUMENTS:
        restless = partial(trial, rests=False)
        error = _errors(meter, (0.0, 0.0), (10, 30), count, one_trial=restless)
        title = f"the same without rest at the edges, 10 to 30 samples, {meter.name}"
        figures.append(Figure(title, float(np.quantile(error, 0.95)), "%"))
    worst_uj = max(_unaccounted_uj(seed) for seed in range(3 if quick else 100))
    figures.append(at_most("phases and pauses against the whole run, worst", worst_uj, "µJ", 1.0))
    worst_uj = max(_unaccounted_with_gaps_uj(seed) for seed in range(3 if quick else 100))
    title = "phases, pauses and tail against end less start, with gaps, worst"
    figures.append(at_most(title, worst_uj, "µJ", 1.0))
    return figures


def errors_by_kind(
    count: int, one_trial: Callable[..., Trial] = trial, seed: int = SEED, loads: str = ""
) -> list[Figure]:
    """Return the 95th percentile of the error for each length of a phase and each meter."""
    figures = []
    for name, seconds, periods, target in KINDS:
        for meter in INSTRUMENTS:
            error = _errors(meter, seconds, periods, count, one_trial=one_trial, seed=seed)
            title = f"phase energy error p95, {name}, {meter.name}{loads}"
            figures.append(at_most(title, float(np.quantile(error, 0.95)), "%", target))
    return figures


def limits_s(meter: Instrument, seconds: Limits, periods: Limits) -> Limits:
    """Return the shortest and the longest phase of a kind."""
    low, high = (max(s, p * meter.period_s) for s, p in zip(seconds, periods, strict=True))
    return low, high


def _errors(
    meter: Instrument,
    seconds: Limits,
    periods: Limits,
    count: int,
    *,
    one_trial: Callable[..., Trial] = trial,
    seed: int = SEED,
) -> Floats:
    """Return the size of the error of `count` phases in %; 100 for a phase without a figure."""
    generator = np.random.default_rng(seed)
    limits = limits_s(meter, seconds, periods)
    trials = (one_trial(generator, meter, float(generator.uniform(*limits))) for _ in range(count))
    return np.array([trial.error_percent for trial in trials])


def _unaccounted_uj(seed: int) -> float:
    """Compare a run cut into phases and pauses at random with the same run uncut."""
    generator = np.random.default_rng(seed)
    meter = INSTRUMENTS[seed % len(INSTRUMENTS)]
    load = realistic(generator, 400 * meter.period_s, AROUND * meter.period_s)
    table = of_table(records(load, meter, generator, dropped=0))
    # Not so near the ends that a cut would change what the windows beside the ends tell of them.
    near_s = 5 * meter.period_s
    cuts = np.sort(generator.uniform(load.start_s + near_s, load.end_s - near_s, 12))
    times = [round(t * 1e9) for t in (load.start_s, *cuts, load.end_s)]
    rest_ns = round(meter.rest_s * 1e9)
    ends = {Edge(times[0]), Edge(times[-1])}
    inner = {Edge(t, SIDES[int(generator.integers(3))], rest_ns, 300_000) for t in times[1:-1]}
    cut, uncut = (
        Metered.from_samples(table, meter.timing, DELAY_S[1], ["system"], chosen)
        for chosen in (inner | ends, ends)
    )
    parts = [cut.energy("system", [(a, b)]).energy_j or 0.0 for a, b in pairwise(times)]
    total_j = uncut.energy("system", [(times[0], times[-1])]).energy_j or 0.0
    return abs(sum(parts) - total_j) * 1e6


def _unaccounted_with_gaps_uj(seed: int) -> float:
    """Compare all phases, all pauses and the tail, each as one, with end less start.

    Records are lost as ever and five in a row beside a cut, and cuts lie in the run's first and
    last window. All of one curve: with other edges a gap would be filled from other windows.
    """
    generator = np.random.default_rng(seed)
    meter = INSTRUMENTS[seed % len(INSTRUMENTS)]
    load = realistic(generator, 400 * meter.period_s, AROUND * meter.period_s)
    every = records(load, meter, generator)
    # Lengths such that no stretch lies within a gap: of such a one, nothing is known.
    apart_s = generator.uniform(15, 35, 11) * meter.period_s
    near_s = meter.period_s / 3
    cuts = load.start_s + near_s + np.concatenate([[0.0], np.cumsum(apart_s)])
    lost_s = cuts[6] + meter.period_s * np.array([-2, 3])
    arrival_s = every["t_mono_ns"].to_numpy() * 1e-9
    table = of_table(every.filter((arrival_s < lost_s[0]) | (arrival_s > lost_s[1])))
    times = [round(t * 1e9) for t in (load.start_s, *cuts, load.end_s - near_s, load.end_s)]
    rest_ns = round(meter.rest_s * 1e9)
    edges = {Edge(t, SIDES[int(generator.integers(3))], rest_ns, 300_000) for t in times}
    metered = Metered.from_samples(table, meter.timing, DELAY_S[1], ["system"], edges)
    *between, tail = pairwise(times)
    whole_j, *parts = (
        metered.energy("system", stretches).energy_j
        for stretches in ([(times[0], times[-1])], between[::2], between[1::2], [tail])
    )
    known_j = [part for part in parts if part is not None]
    if whole_j is None or len(known_j) < len(parts):
        # A stretch within a lost window has no figure, and then the whole must have none either.
        return 0.0 if whole_j is None and len(known_j) < len(parts) else math.inf
    return abs(math.fsum(known_j) - whole_j) * 1e6


def plot(path: Path) -> None:
    """Plot the error of the phase's energy against the number of samples in it."""
    picture = Picture(figsize=(7, 4.2), layout="constrained")
    axis = picture.subplots()
    for meter, colour in zip(INSTRUMENTS, ("#0072B2", "#D55E00", "#009E73"), strict=True):
        samples = np.array([1, 2, 3, 5, 10, 20, 50, 100, 300])
        errors = [_errors(meter, (0, 0), (n, 1.2 * n), 120) for n in samples]
        for share, style in ((0.5, ":"), (0.95, "-")):
            values = [max(float(np.quantile(error, share)), 1e-4) for error in errors]
            label = f"{meter.name}, {'median' if share == 0.5 else '95 %'}"
            axis.plot(samples, values, style, color=colour, label=label)
    for _, _, periods, target in KINDS[1:]:
        axis.plot([periods[0], 300], [target, target], color="#999999", lw=0.8, zorder=0)
    axis.set(
        xscale="log", yscale="log", xlabel="Samples in the phase", ylabel="Error of energy (%)"
    )
    picture.legend(loc="outside lower center", ncols=3, fontsize=8)
    picture.savefig(path)
