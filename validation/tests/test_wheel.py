"""Installed, without a checkout: what comes with the package is found."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from contract.places import ROOT

PACKAGES = ("agent", "analysis", "contract", "controller", "instrumentation", "workloads")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """What pip makes of a wheel, here where nothing that builds one may be installed."""
    site = tmp_path / "site"
    for name in PACKAGES:
        shutil.copytree(ROOT / name, site / name, ignore=shutil.ignore_patterns("tests", "*.pyc"))
    runpy.run_path(str(ROOT / "setup.py"))["share"](site)
    return site


def _fde(site: Path, place: Path, *arguments: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(site), "FDE_BUILD": str(place / "build")}
    command = [sys.executable, "-m", "controller", *arguments, "--json"]
    done = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_notebook_opens_on_an_example(site: Path, tmp_path: Path) -> None:
    made = _fde(site, tmp_path, "notebook", "--copy")
    assert Path(made["suite"]).is_relative_to(tmp_path / "build" / "bundles")
    assert Path(made["notebook"]).is_file()


def test_the_gallery_shows_the_examples(site: Path, tmp_path: Path) -> None:
    for bundle in site.glob("fde_share/data/examples/*.tar.gz"):
        bundle.unlink()  # their reports take a while
    made = _fde(site, tmp_path, "gallery", "--out", "pages")
    assert (made["entries"], made["left_out"]) == (1, [])
