"""The drive is a distribution of its own: it runs where nothing else of this repository is."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from drive.tests.installed import DRIVE, program, run
from drive.tests.started import Started

PACKAGE = "virtual_opal_drive"


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
    assert "--opal" in run(program(installed), "--help", cwd=installed)
    drive = Started(installed, "disk.img", "--size", "64M", "--opal", installed=installed)
    assert "Opal 2" in drive.greeting
    control = program(installed, "virtual-opal-drive-control")
    assert json.loads(run(control, "disk.img.control", "status", cwd=installed))
    drive.stop()
