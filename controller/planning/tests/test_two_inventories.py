"""Commands at once: on two inventories whose hosts have one name, and on one inventory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from contract.places import ROOT

EXAMPLE = ROOT / "ansible" / "inventory" / "hardware.example"


def inventory(folder: Path, serial: str) -> Path:
    """Return the example's host, called `target`, with other serial numbers of its disks."""
    shutil.copytree(EXAMPLE, folder)
    variables = folder / "group_vars" / "targets.yml"
    text = variables.read_text(encoding="utf-8").replace("S0EXAMPLE0000", serial)
    variables.write_text(text, encoding="utf-8")
    hosts = "targets: {hosts: {target: {ansible_host: bench.example.org}}}"
    (folder / "hosts.yml").write_text(hosts, encoding="utf-8")
    return folder


def test_each_plan_names_the_disks_of_its_own_inventory(tmp_path: Path) -> None:
    folders = [inventory(tmp_path / name, f"{name}00000000000") for name in ("A", "B")]
    plans = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "controller", "plan", "--suite", "smoke"),
                *("--inventory", str(folder), "--out", str(tmp_path / f"of-{folder.name}")),
            ],
            env={**os.environ, "FDE_BUILD": str(tmp_path / "build")},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for folder in folders * 2
    ]
    outputs = [process.communicate()[0] for process in plans]
    assert [process.returncode for process in plans] == [0] * 4
    for folder in folders:
        folders_of_host = sorted((tmp_path / f"of-{folder.name}").iterdir())
        assert len(folders_of_host) == 2
        assert sum(str(path) in text for path in folders_of_host for text in outputs) == 2
        for path in folders_of_host:
            plan = json.loads((path / "plan.json").read_text(encoding="utf-8"))
            assert plan["suite_id"] == path.name
            assert {disk["serial"][0] for disk in plan["disks"].values()} == {folder.name}
    # What was resolved was each command's own: nothing is left that another would read.
    assert not list((tmp_path / "build").rglob("*.json"))
