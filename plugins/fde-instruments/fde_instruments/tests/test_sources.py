"""Test the contract of sources for those of this package, with files of machines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fde_instruments.sources.hwmon import HwmonSource
from fde_instruments.sources.nvml import NvmlSource
from fde_instruments.tests import gauges
from instrumentation.tests import test_sources_contract as contract
from instrumentation.tests.gauges import lay_out


def _hwmon(root: Path, _: pytest.MonkeyPatch) -> contract.Opener:
    lay_out(root / "hwmon0", gauges.AMD)
    lay_out(root / "hwmon1", gauges.SUPPLY)
    return lambda: HwmonSource.open(root)


def _nvml(root: Path, patch: pytest.MonkeyPatch) -> contract.Opener:
    library = gauges.compile_nvml(root, patch, "1500 90000\n-1 30000\n")
    return lambda: NvmlSource.open(str(library))


MACHINES = {
    "hwmon": (_hwmon, {"amd_energy/Esocket0", "power_meter/power1"}),
    "nvml": (_nvml, {"gpu-0", "gpu-0/power", "gpu-1"}),
}


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize(
    "check",
    [contract.test_opens_reads_and_closes, contract.test_a_machine_without_counters_is_refused],
)
def test_the_sources_fulfil_the_contract(
    check: Callable[[str, Path, pytest.MonkeyPatch], None],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lay_out_machine, names = MACHINES[name]
    monkeypatch.setitem(contract.PLACES, name, lay_out_machine)
    monkeypatch.setitem(contract.NAMES, name, names)
    check(name, tmp_path, monkeypatch)
