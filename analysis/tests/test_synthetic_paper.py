"""The paper's conclusions come out of a suite drawn from its figures."""

from __future__ import annotations

import math
from dataclasses import replace

import polars as pl
import pytest

from analysis.money.costs import HOURS_PER_DAY, hours_a_day, paybacks
from analysis.report import words
from analysis.report.money_section import money_section
from analysis.stats.comparison import Comparison
from analysis.stats.results import Results, results
from analysis.tests.known import known
from analysis.tests.pages import Shared, text_of
from validation.synthetic.paper import expected, write_paper_suite

SOFTWARE = ("dmcrypt-aes128", "dmcrypt-aes256")


@pytest.fixture(scope="module")
def paper(shared: Shared) -> Results:
    return results(shared("paper", write_paper_suite)[0])


def _verdicts(paper: Results, workload: str) -> dict[str, str]:
    rows = paper.summary.filter(workload=workload, component="system")
    return dict(rows.select("configuration", "verdict").iter_rows())


def _contrast(paper: Results, base: str, other: str) -> Comparison:
    contrast = next(c for c in paper.contrasts if (c.base, c.other) == (base, other))
    assert contrast.declared and contrast.comparison is not None
    return contrast.comparison


def test_phase_means_match_the_papers_figures(paper: Results) -> None:
    """Over 20 blocks the mean of each phase lies within four standard errors of the figure."""
    means = (
        paper.energy.filter(component="system")
        .group_by("configuration", "workload", "phase")
        .agg(pl.col("energy_j").mean(), pl.col("duration_s").mean())
    )
    by_cell = {tuple(row[:3]): row[3:] for row in means.iter_rows()}
    for configuration, workloads in expected().items():
        for workload, phases in workloads.items():
            for phase, figure in phases.items():
                joules, seconds = by_cell[configuration, workload, phase]
                slack = 4 / 20**0.5
                assert joules == pytest.approx(
                    figure.joules, rel=slack * figure.scatter_j + 1e-3
                ), (configuration, phase)
                assert seconds == pytest.approx(figure.seconds, rel=slack * figure.scatter_s + 1e-4)


def test_hardware_is_as_good_as_plain(paper: Results) -> None:
    assert _contrast(paper, "plain", "opal").verdict == "equivalent"


@pytest.mark.parametrize("name", SOFTWARE)
def test_software_is_dearer_than_plain_and_than_hardware(paper: Results, name: str) -> None:
    for base in ("plain", "opal"):
        contrast = _contrast(paper, base, name)
        assert contrast.verdict == "differs"
        assert contrast.low is not None and contrast.low > 1.1
    for workload in ("file_io", "kernel_tree", "kernel_grep"):
        assert _verdicts(paper, workload)[name] == "differs"


@pytest.mark.parametrize("workload", ["sql", "video"])
def test_sql_and_video_show_no_difference(paper: Results, workload: str) -> None:
    verdicts = _verdicts(paper, workload)
    assert verdicts.pop("plain") == ""
    assert len(verdicts) == 3 and set(verdicts.values()) <= {"equivalent", "inconclusive"}


def test_the_papers_days_of_work_take_longer_than_its_minutes(paper: Results) -> None:
    """A run of the tree takes 7 minutes at the paper's power, and not its 2."""
    hours = hours_a_day(paper.suite, paper.energy, {"kernel_tree": 24.0})
    assert hours == pytest.approx(3, abs=0.1)
    drives = [p for p in paybacks(paper.suite, paper.energy) if p.workload == "kernel_tree"]
    assert [known(p.runs).mean for p in drives] == pytest.approx([750_000] * 2, rel=0.25)
    text = text_of(money_section(paper))
    for span in (known(drives[0].runs), known(drives[0].hours)):
        assert words.span(span) in text
    assert "years without a pause; at the declared work and with interest: never." in text


def test_the_drive_is_not_repaid_within_its_life(paper: Results) -> None:
    """Even of a machine that does nothing else all day."""
    assumptions = known(paper.suite.assumptions)
    life = assumptions.life_years
    most = math.floor(HOURS_PER_DAY / hours_a_day(paper.suite, paper.energy, {"kernel_tree": 1.0}))
    busy = replace(paper.suite, assumptions=replace(assumptions, runs_per_day=float(most)))
    drives = [p for p in paybacks(busy, paper.energy) if p.workload == "kernel_tree"]
    assert [p.against for p in drives] == list(SOFTWARE)
    for payback in drives:
        assert payback.saving_j.mean == pytest.approx(1000, abs=250)
        assert payback.runs is not None and payback.runs.mean == pytest.approx(750_000, rel=0.25)
        assert payback.years is not None and payback.years.low is not None
        assert payback.years.low > life
