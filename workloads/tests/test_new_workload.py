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
from workloads.new_workload import NewWorkloadError, lay_out, main

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


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_copy(tmp_path_factory.mktemp("copy"))


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


def test_a_new_workload_works_at_once_and_says_what_is_left(tmp_path: Path) -> None:
    package = a_copy(tmp_path)
    laid_out = run(tmp_path, "workloads.new_workload", NAME)
    assert laid_out.returncode == 0, laid_out.stderr
    path = package / f"{NAME}.py"
    assert str(path) in laid_out.stdout
    assert not re.search("@[A-Z]+@", path.read_text())

    options = ["-p", "no:cacheprovider", "-q", "-m", "not lab", "-k", NAME]
    found = run(tmp_path, "pytest", *options, "workloads")
    failed = re.findall(r"^FAILED (\S+)", found.stdout, flags=re.M)
    test = "workloads/tests/test_contract.py::test_nothing_is_left_to_fill_in"
    assert failed == [f"{test}[{NAME}]"], found.stdout
    assert f"{NAME}.py:1:" in found.stdout
    assert "error" not in found.stdout.splitlines()[-1]
    # The contract, what is missing, a failing program, its name and parameters.
    assert int(re.findall(r"(\d+) passed", found.stdout)[0]) >= 6


def test_a_new_workload_is_clean(package: Path) -> None:
    folder = package.parent
    file = str(lay_out("a_rather_long_name_42", package))
    for check in (["check"], ["format", "--check"]):
        linted = run(folder, "ruff", *check, "--no-cache", file)
        assert linted.returncode == 0, linted.stdout
    cache = folder / "mypy"
    if (known := PACKAGE.parent / ".mypy_cache").is_dir():  # else it reads all libraries first
        shutil.copytree(known, cache)
    typed = run(folder, "mypy", "--cache-dir", str(cache), "--strict", file)
    assert typed.returncode == 0, typed.stdout


@pytest.mark.parametrize(
    ("name", "message"),
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
def test_other_names_are_refused_and_change_nothing(name: str, message: str, package: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in package.rglob("*")}
    with pytest.raises(NewWorkloadError, match=message):
        lay_out(name, package)
    assert {path: path.stat().st_mtime_ns for path in package.rglob("*")} == before


def test_the_command_line_speaks_plainly(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("fde: There is a workload called sql already")
    assert main([]) == 2
