"""Names of phases for people, and the pictures that go by them."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.report.figures import by_phase, by_size
from analysis.report.words import PhaseName, parse
from analysis.report.workload_section import workload_section
from analysis.stats.results import Results
from analysis.stats.stats import Estimate
from analysis.stats.summary import UNITS, PerUnit
from analysis.tests.pages import text_of


def row(phase: str, energy_j: float | None, configuration: str = "plain") -> PerUnit:
    value = None if energy_j is None else Estimate(3, energy_j, energy_j * 0.9, energy_j * 1.1)
    return PerUnit(configuration, phase, UNITS["bytes"], value, None, None, None)


@pytest.mark.parametrize(
    ("phase", "name", "shown"),
    [
        ("read-large", PhaseName(("read-large",)), "read-large"),
        ("read.4096B", PhaseName(("read",), 4096, "B"), "read 4\u00a0KB"),
        (
            "aes-128-cbc.encrypt.text.20971520B",
            PhaseName(("aes-128-cbc", "encrypt", "text"), 20 * 2**20, "B"),
            "aes-128-cbc encrypt text 20\u00a0MB",
        ),
        (
            "des-ecb.encrypt.20527B",
            PhaseName(("des-ecb", "encrypt"), 20527, "B"),
            "des-ecb encrypt 20\u202f527\u00a0B",
        ),
        (
            "pbkdf2-sha512.500000i",
            PhaseName(("pbkdf2-sha512",), 500_000, "i"),
            "pbkdf2-sha512 500\u202f000 iterations",
        ),
        ("argon2id.t4-m64KiB-p2", PhaseName(("argon2id", "t4-m64KiB-p2")), "argon2id t4-m64KiB-p2"),
        ("0B", PhaseName(("0B",)), "0B"),
        ("", PhaseName(("",)), ""),
    ],
)
def test_a_name_says_what_is_done_to_how_much(phase: str, name: PhaseName, shown: str) -> None:
    assert parse(phase) == name
    assert name.shown == shown


def test_of_several_sizes_the_largest_is_shown_by_phase() -> None:
    rows = [
        row("des-cbc.encrypt.9B", 1),
        row("des-cbc.encrypt.10B", 2),
        row("des-cbc.decrypt.10B", None),
        row("aes-128-cbc.encrypt.10B", 3),
    ]
    shown = [(point.head, point.what, point.energy_j.mean) for point in by_phase.points(rows)]
    assert shown == [("des-cbc", "encrypt", 2), ("aes-128-cbc", "encrypt", 3)]


def test_settings_of_one_function_stand_with_its_name() -> None:
    rows = [row("pbkdf2-sha512.9i", 1), row("pbkdf2-sha256.9i", 2), row("argon2id.t4-p2", 3)]
    shown = [(point.head, point.what) for point in by_phase.points(rows)]
    assert shown == [("pbkdf2-sha512", ""), ("pbkdf2-sha256", ""), ("argon2id t4-p2", "")]


def test_a_curve_has_three_sizes_in_their_order() -> None:
    sizes = [row(f"read.{size}B", 1, name) for name in ("plain", "opal") for size in (9, 100, 10)]
    series = by_size.series([*sizes, row("write.9B", 1), row("burst.read", 1)])
    assert list(series) == ["read"]
    assert {name: [size for size, _ in line] for name, line in series["read"].items()} == {
        "plain": [9, 10, 100],
        "opal": [9, 10, 100],
    }


@pytest.mark.parametrize(
    ("workload", "has", "lacks"),
    [
        ("cipher_modes", "per unit of work by phase", "Bars: means"),
        ("block_sizes", "per unit of work by size of request", "per unit of work by phase"),
        ("file_io", "As the paper", "per unit of work by phase"),
    ],
)
def test_a_workload_has_the_pictures_that_tell_of_it(
    papers: Results, workload: str, has: str, lacks: str
) -> None:
    page = text_of(workload_section(papers, workload, set()))
    assert has in page
    assert lacks not in page


def test_the_papers_own_figures_are_drawn_of_one_configuration_too(papers: Results) -> None:
    energy = papers.energy.filter(configuration="plain")
    alone = Results(papers.suite, papers.clock, energy, ())
    page = text_of(workload_section(alone, "file_io", set()))
    assert "As the paper" in page
    assert "per unit of work by phase" not in page


def test_threads_are_drawn_with_joules_and_seconds(papers: Results) -> None:
    rate = Estimate(3, 50.0, 40.0, 60.0)
    names = papers.suite.configurations[:2]
    rows = [
        PerUnit(
            name, f"read.{n}t", UNITS["bytes"], Estimate(3, n, n * 0.9, n * 1.1), rate, None, None
        )
        for name in names
        for n in (1, 2, 4)
    ]
    figure = by_size.draw(rows, papers.suite, "t", "modelled", "t")
    assert figure is not None
    energy, time = figure.axes
    assert (energy.get_ylabel(), time.get_ylabel()) == ("Energy (J/MB)", "Time (s/MB)")
    assert time.get_xlabel() == "Threads"
    line = time.get_lines()[0]
    assert np.asarray(line.get_xdata()).tolist() == [1, 2, 4]
    assert np.asarray(line.get_ydata()).tolist() == [1 / 50] * 3
    assert by_size.draw(rows, papers.suite, "t", "modelled", "B") is None
