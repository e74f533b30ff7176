"""Names of phases for people, and the paper's own figures."""

from __future__ import annotations

import pytest

from analysis.report.words import PhaseName, parse
from analysis.report.workload_section import workload_section
from analysis.stats.results import Results
from analysis.tests.pages import text_of


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


def test_the_papers_own_figures_are_drawn_of_one_configuration_too(papers: Results) -> None:
    energy = papers.energy.filter(configuration="plain")
    alone = Results(papers.suite, papers.clock, energy, ())
    page = text_of(workload_section(alone, "file_io", set()))
    assert "As the paper" in page
