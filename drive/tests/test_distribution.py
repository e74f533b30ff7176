"""The drive is a distribution of its own: it runs where nothing else of this repository is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

DRIVE = Path(__file__).resolve().parents[1]
PACKAGE = "virtual_opal_drive"


def _run(*command: str | Path, cwd: Path) -> str:
    """Run a program that finds its Python packages in `cwd`/site, and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(cwd / "site"), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build sdist and wheel without a registry, and install the wheel into the folder `site`."""
    folder = tmp_path_factory.mktemp("drive")
    unwanted = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    shutil.copytree(DRIVE, folder / "drive", ignore=unwanted)  # a build leaves folders behind
    python = (sys.executable, "-m")
    _run(*python, "build", "--no-isolation", "--outdir", folder, folder / "drive", cwd=folder)
    wheel = next(folder.glob("*.whl"))
    pip = ("pip", "install", "--quiet", "--no-deps", "--no-index", "--target", "site")
    _run(*python, *pip, wheel, cwd=folder)
    return folder


def test_the_wheel_has_every_module_and_no_test(installed: Path) -> None:
    with zipfile.ZipFile(next(installed.glob("*.whl"))) as wheel:
        names = {Path(name) for name in wheel.namelist()}
        licence = next(name for name in wheel.namelist() if name.endswith("/LICENSE"))
        assert b"Apache License" in wheel.read(licence)
    modules = {
        Path(PACKAGE) / path.relative_to(DRIVE)
        for pattern in ("*.py", "*.c")
        for path in DRIVE.rglob(pattern)
        if not {"tests", "build"} & set(path.parts)
    }
    assert {name for name in names if name.parts[0] == PACKAGE} == modules


def test_it_serves_a_disk_and_answers_commands(installed: Path) -> None:
    programs = installed / "site" / "bin"
    assert "--opal" in _run(programs / "virtual-opal-drive", "--help", cwd=installed)
    drive = subprocess.Popen(
        [programs / "virtual-opal-drive", "disk.img", "--size", "64M", "--opal"],
        cwd=installed,
        env={**os.environ, "PYTHONPATH": str(installed / "site"), "PYTHONSAFEPATH": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert drive.stdout is not None and "Opal 2" in drive.stdout.readline()
        control = (programs / "virtual-opal-drive-control", "disk.img.control", "status")
        assert json.loads(_run(*control, cwd=installed))
    finally:
        drive.terminate()
        drive.communicate()
