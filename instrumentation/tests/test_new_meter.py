"""Laying out a new meter, in a copy of the package: what it writes must work at once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import instrumentation
from instrumentation.new_meter import NewMeterError, lay_out, main

PACKAGE = Path(instrumentation.__file__).parent
KIND = "foo_2"
FEW_EXAMPLES = """
import hypothesis

hypothesis.settings.register_profile("few", deadline=None, max_examples=5)
hypothesis.settings.load_profile("few")
"""


def a_copy(folder: Path) -> Path:
    """The package, what it stands on, and how the tests are run."""
    package, root = folder / "instrumentation", PACKAGE.parent
    ignored = shutil.ignore_patterns("__pycache__", "test_*.py")
    shutil.copytree(PACKAGE, package, ignore=ignored)
    shutil.copytree(root / "contract", folder / "contract", ignore=ignored)
    shutil.copy(PACKAGE / "tests" / "test_meters_contract.py", package / "tests")
    shutil.copy(root / "pyproject.toml", folder)
    (folder / "conftest.py").write_text(FEW_EXAMPLES)
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


def test_new_meter_works_at_once_and_says_what_is_left(tmp_path: Path) -> None:
    package = a_copy(tmp_path)
    laid_out = run(tmp_path, "instrumentation.new_meter", KIND)
    assert laid_out.returncode == 0, laid_out.stderr
    files = [package / "meters" / f"{KIND}.py", package / "simulators" / f"{KIND}.py"]
    files.append(package / "tests" / f"test_{KIND}.py")
    for path in files:
        assert str(path) in laid_out.stdout
        assert not re.search("@[A-Z]+@", path.read_text())

    tested = run(tmp_path, "pytest", "-p", "no:cacheprovider", "-q", "-k", KIND, "instrumentation")
    failed = re.findall(r"^FAILED (\S+)", tested.stdout, flags=re.M)
    only = f"instrumentation/tests/test_meters_contract.py::test_nothing_is_left_to_fill_in[{KIND}]"
    assert failed == [only], tested.stdout
    assert f"meters/{KIND}.py:1:" in tested.stdout
    assert "error" not in tested.stdout.splitlines()[-1]
    assert int(re.findall(r"(\d+) passed", tested.stdout)[0]) > 30


def test_new_meter_is_clean(package: Path) -> None:
    folder = package.parent
    # Where our own imports belong depends on the name.
    files = [str(path) for kind in ("acme", "z0_rather_long_9") for path in lay_out(kind, package)]
    for check in (["check"], ["format", "--check"]):
        linted = run(folder, "ruff", *check, "--no-cache", *files)
        assert linted.returncode == 0, linted.stdout
    cache = folder / "mypy"
    if (known := PACKAGE.parent / ".mypy_cache").is_dir():  # else it reads all libraries first
        shutil.copytree(known, cache)
    typed = run(folder, "mypy", "--cache-dir", str(cache), "--strict", *files[:3])
    assert typed.returncode == 0, typed.stdout


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "cannot name a meter"),
        ("Foo", "cannot name a meter"),
        ("2foo", "cannot name a meter"),
        ("foo-bar", "cannot name a meter"),
        ("_foo", "cannot name a meter"),
        ("../foo", "cannot name a meter"),
        ("foo\n", "cannot name a meter"),
        ("f" * 17, "cannot name a meter"),
        ("class", "word of Python"),
        ("wattsup", "already"),
        ("base", "is there already"),
        ("play", "is there already"),
    ],
)
def test_other_names_are_refused_and_change_nothing(name: str, message: str, package: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in package.rglob("*")}
    with pytest.raises(NewMeterError, match=message):
        lay_out(name, package)
    assert {path: path.stat().st_mtime_ns for path in package.rglob("*")} == before


def test_command_line_speaks_plainly(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["smartpower3"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("fde: There is a meter called smartpower3 already")
    assert main([]) == 2
