"""How often a change from plain is claimed although only the disks differ."""

from __future__ import annotations

from dataclasses import replace

from lab import devices
from lab.devices import DiskModel
from validation.bench import Figure, at_least, at_most
from validation.fairness.simulated import BEFORE, Rules, Suite

SUITES, FEW = 100, 6
SEED = 20_261_100
EFFECT = 1.03

# What the disks do, and what it is called.
BIASES = {
    "used": "TRIM",
    "write-cache": "write cache",
    "warm": "temperature",
    "heat": "throttling",
    "power-states": "power states",
    "specimens": "two specimens",
}


def measure(quick: bool = False) -> list[Figure]:
    """Measure each bias with and without its countermeasure, then a true effect under all."""
    suites = FEW if quick else SUITES
    models = devices.load()
    figures = []
    for name, called in BIASES.items():
        unlike = BEFORE if name == "specimens" else replace(BEFORE, one_disk=True)
        before, _, counted = _differing(models[name], unlike, suites)
        after, worst, none = _differing(models[name], Rules(), suites)
        figures += [
            Figure(f"false change from plain claimed, {called}: before", before, "%"),
            at_most(f"false change from plain claimed, {called}: now", after, "%", 5.0),
            Figure(f"largest mean difference from plain, {called}: now", worst, "%"),
        ]
        if name == "heat":
            figures += [
                Figure("throttled runs that counted: before", counted, ""),
                at_most("throttled runs that counted: now", none, "", 0),
            ]
    power = _detected_percent(models["all"], suites)
    return [*figures, at_least("true 3 % found with all of them, 10 blocks", power, "%", 80.0)]


def _differing(model: DiskModel, rules: Rules, suites: int) -> tuple[float, float, int]:
    """Return the share of comparisons that claim a change (%), the largest mean difference (%).

    A change within the margin counts. The third figure is the number of throttled runs that count.
    """
    ratios: dict[str, list[float]] = {}
    differ = counted = 0
    for number in range(suites):
        suite = Suite(rules, model, SEED + number)
        suite.run()
        counted += suite.counted
        for name, comparison in suite.comparisons().items():
            ratios.setdefault(name, []).append(comparison.ratio)
            differ += comparison.verdict == "differs" or comparison.equivalent_but_changed
    # Where every run was void there is no verdict, so none is false.
    comparisons = max(1, sum(len(some) for some in ratios.values()))
    worst = max((abs(100 * (sum(s) / len(s) - 1)) for s in ratios.values()), default=0.0)
    return 100 * differ / comparisons, worst, counted


def _detected_percent(model: DiskModel, suites: int) -> float:
    """Return the share of suites that find both dm-crypt stacks to differ, in %."""
    detected = 0
    for number in range(suites):
        suite = Suite(Rules(), model, SEED + number, ratio=EFFECT)
        suite.run()
        verdicts = suite.comparisons()
        detected += all(
            verdicts[n].verdict == "differs" for n in verdicts if n.startswith("dmcrypt")
        )
    return 100 * detected / suites
