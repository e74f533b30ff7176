"""Simulated suites on modelled disks: a bias that is there is seen, and gone once it is cured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.suite import records
from analysis.suite.suite_folder import read
from contract.errors import LabError
from instrumentation.tests.trees import TREES
from lab import devices
from validation.fairness import simulated, sockets
from validation.fairness.simulated import BEFORE, ENTRY_S, WORKLOADS, Rules, Suite
from validation.synthetic.suite import Options, write_suite

SAME_DISK = replace(BEFORE, one_disk=True)


@pytest.fixture(autouse=True)
def large_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a quarter of the requests: their size does not change what disks do to a suite."""
    monkeypatch.setattr(simulated, "REQUEST_MIB", 16)


def suite(model: str, rules: Rules, ratio: float = 1.0) -> Suite:
    simulated_suite = Suite(rules, devices.find(model), seed=1, ratio=ratio)
    simulated_suite.run()
    return simulated_suite


def differing(suite: Suite) -> set[str]:
    return {
        name for name, comparison in suite.comparisons().items() if comparison.verdict == "differs"
    }


def test_every_configuration_runs_everything_once_a_block() -> None:
    warm = suite("warm", Rules())
    assert set(warm.joules) == set(ENTRY_S)
    runs = {len(values) for blocks in warm.joules.values() for values in blocks.values()}
    assert runs == {len(WORKLOADS)}
    assert {len(blocks) for blocks in warm.joules.values()} == {warm.blocks}


def test_discards_that_stop_at_dm_crypt_make_it_look_worse() -> None:
    assert differing(suite("used", SAME_DISK)) == {"dmcrypt-aes128", "dmcrypt-aes256"}
    assert differing(suite("used", replace(SAME_DISK, discard_first=True))) == set()


def test_a_separate_disk_makes_opal_look_worse() -> None:
    assert "opal" in differing(suite("specimens", replace(Rules(), one_disk=False)))
    assert differing(suite("specimens", Rules())) == set()


def test_throttled_runs_count_only_without_the_check() -> None:
    before = suite("heat", SAME_DISK)
    assert before.counted == before.throttled > 0
    assert suite("heat", Rules()).counted == 0


def test_a_true_effect_is_found() -> None:
    assert differing(suite("all", Rules(), ratio=1.03)) == {"dmcrypt-aes128", "dmcrypt-aes256"}


@pytest.mark.parametrize(
    "text",
    [
        "a: {every: {}}",
        "a: {source: x}",
        "a: {source: x, every: {}, disks: {}}",
        "a: {source: x, every: {y: 1}}",
    ],
)
def test_a_file_of_models_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "models.yml"
    path.write_text(text)
    with pytest.raises(LabError, match="does not give models of disks"):
        devices.load(path)


def test_a_model_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(LabError, match=r"no model of disks none: choose from write-cache, heat"):
        devices.find("none")


@pytest.fixture(scope="module")
def idle_suite(tmp_path_factory: pytest.TempPathFactory) -> records.Suite:
    folder = tmp_path_factory.mktemp("suites") / "idle"
    write_suite(folder, Options(blocks=1, workloads=("idle",)))
    return read(folder)


@pytest.mark.parametrize("name", TREES)
def test_all_sockets_are_one_sum_in_which_nothing_counts_twice(
    idle_suite: records.Suite, tmp_path: Path, name: str
) -> None:
    tree = TREES[name]
    joules = sockets.energies(tree, idle_suite, tmp_path)
    summed = {part: sockets.sum_part(joules, part) for part in ("package", "dram")}
    assert summed == sockets.expected(tree)
    assert set(tree.names) <= joules.keys()
