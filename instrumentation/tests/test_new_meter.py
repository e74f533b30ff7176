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
from instrumentation.new_meter import NewMeterError, lay_out

PACKAGE = Path(instrumentation.__file__).parent
KIND = "foo_2"


def a_copy(folder: Path) -> Path:
    """The package, what it stands on, and how the tests are run."""
    package = folder / "instrumentation"
    ignored = shutil.ignore_patterns("__pycache__", "test_*.py")
    shutil.copytree(PACKAGE, package, ignore=ignored)
    shutil.copytree(PACKAGE.parent / "contract", folder / "contract", ignore=ignored)
    shutil.copy(PACKAGE / "tests" / "test_meters_contract.py", package / "tests")
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

    for path in files:
        path.write_text(path.read_text().replace("FILL_IN", "filled in"))
    filled = run(tmp_path, "pytest", "-p", "no:cacheprovider", "-q", "-k", "fill_in", str(package))
    assert filled.returncode == 0, filled.stdout


@pytest.mark.parametrize("kind", ["acme", "z0_rather_long_9"])
def test_new_meter_is_clean(kind: str, tmp_path: Path) -> None:
    package = a_copy(tmp_path)
    files = [str(path) for path in lay_out(kind, package)]
    for check in (["check"], ["format", "--check"]):
        linted = run(tmp_path, "ruff", *check, "--no-cache", *files)
        assert linted.returncode == 0, linted.stdout
    if kind != "acme":
        return  # its types are those of the other
    typed = run(tmp_path, "mypy", "--cache-dir", str(tmp_path / "mypy"), "--strict", *files)
    assert typed.returncode == 0, typed.stdout


@pytest.mark.parametrize(
    ("name", "said"),
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
def test_other_names_are_refused_and_change_nothing(name: str, said: str, tmp_path: Path) -> None:
    package = a_copy(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(NewMeterError, match=said):
        lay_out(name, package)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_command_line_speaks_plainly(tmp_path: Path) -> None:
    a_copy(tmp_path)
    refused = run(tmp_path, "instrumentation.new_meter", "smartpower3")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("fde: There is a meter called smartpower3 already")
    assert run(tmp_path, "instrumentation.new_meter").returncode == 2
