"""What a self-encrypting drive may cost more, by hours of work and price of electricity."""

from __future__ import annotations

from matplotlib.figure import Figure

from analysis.money.costs import HOURS_PER_DAY
from analysis.money.payback import Payback
from analysis.report import words
from analysis.report.figures import style
from contract.assumptions import Assumptions

PRICES = ((2.0, ":"), (1.0, "-"), (0.5, "--"))  # factors of the declared price, and their lines


def draw(payback: Payback, hours: float, a: Assumptions) -> Figure | None:
    """Draw the extra price that is repaid, from 0 to 24 hours of this work a day.

    It is proportional to the hours and to the price; the band is its 95 % interval at the declared
    price. None if nothing is saved.
    """
    most = payback.break_even_price
    if most.mean <= 0 or hours <= 0:
        return None
    at, all_day = (0.0, float(HOURS_PER_DAY)), HOURS_PER_DAY / hours
    unit = f" {a.currency}".rstrip()
    with style.drawing(4.6, 2.6) as figure:
        axis = figure.subplots()
        for factor, line in PRICES:
            price = words.exact(a.electricity_price_per_kwh * factor)
            axis.plot(
                at,
                (0, most.mean * all_day * factor),
                color=style.SED_COLOUR,
                ls=line,
                lw=1.4 if factor == 1 else 1.0,
                label=f"at {price}{unit}/kWh",
            )
        if most.low is not None and most.high is not None:
            low, high = ((0.0, end * all_day) for end in (most.low, most.high))
            axis.fill_between(at, low, high, color=style.SED_COLOUR, alpha=0.15, lw=0)
        axis.plot(hours, most.mean, "o", color=style.INK, ms=4, zorder=4, clip_on=False)
        top = 2 * most.mean * all_day
        if not payback.assumed and a.sed_extra_price <= 1.5 * top:
            axis.axhline(a.sed_extra_price, color=style.SOFT, lw=0.9)
            price = f"costs {words.exact(a.sed_extra_price)}{unit} more"
            axis.annotate(price, (0.2, a.sed_extra_price), va="bottom", fontsize=7.5)
            top = max(top, 1.1 * a.sed_extra_price)
        axis.set(xlim=at, ylim=(0, top), xlabel="Hours of this work a day")
        axis.set_xticks(range(0, HOURS_PER_DAY + 1, 6))
        axis.set_ylabel(f"May cost more ({a.currency})".replace(" ()", ""))
        axis.legend(fontsize=7.5, loc="upper left")
        repaid = f"{words.rounded(most.mean)}{unit}"
        in_words = [f"{repaid} more at {words.rounded(hours)} hours of this work a day"]
        if most.low is not None and most.high is not None:
            in_words.append(f"95 % interval {words.limits(most)}{unit}")
        style.titled(figure, "What the drive may cost more", payback.origin, in_words)
    return figure
