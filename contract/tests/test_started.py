"""Processes of ours take no module from the folder in which they are started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from contract.places import ROOT, module_command, python_path

# What any of our programs imports first, and our own packages.
NAMES = ("runpy", "json", "argparse", "contract", "instrumentation", "sitecustomize")


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory, in which every module of those names leaves a mark."""
    folder = tmp_path / "suite"
    folder.mkdir()
    for name in NAMES:
        mark = tmp_path / f"{name}.ran"
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w')\n", encoding="utf-8")
    monkeypatch.chdir(folder)
    return tmp_path


def ran(place: Path) -> list[str]:
    return sorted(path.name for path in place.glob("*.ran"))


@pytest.mark.parametrize("path", ["", f":{ROOT}::"])
def test_a_module_of_ours_is_started_anywhere(
    path: str, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", path)
    done = subprocess.run(
        module_command("instrumentation.recorder", "--help"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "usage: python -m instrumentation.recorder" in done.stdout and not ran(hostile)


def test_without_that_the_folder_would_be_searched_first(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the test above can fail at all."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:")
    argv = [sys.executable, "-P", "-m", "instrumentation.recorder", "--help"]
    subprocess.run(argv, capture_output=True, check=False)
    assert ran(hostile)


def test_an_empty_entry_of_the_path_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ":/a::/b:")
    assert python_path().split(":") == [str(ROOT), "/a", "/b"]
