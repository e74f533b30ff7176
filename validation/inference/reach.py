"""How often a whole page has any false verdict, in suites with awkward data.

The simulators here draw logarithms of joules by themselves and share nothing with the analysis;
what is judged is what `analysis.stats.family.judge` and `compare --fail-on` decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from analysis.report import compare_page
from analysis.stats.compare import compare_read
from analysis.stats.family import Family, judge
from validation.bench import Figure
from validation.inference.simulated import no_more_by_chance, share
from validation.synthetic.tables import energy_of, suite_of

SUITES, FEW, SERIES = 300, 6, 60
SEED = 20_261_201
CONFIGURATIONS = ("plain", "opal", "soft", "strong")
KINDS = {"plain": "plain", "opal": "opal", "soft": "dmcrypt", "strong": "dmcrypt"}
CONTRASTS = [("plain", "opal"), ("plain", "soft"), ("plain", "strong"), ("opal", "soft")]
WORKLOADS = tuple(f"w{number}" for number in range(5))
MARGIN = 0.02
Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


def measure(quick: bool = False) -> list[Figure]:
    """Return the pages, then the gate of nights."""
    suites = FEW if quick else SUITES
    scenes: list[tuple[str, Draw, int]] = [
        ("nothing differs", _kind, 10),
        ("mixed truths", _mixed, 10),
        ("one side skewed (exponential)", _skewed, 10),
        ("+25 % in 20 % of one configuration's runs", _modes, 10),
        ("the same, 5 blocks", _modes, 5),
    ]
    figures = [
        no_more_by_chance(
            f"any false verdict on a page, {name}, {blocks} blocks",
            _false(draw, suites, blocks),
            suites,
            5,
        )
        for name, draw, blocks in scenes
    ]
    figures.append(Figure("a true 3 % found, clean, 10 blocks", _power(suites), "%"))
    series = 3 if quick else SERIES
    return figures + [
        no_more_by_chance(
            f"--fail-on 0 fails in 20 nights with nothing changed, nights differ by {sd:.1%}",
            share(np.array([_alarm(sd, SEED + seed) for seed in range(series)])),
            series,
            5,
        )
        for sd in (0.0, 0.005, 0.01)
    ]


def _kind(generator: np.random.Generator, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw logarithms (workloads × blocks × configurations), and return the true mean of each."""
    shape = len(WORKLOADS), blocks, len(CONFIGURATIONS)
    logs = generator.normal(0, 0.01, (1, blocks, 1)) + generator.normal(0, 0.004, shape)
    return logs, np.zeros(shape[::2])


def _mixed(generator: np.random.Generator, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    logs, truth = _kind(generator, blocks)
    beyond = 1.0001 * math.log1p(MARGIN)
    logs[..., 2:] += beyond
    truth[:, 2:] += beyond
    return logs, truth


def _skewed(generator: np.random.Generator, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    logs, truth = _kind(generator, blocks)
    logs[..., 2] += 0.01 * (generator.exponential(size=logs.shape[:2]) - 1)
    return logs, truth


def _modes(generator: np.random.Generator, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    logs, truth = _kind(generator, blocks)
    logs[..., 2] += math.log(1.25) * (generator.random(logs.shape[:2]) < 0.2)
    truth[:, 2] += 0.2 * math.log(1.25)
    return logs, truth


def judge_logs(logs: np.ndarray) -> Family:
    """Judge the page of a suite with these logarithms of joules."""
    analysis = {"contrasts": CONTRASTS, "margin": MARGIN}
    suite = suite_of(KINDS, WORKLOADS, analysis=analysis)
    table = energy_of(
        {
            "workload": WORKLOADS[w],
            "configuration": CONFIGURATIONS[c],
            "block": b,
            "energy_j": 1000 * math.exp(logs[w, b, c]),
        }
        for w, b, c in np.ndindex(*logs.shape)
    )
    return judge(suite, table)


def list_words(family: Family, truth: np.ndarray) -> list[tuple[str, float]]:
    """List each verdict word of a page with the true logarithm of its ratio."""
    place = {name: number for number, name in enumerate(CONFIGURATIONS)}
    words: list[tuple[str, float]] = [
        (
            contrast.comparison.verdict,
            float(np.mean(truth[:, place[contrast.other]] - truth[:, place[contrast.base]])),
        )
        for contrast in family.contrasts
        if contrast.comparison is not None
    ]
    for (workload, name, *_), c in family.versus.items():
        row = truth[WORKLOADS.index(workload)]
        words.append((c.verdict, float(row[place[name]] - row[0])))
    return words


def is_false(words: list[tuple[str, float]]) -> bool:
    """Return whether any of these words is false."""
    return any(
        (word == "differs" and true == 0)
        or (word == "equivalent" and abs(true) > math.log1p(MARGIN))
        for word, true in words
    )


def _false(draw: Draw, suites: int, blocks: int) -> float:
    wrong = []
    for number in range(suites):
        generator = np.random.default_rng(SEED + number)
        logs, truth = draw(generator, blocks)
        wrong.append(is_false(list_words(judge_logs(logs), truth)))
    return share(np.array(wrong))


def _power(suites: int) -> float:
    """Return how often a change of 3 % of one configuration is found, in rows and contrasts."""
    detections = []
    for number in range(suites):
        logs, truth = _kind(np.random.default_rng(SEED + number), 10)
        logs[..., 2] += math.log(1.03)
        truth[:, 2] += math.log(1.03)
        words = list_words(judge_logs(logs), truth)
        detections += [word == "differs" for word, true in words if true > 0]
    return share(np.array(detections))


def _alarm(night_sd: float, seed: int) -> bool:
    """Simulate 21 nights, each with an effect on all rows and a third of it on each row."""
    generator = np.random.default_rng(seed)
    read = []
    for night in range(21):
        common = generator.normal(0, night_sd)
        rows = []
        for workload in WORKLOADS[:2]:
            for name in CONFIGURATIONS[:2]:
                effects = common + generator.normal(0, night_sd / 3)
                for block in range(10):
                    joules = 1000 * math.exp(effects + generator.normal(0, 0.005))
                    key = {"workload": workload, "configuration": name, "block": block}
                    rows.append({**key, "energy_j": joules})
        plan = {"suite_id": f"n{night}", "created_wall": f"2026-01-{night + 1:02d}T00:00:00"}
        kinds = {name: KINDS[name] for name in CONFIGURATIONS[:2]}
        read.append((suite_of(kinds, WORKLOADS[:2], (), (), **plan), energy_of(rows)))
    return bool(compare_page.failures(compare_read(read), 0))
