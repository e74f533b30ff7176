"""The drive is a distribution of its own: it installs where nothing else of this repository is."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

DRIVE = Path(__file__).resolve().parents[1]


def test_all_packages_are_named() -> None:
    declared = tomllib.loads((DRIVE / "pyproject.toml").read_text(encoding="utf-8"))
    packages = {
        ".".join(("drive", *path.parent.relative_to(DRIVE).parts))
        for path in DRIVE.rglob("__init__.py")
        if not {"tests", "build"} & set(path.parts)
    }
    assert set(declared["tool"]["setuptools"]["packages"]) == {f"virtual_opal_{name}" for name in packages}


@pytest.mark.slow
def test_it_installs_into_an_empty_environment(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    source = shutil.copytree(DRIVE, tmp_path / "drive")  # an install leaves a folder in its source
    binaries = tmp_path / "venv" / "bin"
    subprocess.run([str(binaries / "pip"), "install", "--quiet", str(source)], check=True)
    command = [str(binaries / "virtual-opal-drive"), "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "--opal" in done.stdout
