"""Power over the time of one run, its phases shaded; gaps in the samples stay gaps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.energy.windows import fit, windows
from analysis.report import words
from analysis.report.figures import style
from analysis.report.words import parse
from analysis.suite import clocks, records
from analysis.suite.records import Meter, Run, Suite
from analysis.suite.suite_folder import rapl_samples
from instrumentation.sources.zones import kind_of

# A separate line style for each curve, for readers without colour.
LINES = {
    "system": (style.INK, "-"),
    "drive": ("#0072B2", "--"),
    "package-0": ("#D55E00", "-."),
    "dram": ("#009E73", ":"),
}
OTHERS = (("#CC79A7", (0, (5, 1))), ("#56B4E9", (0, (3, 1, 1, 1))), ("#E69F00", (0, (1, 1))))
POINTS = 400  # of a curve: more than the paper's width shows
AROUND_NS = 5_000_000_000  # before and after the run, to place the meter's own clock
Curve = tuple[str, clocks.Floats, clocks.Floats]


def curves(suite: Suite, run: Run, clock: clocks.TargetClock) -> list[Curve]:
    """Return the curves of power of the meters' channels and the packages' counters."""
    start = clock.to_controller_ns(run.boot_id, run.t_start_ns)
    end = clock.to_controller_ns(run.boot_id, run.t_end_ns)
    meters = suite.meters if start is not None and end is not None else ()
    zones = dict.fromkeys(c.zone for phase in run.phases for c in phase.counters)
    return [
        *(curve for meter in meters for curve in _curves_of(meter, start or 0, end or 0)),
        *(
            curve
            for zone in zones
            if kind_of(zone) == "package"
            for curve in _rapl_curve(suite, run, zone)
        ),
    ]


def draw(suite: Suite, run: Run, curves: Sequence[Curve]) -> Figure | None:
    """Draw the curves of a run; None without any."""
    if not curves:
        return None
    with style.drawing(7.2, 2.9) as figure:
        axis = figure.subplots()
        _shade(axis, run)
        others = iter(OTHERS * len(curves))
        for name, seconds, watts in curves:
            colour, dashes = LINES.get(name) or next(others)
            axis.plot(
                seconds,
                watts,
                ls=dashes,
                color=colour,
                lw=1.1,
                drawstyle="steps-mid",
                label=words.name_of(name),
            )
        axis.set_xlim(0, (run.t_end_ns - run.t_start_ns) / 1e9)
        axis.set_ylim(bottom=0)
        axis.set_xlabel("Time since the start of the run (s)")
        axis.set_ylabel("Power (W)")
        title = f"{words.name_of(run.workload)}, {suite.label(run.configuration)}"
        where = records.worst_origin([run.origin, *(meter.origin for meter in suite.meters)])
        in_words = [
            f"{words.name_of(name)} {words.number(float(np.nanmean(watts)))} W on average, "
            f"{words.number(float(np.nanmax(watts)))} W at most"
            for name, _, watts in curves
            if np.isfinite(watts).any()
        ]
        in_words.append(f"phases {', '.join(parse(phase.name).shown for phase in run.phases)}")
        title = f"Power over time: {title}, block {run.block + 1}"
        style.titled(figure, title, where, in_words)
        figure.legend(loc="outside lower center", ncols=min(4, len(curves)))
    return figure


def _shade(axis: Axes, run: Run) -> None:
    """Draw a band for each phase, its name above it, higher if the last name is near."""
    total_s = (run.t_end_ns - run.t_start_ns) / 1e9
    free = [0.0, 0.0]
    for i, phase in enumerate(run.phases):
        start, end = ((t - run.t_start_ns) / 1e9 for t in (phase.t_start_ns, phase.t_end_ns))
        axis.axvspan(start, end, color="#dfe9f1" if i % 2 == 0 else "#f1efe2", zorder=0, lw=0)
        name = parse(phase.name).shown
        half = 0.007 * len(name) * total_s
        middle = min(max((start + end) / 2, half), total_s - half)
        row = next((row for row, until in enumerate(free) if middle - half >= until), None)
        if row is None:
            continue
        free[row] = middle + half
        axis.annotate(
            name,
            (middle, 1),
            (0, 2 + 9 * row),
            xycoords=axis.get_xaxis_transform(),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=7.5,
            color="#444444",
            annotation_clip=False,
        )


def _curves_of(meter: Meter, start: int, end: int) -> list[Curve]:
    """Return the curves of a meter's channels between two instants of the controller."""
    late_ns = round(meter.arrival_delay_limit_s * 1e9)
    near = meter.samples.during(start - AROUND_NS, end + late_ns + AROUND_NS)
    if not near.records or not meter.channels:
        return []
    timing = fit(near, meter.timing, meter.arrival_delay_limit_s)
    parts: dict[str, list[tuple[clocks.Floats, clocks.Floats]]] = {}
    for part in windows(near, timing, meter.channels):
        inside = (part.end_ns > start) & (part.start_ns < end)
        if not inside.any():
            continue
        begins, ends = part.start_ns[inside], part.end_ns[inside]
        count = max(1, round((end - start) / POINTS / np.median(ends - begins)))
        for channel in meter.channels:
            mean = _means(begins, ends, part.power_w[channel][inside], count)
            parts.setdefault(channel, []).append(mean)
    curves = []
    for channel, pieces in parts.items():
        seconds, watts = (np.concatenate(values) for values in zip(*pieces, strict=True))
        curves.append((channel, seconds - start * 1e-9, watts))
    return curves


def _means(
    begin: clocks.Ints, end: clocks.Ints, power: clocks.Floats, count: int
) -> tuple[clocks.Floats, clocks.Floats]:
    """Return middles in s and means of `count` windows each; NaN where a gap breaks the line."""
    cut = np.arange(0, len(power), count)
    last = np.minimum(cut + count, len(power)) - 1
    seconds = (begin[cut] + end[last]) / 2e9
    watts = np.add.reduceat(power, cut) / (last - cut + 1)
    breaks = np.flatnonzero(begin[1:] > end[:-1]) // count + 1
    breaks = np.unique(breaks[breaks < len(watts)])
    return np.insert(seconds, breaks, np.nan), np.insert(watts, breaks, np.nan)


def _rapl_curve(suite: Suite, run: Run, zone: str) -> list[Curve]:
    """Return mean power between samples of a counter; a step back is a wrap and left out."""
    readings = rapl_samples(suite, run.run_id).get(zone, [])
    readings = readings[:: max(1, len(readings) // POINTS)]
    if len(readings) < 2:
        return []
    t = np.array([(r.t_before_ns + r.t_after_ns) // 2 for r in readings], dtype=np.int64)
    seconds = np.diff(t) / 1e9
    joules = np.diff(np.array([r.energy_uj for r in readings], dtype=np.int64)) / 1e6
    good = (seconds > 0) & (joules >= 0)
    middle = (t[1:] + t[:-1] - 2 * run.t_start_ns) / 2e9
    watts = np.where(good, joules / np.where(good, seconds, 1.0), np.nan)
    return [(zone, middle, watts)]


def typical_run(suite: Suite, workload: str) -> Run | None:
    """Return the run to show of a workload: the first block's on the configuration planned last."""
    runs = [run for run in suite.runs if run.workload == workload]
    order = {name: i for i, name in enumerate(suite.configurations)}
    return min(runs, key=lambda r: (r.block, -order.get(r.configuration, 0)), default=None)
