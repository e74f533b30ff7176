"""Instructions for installing packages fit the program by which the testbed was installed."""

from __future__ import annotations

import json
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest

from contract import installation
from contract.places import ROOT

METADATA = """Metadata-Version: 2.4
Name: fde-energy-testbed
Version: 1
Requires-Dist: typer>=0.29
Provides-Extra: notebook
Requires-Dist: jupyterlab>=4.4.8; extra == "notebook"
"""
PACKAGES = "'jupyterlab>=4.4.8'"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the testbed, as far as its metadata go, in a virtual environment; return that."""
    folder = tmp_path / "site" / "fde_energy_testbed-1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(METADATA, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.setattr(installation, "CHECKOUT", False)
    environment = tmp_path / "fde-energy-testbed"
    environment.mkdir()
    monkeypatch.setattr(sys, "prefix", str(environment))
    monkeypatch.setattr(sys, "executable", "/env/bin/python")
    monkeypatch.setattr(installation, "find_spec", lambda _: True)
    return environment


def place_origin(**origin: object) -> None:
    """Record where the testbed came from, as PEP 610 has it."""
    distribution = metadata.distribution("fde-energy-testbed")
    path = Path(str(distribution.locate_file("fde_energy_testbed-1.dist-info/direct_url.json")))
    path.write_text(json.dumps(origin), encoding="utf-8")


def test_pip_installs_the_packages_of_an_extra(installed: Path) -> None:
    command = f"run `/env/bin/python -m pip install {PACKAGES}`"
    assert installation.with_extra("notebook") == command
    place_origin(url=f"file://{installed}", dir_info={})
    assert installation.with_extra("notebook") == command
    assert installation.requirements() == ["typer>=0.29"]


def test_pip_is_given_the_folder_of_wheels_that_we_came_from(installed: Path) -> None:
    place_origin(url=f"file://{installed.parent}/a%20b/fde.whl", archive_info={})
    assert "--find-links" not in installation.with_extra("notebook")  # the folder is gone
    (installed.parent / "a b").mkdir()
    options = f"--find-links '{installed.parent}/a b'"
    assert f"pip install {options} {PACKAGES}`" in installation.with_extra("notebook")


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("pipx_metadata.json", f"run `pipx inject fde-energy-testbed {PACKAGES}`"),
        ("uv-receipt.toml", f"run `uv pip install --python /env/bin/python {PACKAGES}`"),
    ],
)
def test_pipx_and_uv_install_with_their_own_commands(
    installed: Path, file: str, command: str
) -> None:
    (installed / file).touch()
    assert installation.with_extra("notebook") == command


@pytest.mark.usefixtures("installed")
def test_an_environment_without_pip_is_one_of_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "find_spec", lambda _: None)
    assert installation.with_extra("notebook").startswith("run `uv pip install --python /env/bin")


def test_a_systems_python_is_given_its_permission(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "base_prefix", str(installed))
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(installed))
    assert "--break" not in installation.install("x")
    (installed / "EXTERNALLY-MANAGED").touch()
    assert "-m pip install --break-system-packages x`" in installation.install("x")


def test_a_checkout_makes_its_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(ROOT / ".venv"))
    assert installation.with_extra("notebook") == "run `make venv-dev`"
    monkeypatch.setattr(sys, "prefix", "/env")
    assert f"pip install {PACKAGES}`" in installation.with_extra("notebook")
