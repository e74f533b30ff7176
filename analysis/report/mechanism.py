"""Whether a configuration costs more because it takes longer or because it draws more power."""

from __future__ import annotations

from analysis.report import words
from analysis.report.texts import say
from analysis.stats.comparison import Comparison
from analysis.stats.contrasts import Contrast

STATES = {"differs": "changed", "equivalent": "same"}


def sentence(contrast: Contrast) -> str:
    """Return a sentence on time and power, as their intervals allow; empty without both.

    A ratio counts as changed if its interval excludes 1, as the same if it lies within the margin.
    """
    time, power = contrast.time, contrast.power
    if time is None or power is None or not time.complete:
        return ""
    states = [STATES.get(c.verdict, "open") for c in (time, power)]
    opposite = states == ["changed", "changed"] and (time.ratio > 1) != (power.ratio > 1)
    return say(
        f"mechanism.{'.'.join(states)}",
        time=_change(time, "takes {} longer", "takes {} less time"),
        power=_change(power, "draws {} more power", "draws {} less power"),
        conjunction="but" if opposite else "and",
        margin=f"{time.margin * 100:g} %",
    )


def _change(c: Comparison, more: str, less: str) -> str:
    """Return `takes 12 % longer`, or the same of less."""
    return (more if c.ratio > 1 else less).format(words.change_only(c, 1)[1:])
