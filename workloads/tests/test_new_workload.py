"""Laying out a new workload, in a copy of the package: what it writes must work at once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import workloads
from workloads.new_workload import NewWorkloadError, lay_out

PACKAGE = Path(workloads.__file__).parent
NAME = "foo_2"
TESTS = ("test_contract.py", "test_registry.py", "test_suites.py")


def a_copy(folder: Path) -> Path:
    """The package with the tests that hold for every workload, and how they are run."""
    package = folder / "workloads"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", "test_*.py"))
    for name in TESTS:
        shutil.copy(PACKAGE / "tests" / name, package / "tests")
    shutil.copytree(PACKAGE.parent / "contract", folder / "contract")
    shutil.copy(PACKAGE.parent / "pyproject.toml", folder)
    return package


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def pytest_of(folder: Path, which: str) -> subprocess.CompletedProcess[str]:
    options = ["-p", "no:cacheprovider", "-q", "-m", "not lab", "-k", which]
    return run(folder, "pytest", *options, "workloads")


def test_a_new_workload_works_at_once_and_says_what_is_left(tmp_path: Path) -> None:
    package = a_copy(tmp_path)
    laid_out = run(tmp_path, "workloads.new_workload", NAME)
    assert laid_out.returncode == 0, laid_out.stderr
    path = package / f"{NAME}.py"
    assert str(path) in laid_out.stdout
    assert not re.search("@[A-Z]+@", path.read_text())

    found = pytest_of(tmp_path, f"{NAME}")
    failed = re.findall(r"^FAILED (\S+)", found.stdout, flags=re.M)
    test = "workloads/tests/test_contract.py::test_nothing_is_left_to_fill_in"
    assert failed == [f"{test}[{NAME}]"], found.stdout
    assert f"{NAME}.py:1:" in found.stdout
    assert "error" not in found.stdout.splitlines()[-1]
    # The contract, what is missing, a failing program, its name and parameters.
    assert int(re.findall(r"(\d+) passed", found.stdout)[0]) >= 6

    path.write_text(path.read_text().replace("FILL_IN", "filled in"))
    filled = pytest_of(tmp_path, "fill_in")
    assert filled.returncode == 0, filled.stdout


def test_a_new_workload_is_clean(tmp_path: Path) -> None:
    package = a_copy(tmp_path)
    file = lay_out("a_rather_long_name_42", package)
    for check in (["check"], ["format", "--check"]):
        linted = run(tmp_path, "ruff", *check, "--no-cache", str(file))
        assert linted.returncode == 0, linted.stdout
    typed = run(tmp_path, "mypy", "--cache-dir", str(tmp_path / "mypy"), "--strict", str(file))
    assert typed.returncode == 0, typed.stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "cannot name a workload"),
        ("Foo", "cannot name a workload"),
        ("2foo", "cannot name a workload"),
        ("foo-bar", "cannot name a workload"),
        ("../foo", "cannot name a workload"),
        ("foo\n", "cannot name a workload"),
        ("f" * 25, "cannot name a workload"),
        ("class", "word of Python"),
        ("file_io", "already"),
        ("base", "is there already"),
    ],
)
def test_other_names_are_refused_and_change_nothing(name: str, said: str, tmp_path: Path) -> None:
    package = a_copy(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(NewWorkloadError, match=said):
        lay_out(name, package)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_the_command_line_speaks_plainly(tmp_path: Path) -> None:
    a_copy(tmp_path)
    refused = run(tmp_path, "workloads.new_workload", "sql")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("fde: There is a workload called sql already")
    assert run(tmp_path, "workloads.new_workload").returncode == 2
