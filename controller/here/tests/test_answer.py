"""The answer of `fde here` on the terminal: its figures are the report's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.storage.backing import Backing
from analysis.report.render import WIDTH
from analysis.stats.results import results
from controller.here.answer import OVERALL, answer
from controller.here.survey import NO_METER, limits
from controller.here.tests.test_survey import MACHINE
from validation.synthetic.suite import Options, write_suite

CONFIGURATIONS = ("plain", "dmcrypt-aes128", "dmcrypt-aes256")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suites") / "here"
    workloads = ("kernel_tree", "kernel_grep", "sql", "idle")
    write_suite(folder, Options(blocks=6, workloads=workloads, configurations=CONFIGURATIONS))
    return folder


def test_the_answer_fits_a_terminal_and_has_the_reports_figures(suite: Path) -> None:
    result = answer(suite, suite / "report.html", MACHINE)
    assert len(result.lines) <= 25
    assert max(map(len, result.lines[:-2])) <= WIDTH  # paths may be longer
    contrasts = {c.other: c.comparison for c in results(suite).contrasts if c.base == "plain"}
    overall = {cost.configuration: cost for cost in result.costs if cost.workload == OVERALL}
    assert set(overall) == set(CONFIGURATIONS) - {"plain"}
    for name, cost in overall.items():
        pair = contrasts[name]
        assert pair is not None
        assert (cost.ratio, cost.ratio_low, cost.ratio_high, cost.verdict) == (
            *(pair.ratio, pair.low, pair.high, pair.verdict),
        )
    assert {cost.workload for cost in result.costs} == {
        *("kernel_tree", "kernel_grep", "sql", "idle", OVERALL)
    }


def test_a_limit_of_the_machine_is_a_line(suite: Path) -> None:
    encrypted = replace(MACHINE, storage=Backing("ext4", ("dm-crypt", "disk")))
    lines = answer(suite, suite / "report.html", encrypted).lines
    assert any("second layer" in line for line in lines)
    assert max(map(len, (NO_METER, *limits(encrypted)))) <= WIDTH
