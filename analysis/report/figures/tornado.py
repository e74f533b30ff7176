"""What the net present value hangs on: one bar an assumption, the widest at the top."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.money.payback import PROFILE, Payback, net_present_value
from analysis.money.sensitivity import METER, SAVING, Swing
from analysis.report import words
from analysis.report.figures import style
from analysis.suite.assumptions import Assumptions

# The two ends differ in hatch, too.
LOW, HIGH = ("#56B4E9", "//"), ("#E69F00", "")


def draw(
    found: Sequence[Swing], payback: Payback, assumptions: Assumptions, label: str, origin: str
) -> Figure | None:
    """Bars from the net present value to what it is at either end; None where nothing moves it.

    `label` is the name for people of the configuration that the disk is compared with.
    """
    if not any(swing.width > 0 for swing in found):
        return None
    centre = net_present_value(payback.saving_j.mean, payback.runs_per_day, assumptions)
    with style.drawing(5.8, 1.4 + 0.44 * len(found), grid="x") as figure:
        axis = figure.subplots()
        for lane, swing in enumerate(found):
            _bar(axis, lane, swing, centre)
        axis.axvline(centre, color=style.INK, lw=1)
        low, high = axis.get_xlim()
        if low < 0 < high:
            axis.axvline(0, color=style.INK, lw=0.9, ls="--", label="repaid, with interest")
        axis.set_yticks(range(len(found)), [_label(swing, payback, assumptions) for swing in found])
        for lane, swing in enumerate(found):
            axis.annotate(
                words.rounded(swing.width),
                (1.02, lane),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=8,
            )
        axis.annotate(
            f"Width ({assumptions.currency})",
            (1.02, 1.01),
            xycoords="axes fraction",
            va="bottom",
            fontsize=8,
            color=style.SOFT,
        )
        axis.tick_params(axis="y", length=0)
        axis.invert_yaxis()
        axis.set_xlabel(
            f"Net present value of the drive ({assumptions.currency}), "
            f"{words.rounded(centre)} as declared"
        )
        style.titled(figure, f"What the result hangs on, beside {label}", origin)
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def _bar(axis: Axes, lane: int, swing: Swing, centre: float) -> None:
    for worth, (face, hatch), name in (
        (swing.at_low, LOW, "at its low end"),
        (swing.at_high, HIGH, "at its high end"),
    ):
        axis.barh(
            lane,
            worth - centre,
            0.62,
            left=centre,
            color=face,
            hatch=hatch,
            edgecolor="#444444",
            linewidth=0.6,
            label=name if lane == 0 else None,
        )


def _label(swing: Swing, payback: Payback, a: Assumptions) -> str:
    ends = (swing.low, swing.high)
    if swing.name == SAVING:
        unit = "day" if payback.workload == PROFILE else "run"
        return f"Saving a {unit}, 95 % interval\n{_ends(ends, words.rounded)} J"
    if swing.name == METER:
        share = payback.meter_share
        said = "" if share is None else f"\n± {words.rounded(share * 100)} % of the saving"
        return f"Meter's limits of error{said}"
    if swing.name == "runs_per_day" and a.duty:
        factors = [end / a.runs_per_day for end in ends]
        return f"Work a day\n× {_ends(factors, words.given)}"
    what, unit = {
        "sed_extra_price": ("Extra price", a.currency),
        "electricity_price_per_kwh": ("Electricity", f"{a.currency}/kWh"),
        "life_years": ("Life of the drive", "years"),
        "runs_per_day": ("Runs a day", ""),
        "discount_rate": ("Interest a year", "%"),
    }[swing.name]
    if unit == "%":
        ends = (ends[0] * 100, ends[1] * 100)
    return f"{what}\n{_ends(ends, words.given)} {unit}".rstrip()


def _ends(ends: Sequence[float], text: Callable[[float], str]) -> str:
    return f"{text(ends[0])} to {text(ends[1])}"
