"""The drive as its users have it: a wheel, installed where nothing else of this repository is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

DRIVE = Path(__file__).resolve().parents[1]
SITE = "site"


def environment(folder: Path) -> dict[str, str]:
    """Return that of programs whose Python packages are those installed below `folder`."""
    return {**os.environ, "PYTHONPATH": str(folder / SITE), "PYTHONSAFEPATH": "1"}


def program(folder: Path, name: str = "virtual-opal-drive") -> Path:
    """Return a program of the drive installed below `folder`."""
    return folder / SITE / "bin" / name


def run(*command: str | Path, cwd: Path) -> str:
    """Run a program with the packages installed below `cwd`, and return what it prints."""
    result = subprocess.run(
        command, cwd=cwd, env=environment(cwd), capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def build_and_install(folder: Path) -> None:
    """Build sdist and wheel without a registry, and install the wheel below `folder`."""
    ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    shutil.copytree(DRIVE, folder / "drive", ignore=ignored)  # a build leaves folders behind
    python = (sys.executable, "-m")
    run(*python, "build", "--no-isolation", "--outdir", folder, folder / "drive", cwd=folder)
    wheel = next(folder.glob("*.whl"))
    pip = ("pip", "install", "--quiet", "--no-deps", "--no-index", "--target", SITE)
    run(*python, *pip, wheel, cwd=folder)
