"""Test the real pyRAPL with a tree of files below a test folder, and its failures."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from instrumentation.sources import registry
from instrumentation.sources.counter import ReadFailure, Reading
from instrumentation.sources.pyrapl import PyraplSource


def lay_out(root: Path, packages: int, drams: int) -> None:
    cpus = root / "sys/devices/system/cpu"
    cpus.mkdir(parents=True)
    (cpus / "present").write_text(f"0-{max(packages - 1, 1)}\n")
    for cpu in range(max(packages, 2)):
        topology = cpus / f"cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{min(cpu, packages - 1)}\n")
    for n in range(packages):
        zone = root / f"sys/class/powercap/intel-rapl/intel-rapl:{n}"
        zone.mkdir(parents=True)
        (zone / "name").write_text(f"package-{n}\n")
        (zone / "energy_uj").write_text("1000\n")
        if n < drams:
            dram = zone / f"intel-rapl:{n}:0"
            dram.mkdir()
            (dram / "name").write_text("dram\n")
            (dram / "energy_uj").write_text("500\n")


def lead(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Redirect pyRAPL's hard-coded /sys paths to `root`."""
    PyraplSource.open()  # imports pyRAPL in the way that its source does
    from pyRAPL import device_api

    def led(path: str) -> str:
        return str(root) + path

    def opened(path: str, mode: str = "r") -> Any:
        return Path(led(path)).open(mode)

    monkeypatch.setattr(device_api, "open", opened, raising=False)
    exists = SimpleNamespace(exists=lambda path: os.path.exists(led(path)))  # noqa: PTH110
    monkeypatch.setattr(device_api, "os", SimpleNamespace(path=exists))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder to which pyRAPL's hard-coded /sys paths are redirected."""
    lead(tmp_path, monkeypatch)
    return tmp_path


def set_uj(root: Path, zone: str, energy_uj: int) -> None:
    """Overwrite the value in one write, so that a reader never sees an empty file."""
    path = root / "sys/class/powercap/intel-rapl" / zone / "energy_uj"
    with path.open("r+b", buffering=0) as counter:
        counter.write(f"{energy_uj:>18}\n".encode())


def _read_uj(source: PyraplSource) -> dict[str, int]:
    return {n: r.energy_uj for n, r in source.read().items() if isinstance(r, Reading)}


def test_zones_have_the_names_of_the_powercap_source(root: Path) -> None:
    lay_out(root, packages=1, drams=1)
    source = registry.load("pyrapl").open()
    set_uj(root, "intel-rapl:0", 1250)
    set_uj(root, "intel-rapl:0/intel-rapl:0:0", 507)
    assert _read_uj(source) == {"package-0": 250, "dram": 7}


def test_two_sockets(root: Path) -> None:
    lay_out(root, packages=2, drams=2)
    source = PyraplSource.open()
    set_uj(root, "intel-rapl:1", 1003)
    zones = {"package-0": 0, "package-1": 3, "package-0/dram": 0, "package-1/dram": 0}
    assert _read_uj(source) == zones


def test_unknown_layout_is_an_error_or_a_figure(root: Path) -> None:
    lay_out(root, packages=1, drams=0)
    (root / "sys/class/powercap/intel-rapl/intel-rapl:0/name").write_text("package-0-die-0\n")
    source = PyraplSource.open()
    assert (source.error is None) == bool(_read_uj(source))


@pytest.mark.parametrize("lost", ["all", "on the way"])
def test_missing_counters_are_an_error(root: Path, lost: str) -> None:
    if lost == "on the way":
        lay_out(root, packages=1, drams=0)
    source = PyraplSource.open()
    if lost == "on the way":
        (root / "sys/class/powercap/intel-rapl/intel-rapl:0/energy_uj").write_text("")
    assert _read_uj(source) == {}
    error = "FileNotFoundError" if lost == "all" else "ValueError"
    assert (source.error or "").startswith(f"pyRAPL failed ({error})")


def test_reads_give_the_energy_since_begin(root: Path) -> None:
    lay_out(root, packages=1, drams=1)
    source = PyraplSource.open()
    set_uj(root, "intel-rapl:0", 1250)
    first = source.read()
    set_uj(root, "intel-rapl:0", 1300)
    last = source.read()
    assert [r.energy_uj for r in first.values() if isinstance(r, Reading)] == [250, 0]
    assert [r.energy_uj for r in last.values() if isinstance(r, Reading)] == [300, 0]


def test_a_zone_that_wrapped_is_a_failed_read(root: Path) -> None:
    lay_out(root, packages=2, drams=0)
    source = PyraplSource.open()
    set_uj(root, "intel-rapl:0", 3)
    set_uj(root, "intel-rapl:1", 1700)
    assert _read_uj(source) == {"package-1": 700}
    failed = source.read()["package-0"]
    assert isinstance(failed, ReadFailure)
    assert failed.error == "pyRAPL gave no figure for this zone"
