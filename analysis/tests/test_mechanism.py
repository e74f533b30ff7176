"""Ratios of time and power of a contrast, and the sentence on them."""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.report import first_page, mechanism
from analysis.report.build import build
from analysis.report.verification import verify
from analysis.stats.contrasts import Contrast
from analysis.stats.family import judge
from analysis.stats.results import Results
from analysis.suite.clocks import TargetClock
from analysis.tests.known import known
from analysis.tests.pages import text_of
from controller.cli.app import main
from validation.synthetic.suite import Options, write_suite
from validation.synthetic.tables import energy_of, suite_of

KINDS = {"plain": "plain", "soft": "dmcrypt"}
LOADS = ("file_io", "sql", "idle")


def derived(time: float, power: float, scatter: tuple[float, float] = (0.001, 0.001)) -> Results:
    """Return ten blocks of two workloads, with dm-crypt's true ratios of time and power."""
    generator = np.random.default_rng(5)
    rows: list[dict[str, Any]] = []
    for block, name, load in itertools.product(range(10), KINDS, LOADS):
        is_soft = name == "soft" and load != "idle"
        seconds = 10 * (time if is_soft else 1) * math.exp(generator.normal(0, scatter[0]))
        watts = 30 * (power if is_soft else 1) * math.exp(generator.normal(0, scatter[1]))
        run = {"block": block, "configuration": name, "workload": load}
        rows.append({**run, "energy_j": seconds * watts, "duration_s": seconds})
    return Results(suite_of(KINDS, LOADS), TargetClock({}), energy_of(rows), ())


def contrast_of(results: Results) -> Contrast:
    (contrast,) = results.contrasts
    return contrast


def test_energy_is_time_multiplied_by_power_at_one_level() -> None:
    contrast = contrast_of(derived(1.12, 0.97))
    energy, time, power = map(known, contrast.parts)
    assert energy.ratio == pytest.approx(time.ratio * power.ratio, rel=1e-12)
    assert time.ratio == pytest.approx(1.12, rel=2e-3)
    assert (energy.n, energy.level) == (time.n, time.level) == (power.n, power.level)
    turned = contrast.inverted
    for part, inverse in zip(contrast.parts, turned.parts, strict=True):
        assert known(inverse).ratio == pytest.approx(1 / known(part).ratio)
    assert (turned.base, turned.other) == ("soft", "plain")


def test_a_block_without_joules_counts_for_neither_time_nor_power() -> None:
    results = derived(1.12, 1.0)
    energy = results.energy.with_columns(
        energy_j=results.energy["energy_j"].set(results.energy["block"] == 3, None)
    )
    (contrast,) = judge(results.suite, energy).contrasts
    assert {known(part).n for part in contrast.parts} == {9}


@pytest.mark.parametrize(
    ("time", "power", "scatter", "expected"),
    [
        (1.12, 1.0, (0.001, 0.001), "It takes # % longer at the same power."),
        (1.0, 1.04, (0.001, 0.001), "It draws # % more power for the same time."),
        (1.12, 1.04, (0.001, 0.001), "It takes # % longer and draws # % more power."),
        (1.12, 0.96, (0.001, 0.001), "It takes # % longer but draws # % less power."),
        (0.96, 1.12, (0.001, 0.001), "It takes # % less time but draws # % more power."),
        (1.12, 1.0, (0.001, 0.1), "It takes # % longer; power not settled."),
        (1.0, 1.12, (0.1, 0.001), "It draws # % more power; time not settled."),
        (1.0, 1.0, (0.1, 0.1), "Time and power are not settled."),
        (1.0, 1.0, (0.001, 0.001), "Time and power each differ by less than # %."),
    ],
)
def test_the_sentence_follows_from_both_intervals(
    time: float, power: float, scatter: tuple[float, float], expected: str
) -> None:
    contrast = contrast_of(derived(time, power, scatter))
    sentence = mechanism.sentence(contrast)
    assert re.sub(r"[\d.]+ %", "# %", sentence).startswith(expected)
    if time == 1.12 and "longer" in expected:
        assert f"{known(contrast.time).ratio * 100 - 100:.1f} % longer" in sentence


def test_it_is_in_the_answer_of_a_settled_cost_and_in_its_facts() -> None:
    results = derived(1.12, 1.0)
    line = first_page.lines(results, Path("s"))[0]
    assert (line.code, line.reason.endswith(mechanism.sentence(contrast_of(results)))) == (
        "more",
        True,
    )
    assert line.facts["time"][0] * line.facts["power"][0] == pytest.approx(line.facts["ratio"])
    unsettled = first_page.lines(derived(1.0, 1.0, (0.1, 0.1)), Path("s"))[0]
    assert unsettled.code == "unsettled" and "power" not in unsettled.reason


def test_before_the_planned_end_there_is_no_sentence() -> None:
    contrast = contrast_of(derived(1.12, 1.0))
    open_ = replace(contrast, time=replace(known(contrast.time), complete=False))
    assert mechanism.sentence(open_) == ""


def test_page_csv_and_json_have_the_same_ratios(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "s"
    write_suite(folder, Options(blocks=3, workloads=("sql",)))
    built = build(folder)
    with (folder / "contrasts.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert verify(folder).problems == ()
    assert main(["report", str(folder), "--json"]) == 0
    contrasts = json.loads(capsys.readouterr().out)["contrasts"]
    of_results = known(built.results).contrasts
    assert len(rows) == len(contrasts) == len(of_results) > 2
    for row, document, contrast in zip(rows, contrasts, of_results, strict=True):
        for name, part in (("time", known(contrast.time)), ("power", known(contrast.power))):
            figures = [part.ratio, part.low, part.high]
            assert [float(row[f"{name}{end}"]) for end in ("", "_low", "_high")] == figures
            assert [document[name][key] for key in ("mean", "low", "high")] == figures
            assert document[name]["n"] == part.n == int(row["n"])
    assert "Power [interval]" in built.page.read_text(encoding="utf-8")
    (folder / "contrasts.csv").write_text("base,other\n", encoding="utf-8")
    assert "contrasts.csv" in text_of(list(verify(folder).problems))
