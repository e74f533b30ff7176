"""Power over the time of one run, its phases shaded; gaps in the samples stay gaps."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import align, words
from analysis.figures.bars import STYLE, with_origin
from analysis.records import Run, Suite
from analysis.suite_folder import rapl_readings
from analysis.windows import fit, windows

LINES = {"system": ("#222222", "-"), "drive": ("#0072B2", "-"), "package-0": ("#D55E00", "-")}
POINTS = 700
PACKAGE = "package-0"


def draw(suite: Suite, run: Run, clock: align.TargetClock) -> Figure | None:
    """Power of the meter's channels and the package's counter; None without any samples."""
    curves = [*_meter_curves(suite, run, clock), *_rapl_curves(suite, run)]
    if not curves:
        return None
    modelled = run.origin == "modelled" or any(m.origin == "modelled" for m in suite.meters)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 2.9), layout="constrained")
        axis = figure.subplots()
        _shade(axis, run)
        for name, seconds, watts in curves:
            colour, style = LINES.get(name, ("#009E73", "--"))
            axis.plot(
                seconds,
                watts,
                style,
                color=colour,
                lw=1.0,
                drawstyle="steps-mid",
                label=words.name_of(name),
            )
        axis.set_xlim(0, (run.t_end_ns - run.t_start_ns) / 1e9)
        axis.set_ylim(bottom=0)
        axis.set_xlabel("Time since the start of the run (s)")
        axis.set_ylabel("Power (W)")
        title = (
            f"{words.name_of(run.workload)}, {words.name_of(run.configuration)}, "
            f"block {run.block + 1}"
        )
        figure.suptitle(
            with_origin(f"Power over time: {title}", "modelled" if modelled else "measured"),
            x=0.01,
            ha="left",
            fontsize=10,
            fontweight="bold",
        )
        figure.legend(loc="outside lower center", ncols=4)
    return figure


def _shade(axis: Axes, run: Run) -> None:
    total_s = (run.t_end_ns - run.t_start_ns) / 1e9
    for i, phase in enumerate(run.phases):
        start, end = ((t - run.t_start_ns) / 1e9 for t in (phase.t_start_ns, phase.t_end_ns))
        axis.axvspan(start, end, color="#dfe9f1" if i % 2 == 0 else "#eef3ea", zorder=0, lw=0)
        if end - start > 0.055 * total_s:
            axis.text(
                (start + end) / 2,
                1.01,
                phase.name,
                transform=axis.get_xaxis_transform(),
                ha="center",
                va="bottom",
                fontsize=7.5,
                color="#444444",
            )


Curve = tuple[str, align.Floats, align.Floats]


def _meter_curves(suite: Suite, run: Run, clock: align.TargetClock) -> list[Curve]:
    start = clock.to_controller_ns(run.boot_id, run.t_start_ns)
    end = clock.to_controller_ns(run.boot_id, run.t_end_ns)
    curves: list[Curve] = []
    if start is None or end is None:
        return curves
    for meter in suite.meters:
        timing = fit(meter.samples, meter.timing, meter.arrival_delay_limit_s)
        parts: dict[str, list[tuple[align.Floats, align.Floats]]] = {}
        for part in windows(meter.samples, timing, meter.channels):
            inside = (part.end_ns > start) & (part.start_ns < end)
            if not inside.any():
                continue
            begins, ends = part.start_ns[inside], part.end_ns[inside]
            each = max(1, round((end - start) / POINTS / np.median(ends - begins)))
            for channel in meter.channels:
                mean = _means(begins, ends, part.power_w[channel][inside], each)
                parts.setdefault(channel, []).append(mean)
        for channel, pieces in parts.items():
            seconds, watts = (np.concatenate(values) for values in zip(*pieces, strict=True))
            curves.append((channel, seconds - start * 1e-9, watts))
    return curves


def _means(
    begin: align.Ints, end: align.Ints, power: align.Floats, each: int
) -> tuple[align.Floats, align.Floats]:
    """Means over so many windows, and their middles in s; NaN where a gap breaks the line."""
    cut = np.arange(0, len(power), each)
    last = np.minimum(cut + each, len(power)) - 1
    seconds = (begin[cut] + end[last]) / 2e9
    watts = np.add.reduceat(power, cut) / (last - cut + 1)
    breaks = np.flatnonzero(begin[1:] > end[:-1]) // each + 1
    breaks = np.unique(breaks[breaks < len(watts)])
    return np.insert(seconds, breaks, np.nan), np.insert(watts, breaks, np.nan)


def _rapl_curves(suite: Suite, run: Run) -> list[Curve]:
    """Mean power between samples of the counters; a step back is a wrap and is left out."""
    readings = rapl_readings(suite, run.run_id, PACKAGE)
    readings = readings[:: max(1, len(readings) // POINTS)]
    if len(readings) < 2:
        return []
    t = np.array([(r.t_before_ns + r.t_after_ns) // 2 for r in readings], dtype=np.int64)
    seconds = np.diff(t) / 1e9
    joules = np.diff(np.array([r.energy_uj for r in readings], dtype=np.int64)) / 1e6
    good = (seconds > 0) & (joules >= 0)
    middle = (t[1:] + t[:-1] - 2 * run.t_start_ns) / 2e9
    watts = np.where(good, joules / np.where(good, seconds, 1.0), np.nan)
    return [(PACKAGE, middle, watts)]


def typical_run(suite: Suite, workload: str) -> Run | None:
    """The run to show for a workload: the first block's on the costliest configuration there is."""
    runs = [run for run in suite.runs if run.workload == workload]
    order = {name: i for i, name in enumerate(suite.configurations)}
    return min(runs, key=lambda r: (r.block, -order.get(r.configuration, 0)), default=None)
