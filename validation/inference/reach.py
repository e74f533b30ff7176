"""How often a whole page has any false verdict, in suites with awkward data.

The simulators here draw logarithms of joules by themselves and share nothing with the analysis;
what is judged is what `analysis.stats.family.judge` and `compare --fail-on` decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from analysis.report import compare_page
from analysis.stats.compare import compare_read
from analysis.stats.family import Family, judge
from validation.bench import Figure
from validation.inference.simulated import no_more_by_chance, share
from validation.synthetic.tables import energy_of, suite_of

SUITES, FEW, SERIES = 300, 6, 60
SEED = 20_270_101
CONFIGURATIONS = ("plain", "opal", "soft", "strong")
KINDS = {"plain": "plain", "opal": "opal", "soft": "dmcrypt", "strong": "dmcrypt"}
CONTRASTS = [("plain", "opal"), ("plain", "soft"), ("plain", "strong"), ("opal", "soft")]
WORKLOADS = tuple(f"w{number}" for number in range(5))
MARGIN = 0.02
BEYOND = 1.0001 * math.log1p(MARGIN)
Generator = np.random.Generator


@dataclass(frozen=True)
class Scene:
    """Logarithms of joules: what a block does to all, the scatter of runs, and one fault.

    `truth` is the true logarithm of each configuration's ratio, without `add`. That draws what a
    fault adds to the third configuration (workloads × blocks), with its true mean, or to all.
    """

    name: str
    truth: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    run_sd: float = 0.004
    add: Callable[[Generator, int], tuple[np.ndarray, float]] | None = None
    to_all: Callable[[Generator, tuple[int, ...]], np.ndarray] | None = None

    def draw(self, seed: int, blocks: int) -> tuple[np.ndarray, np.ndarray]:
        """Return logarithms (workloads × blocks × configurations), and their true means."""
        generator = np.random.default_rng(seed)
        shape = len(WORKLOADS), blocks, len(CONFIGURATIONS)
        logs = np.array(self.truth) + generator.normal(0, 0.01, (1, blocks, 1))
        logs = logs + generator.normal(0, self.run_sd, shape)
        truth = np.tile(np.array(self.truth), (len(WORKLOADS), 1))
        if self.add is not None:
            added, mean = self.add(generator, blocks)
            logs[..., 2] += added
            truth[:, 2] += mean
        if self.to_all is not None:
            logs += self.to_all(generator, shape)
        return logs, truth


def _events(
    share_of: float, change: float, by_visit: bool
) -> Callable[[Generator, int], tuple[np.ndarray, float]]:
    """Return what adds `change` to a share of runs, or of visits with all their runs."""

    def add(generator: Generator, blocks: int) -> tuple[np.ndarray, float]:
        shape = (1 if by_visit else len(WORKLOADS), blocks)
        hit = np.broadcast_to(generator.random(shape) < share_of, (len(WORKLOADS), blocks))
        return math.log1p(change) * hit, share_of * math.log1p(change)

    return add


def _period(generator: Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw a wave of two blocks' length over runs whose order is random within each block."""
    _, blocks, entries = shape
    places = generator.permuted(np.tile(np.arange(entries), (blocks, 1)), axis=1)
    at = np.arange(blocks)[:, None] * entries + places
    wave = 0.02 * np.sin(math.pi * at / entries + generator.uniform(0, 2 * math.pi))
    return np.broadcast_to(wave, shape)


NOTHING = Scene("nothing differs")
SCENES = (
    NOTHING,
    Scene("mixed truths", (0.0, 0.0, BEYOND, BEYOND)),
    Scene(
        "one side skewed (exponential, 1 %)",
        add=lambda g, n: (0.01 * (g.exponential(size=(len(WORKLOADS), n)) - 1), 0.0),
    ),
    Scene(
        "one configuration scatters three times as much",
        add=lambda g, n: (g.normal(0, 0.0113, (len(WORKLOADS), n)), 0.0),
    ),
    Scene("a period of two blocks", to_all=_period),
    Scene("heavy tails (t3)", to_all=lambda g, shape: 0.004 * g.standard_t(3, shape)),
)
EVENTS = tuple(
    Scene(
        f"+{100 * change:.0f} % in {100 * share_of:.0f} % of {'visits' if by_visit else 'runs'}",
        add=_events(share_of, change, by_visit),
    )
    for by_visit in (False, True)
    for share_of, change in ((0.2, 0.25), (0.1, 0.4))
)
OUTLIERS = Scene(
    "1 % outliers of 10 sd", run_sd=0.006, to_all=lambda g, shape: 0.06 * (g.random(shape) < 0.01)
)


def measure(quick: bool = False) -> list[Figure]:
    """Return false words on pages, what is settled, then the gate of nights."""
    suites = FEW if quick else SUITES
    figures = [
        no_more_by_chance(
            f"any false word on a page, {scene.name}, {blocks} blocks",
            share(np.array([_is_false(scene, seed, blocks) for seed in _seeds(suites)])),
            suites,
            5,
        )
        for scene in SCENES
        for blocks in (6, 10)
    ]
    figures += [_false_if_seen(scene, blocks, suites) for scene in EVENTS for blocks in (6, 10)]
    figures += [
        _settled("differs", Scene("a true 3 %", (0.0, math.log(1.03), 0.26, 0.37), 0.03), n, suites)
        for n in (4, 6, 10)
    ]
    figures += [
        _settled("equivalent", replace(NOTHING, run_sd=0.01), blocks, suites) for blocks in (6, 10)
    ]
    figures += [_settled("equivalent", OUTLIERS, blocks, suites) for blocks in (6, 10, 40)]
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


def _seeds(suites: int) -> range:
    return range(SEED, SEED + suites)


def _is_false(scene: Scene, seed: int, blocks: int) -> bool:
    logs, truth = scene.draw(seed, blocks)
    return is_false(list_words(judge_logs(logs), truth))


def _false_if_seen(scene: Scene, blocks: int, suites: int) -> Figure:
    """Return the share of suites with a false word, of those in which an event occurred."""
    false = []
    for seed in _seeds(suites):
        logs, truth = scene.draw(seed, blocks)
        if np.any(logs[..., 2] - np.median(logs[..., 2]) > 0.1):
            false.append(is_false(list_words(judge_logs(logs), truth)))
    title = f"any false word, {scene.name}, one seen, {blocks} blocks"
    return no_more_by_chance(title, share(np.array(false or [False])), max(1, len(false)), 5)


def _settled(word: str, scene: Scene, blocks: int, suites: int) -> Figure:
    """Return how often the second configuration has this word over all workloads."""
    words = []
    for seed in _seeds(suites):
        family = judge_logs(scene.draw(seed, blocks)[0])
        contrast = next(c for c in family.contrasts if (c.base, c.other) == ("plain", "opal"))
        words.append(contrast.comparison is not None and contrast.comparison.verdict == word)
    scatter = f"runs scatter by {100 * scene.run_sd:g} %"
    title = f"{word} over all workloads, {scene.name}, {scatter}, {blocks} blocks"
    return Figure(title, share(np.array(words)), "%")


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
