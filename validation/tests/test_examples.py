"""The example packages: what they add is found, sound, planned, sent to the target."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest

from agent.tests.guest import CODE, Target
from lab.state import REPOSITORY
from validation import contract_plugin

METER, STORAGE = "fde-meter-tally", "fde-storage-null"
INSTRUMENTS = "fde-instruments"
PACKAGES = {name: REPOSITORY / "examples" / name for name in (METER, STORAGE)}
PACKAGES[INSTRUMENTS] = REPOSITORY / "plugins" / INSTRUMENTS
KINDS = {
    METER: ["tally"],
    STORAGE: ["dmcrypt_null"],
    INSTRUMENTS: ["powersensor3", "mcp39f511n", "wattsup", "wt210", "ipmi", "hwmon", "nvml"],
}
PLAN = """
import io, json, sys
from pathlib import Path
from agent.storage import registry
from contract import schema
from contract.plan import Configuration
from controller.targets import agent_bundle, inventory
from controller.tests import examples
from instrumentation.meters import registry as meters

stack = {"name": "null", "kind": "dmcrypt_null", "disk": "plain", "queues": False}
described = examples.target()
described["configurations"].append(stack)
meter = {"name": "m", "kind": "tally", "port": "tally", "origin": "modelled"}
described["meters"] = [{**meter, "channels": {"0": "system"}}]
plan = examples.compiled(examples.suite(watermark=True), described).document()
Path(sys.argv[1]).write_bytes(agent_bundle.pack(agent_bundle.collect()))
words = inventory.words(schema.read(Configuration, stack))
print(json.dumps([registry.names(), meters.kinds(), plan, words]))
"""
ON_TARGET = """
from agent.storage import registry
print(registry.label(registry.complete({"name": "n", "kind": "dmcrypt_null", "disk": "sed"})))
"""


def _install(example: Path, site: Path) -> None:
    """Install it with pip, here where no wheel may be built."""
    project = tomllib.loads((example / "pyproject.toml").read_text())["project"]
    groups = project["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in e.items()) for group, e in groups]
    described = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    described.mkdir(parents=True)
    head = {"Metadata-Version": "2.1", "Name": project["name"], "Version": project["version"]}
    (described / "METADATA").write_text("".join(f"{k}: {v}\n" for k, v in head.items()))
    (described / "entry_points.txt").write_text("\n".join(lines))
    left_out = shutil.ignore_patterns("tests", "build", "__pycache__", "*.egg-info")
    shutil.copytree(example, site, dirs_exist_ok=True, ignore=left_out)


def install(site: Path) -> Path:
    """Install all packages into a folder, which is returned."""
    for package in PACKAGES.values():
        _install(package, site)
    return site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where they are installed, and nothing else is."""
    return install(tmp_path_factory.mktemp("examples") / "site")


def run(site: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    path = {"PYTHONPATH": f"{site}:{REPOSITORY}", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=site.parent,
        env={**os.environ, **path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_installed_they_are_found_planned_and_sent_to_the_target(
    site: Path, tmp_path: Path
) -> None:
    result = run(site, "-c", PLAN, tmp_path / "bundle.tar")
    assert result.returncode == 0, result.stderr
    kinds, meters, plan, words = json.loads(result.stdout)
    assert "dmcrypt_null" in kinds and "tally" in meters
    entry: dict[str, Any] = next(e for e in plan["configurations"] if e["name"] == "null")
    assert entry == {
        **{"name": "null", "kind": "dmcrypt_null", "disk": "plain", "encrypted_by": "none"},
        **{"label": "dm-crypt null, no queues", "queues": False, "discard": False},
    }
    assert words == "dm-crypt null, no queues"
    with tarfile.open(tmp_path / "bundle.tar") as tar:
        assert not [name for name in tar.getnames() if "fde_meter_tally.py" in name]
    subprocess.run(["tar", "-xf", tmp_path / "bundle.tar", "-C", tmp_path], check=True)
    home = tmp_path / "opt" / "fde-testbed"
    listing = subprocess.run(
        [sys.executable, "-S", "-c", ON_TARGET],
        env={"PYTHONPATH": f"{home}:{home / 'lib'}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert listing.stdout == "dm-crypt null\n", listing.stderr


@pytest.mark.parametrize("package", PACKAGES)
def test_the_plugin_holds_them_against_the_contract(site: Path, package: str) -> None:
    plugin = ("-m", "pytest", "-p", "validation.contract_plugin", "-p", "no:cacheprovider", "-q")
    result = run(site, *plugin, "-rA", f"--fde-contract={package}")
    assert result.returncode == 0, result.stdout + result.stderr
    passed = re.findall(r"^PASSED (\S+)", result.stdout, flags=re.M)
    assert len(passed) >= 3
    assert all(any(kind in name for kind in KINDS[package]) for name in passed)


def test_a_package_that_is_not_installed_is_refused() -> None:
    class Config:
        def getoption(self, name: str) -> str:
            return "fde-nothing" if name == "--fde-contract" else ""

    with pytest.raises(pytest.UsageError, match="There is no package fde-nothing here: install it"):
        contract_plugin.pytest_configure(Config())  # type: ignore[arg-type]


def test_a_package_that_breaks_the_contract_fails_it(site: Path, tmp_path: Path) -> None:
    broken = tmp_path / "site"
    broken.mkdir()
    for path in site.iterdir():
        (broken / path.name).symlink_to(path)
    source = (broken / "fde_storage_null.py").read_text()
    (broken / "fde_storage_null.py").unlink()
    moved = source.replace("Place\n", "Place, Segment\n").replace(
        'place.segment("crypt"',
        'Segment(place.size_sectors, "crypt", place.device, place.offset_sectors + 8',
    )
    (broken / "fde_storage_null.py").write_text(moved)
    plugin = ("-m", "pytest", "-p", "validation.contract_plugin", "-p", "no:cacheprovider", "-q")
    result = run(broken, *plugin, f"--fde-contract={STORAGE}")
    assert result.returncode == 1
    assert "test_every_kind_puts_its_data_on_exactly_the_common_extent" in result.stdout


@pytest.mark.lab
def test_the_storage_kind_is_proven_on_a_guest(lab: Any, site: Path) -> None:
    stack: dict[str, Any] = {"kind": "dmcrypt_null", "disk": "plain"}
    named = [{**stack, "name": "null"}, {**stack, "name": "no-queues", "queues": False}]
    target = Target(lab, named, 64 * 2**20)
    for path in site.glob("fde_storage_null*"):
        lab.send(path, f"{CODE}/lib")
    target.agent("teardown")
    target.agent("prepare")
    answers = target.output_lines("storage prove")
    proofs = {answer["configuration"]: answer["proof"] for answer in answers}
    assert {name: proof["mismatches"] for name, proof in proofs.items()} == {
        "null": [],
        "no-queues": [],
    }
    assert proofs["null"]["plaintext_probe"]["on_medium"]
