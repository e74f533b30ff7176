"""What is reported of the time of tests: sessions of pytest, one test in each of two parts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab.pytest_times import part_of
from lab.state import REPOSITORY

# Each setup, call and teardown is reported with as many seconds as its folder has letters.
CONFTEST = """
from pathlib import Path
import pytest
from lab.pytest_times import Times

def pytest_addoption(parser):
    parser.addoption("--tier")

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Times(config.getoption("tier"), Path("bench/tests.json")))

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    report.duration = float(len(item.path.parents[1].name))
    return report
"""


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for part in ("lab", "controller"):
        folder = tmp_path / part / "tests"
        folder.mkdir(parents=True)
        (folder / f"test_of_{folder.parent.name}.py").write_text("def test_it(): pass\n")
    return tmp_path


def run(tests: Path, *options: str) -> str:
    argv = [sys.executable, "-m", "pytest", "-p", "xdist.plugin", *options]
    alone = {"PYTHONPATH": str(REPOSITORY), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(argv, cwd=tests, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("processes", ["0", "2"])
def test_every_tier_keeps_its_times_by_part(tests: Path, processes: str) -> None:
    run(tests, "--tier", "test", "-k", "lab")
    shown = run(tests, "--tier", "unit", "-n", processes)
    assert shown.index("30.0 s  controller") < shown.index("9.0 s  lab")
    first, second = json.loads((tests / "bench" / "tests.json").read_text())
    assert [first["tier"], first["parts"]] == ["test", {"lab": 9.0}]
    assert [second["tier"], second["parts"]] == ["unit", {"controller": 30.0, "lab": 9.0}]
    assert second["slowest"] == [
        {"test": "controller/tests/test_of_controller.py::test_it", "s": 30.0},
        {"test": "lab/tests/test_of_lab.py::test_it", "s": 9.0},
    ]
    assert second["wall_s"] > 0


def test_times_without_a_tier_are_shown_and_not_kept(tests: Path) -> None:
    assert "time by part" in run(tests)
    assert not (tests / "bench").exists()


def test_a_part_is_the_folder_above_the_tests() -> None:
    assert part_of("controller/tests/test_many.py::test_a[x/tests/y]") == "controller"
    assert part_of("test_alone.py::test_a") == "."
