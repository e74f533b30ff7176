"""Test the sensors of the board: their names and their failed reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.tests.refusal import refuses
from fde_instruments.sources.hwmon import HwmonSource, discover
from fde_instruments.tests.gauges import AMD, NEVER_S, SUPPLY
from instrumentation.sources.counter import SHORTER, ReadFailure, Reading, total
from instrumentation.tests.gauges import lay_out


def as_reading(reading: Reading | ReadFailure) -> Reading:
    assert isinstance(reading, Reading)
    return reading


def test_current_times_voltage_of_one_number(tmp_path: Path) -> None:
    rails = {"in1_input": "19120", "in1_label": "VDD_IN", "curr1_input": "640"}
    others = {"in2_input": "5000", "in2_label": "VDD_SOC", "curr2_input": "200"}
    # Number 4 is a shunt's voltage and the sum of all currents.
    sums = {"in4_input": "3", "curr4_input": "840", "in7_label": "sum of shunt voltages"}
    lay_out(tmp_path / "hwmon1", {"name": "ina3221", **rails, **others, **sums, "in3_input": "1"})
    lay_out(tmp_path / "hwmon2", {"name": "nct6775", **rails})
    lay_out(tmp_path / "hwmon3", {"name": "ina238", **rails, "power1_input": "7000000"})
    source = HwmonSource.open(tmp_path, NEVER_S)
    first, last = source.read(), source.read()
    source.close()
    assert set(last) == {"ina3221/VDD_IN", "ina3221/VDD_SOC", "ina238/power1"}
    start, end = first["ina3221/VDD_IN"], last["ina3221/VDD_IN"]
    assert isinstance(start, Reading) and isinstance(end, Reading)
    passed_ns = end.t_after_ns - start.t_after_ns
    assert end.energy_uj - start.energy_uj == pytest.approx(passed_ns * 12.2368 / 1000, abs=2)


def test_two_sockets_with_one_count_have_no_joules(tmp_path: Path) -> None:
    counts = {"energy1_input": str(10**10), "energy2_input": str(10**10 + 900)}
    labels = {"energy1_label": "Esocket0", "energy2_label": "Esocket1"}
    chip = lay_out(tmp_path / "hwmon0", {"name": "amd_energy", **counts, **labels})
    with refuses("one-count"):
        HwmonSource.open(tmp_path, NEVER_S)
    lay_out(tmp_path / "hwmon1", SUPPLY)
    source = HwmonSource.open(tmp_path, NEVER_S)
    source.close()
    assert list(source.names) == ["power_meter/power1"] and "Esocket1" in source.omitted
    (chip / "energy2_input").write_text(str(10**10 - 10**8))
    source = HwmonSource.open(tmp_path, NEVER_S)
    source.close()
    assert len(source.names) == 3 and not source.omitted


def test_an_unreadable_average_falls_back_to_the_input(tmp_path: Path) -> None:
    folder = lay_out(tmp_path / "hwmon0", SUPPLY)
    (folder / "power1_average").write_text("")
    source = HwmonSource.open(tmp_path, NEVER_S)
    source.read()
    assert source.only_w == {}  # of two polls nothing is told
    for _ in range(4):
        reading = source.read()["power_meter/power1"]
    source.close()
    assert isinstance(reading, Reading)
    assert source.only_w == {"power_meter/power1": 119.0}


@pytest.mark.parametrize(
    ("chip", "shown", "fails"),
    [
        ("power_meter", "0", True),  # a machine that runs
        ("power_meter", "60000", True),  # in mW
        ("power_meter", "4294967295000", True),  # all bits set
        ("power_meter", "-12000000", True),
        ("ina226", "2147483647", True),  # no number
        ("ina226", "0", False),  # a rail may be off
        ("power_meter", "120000000", False),
    ],
)
def test_an_impossible_power_is_a_failed_read(
    tmp_path: Path, chip: str, shown: str, fails: bool
) -> None:
    lay_out(tmp_path / "hwmon0", {"name": chip, "power1_input": shown})
    source = HwmonSource.open(tmp_path, NEVER_S)
    (reading,) = source.read().values()
    source.close()
    assert isinstance(reading, ReadFailure) is fails


def test_sensors_by_chip_and_label(tmp_path: Path) -> None:
    lay_out(tmp_path / "hwmon0", SUPPLY)
    lay_out(tmp_path / "hwmon1", AMD)
    lay_out(tmp_path / "hwmon2", AMD)
    lay_out(tmp_path / "hwmon3", {"name": "BAT0", "power1_input": "1", "device/type": "Battery"})
    lay_out(tmp_path / "hwmon5", {**SUPPLY, "power1_is_battery": "1"})
    lay_out(tmp_path / "hwmon4", {**AMD, "power1_input": "5", "power1_label": "Esocket0"})
    files = {sensor.name: sensor.path.name for sensor in discover(tmp_path)}
    assert files == {
        "power_meter/power1": "power1_average",
        "amd_energy/Esocket0": "energy1_input",
        "amd_energy/Ecore000": "energy2_input",
        "hwmon2-amd_energy/Esocket0": "energy1_input",
        "hwmon2-amd_energy/Ecore000": "energy2_input",
        "hwmon4-amd_energy/Esocket0": "energy1_input",
        "hwmon4-amd_energy/Ecore000": "energy2_input",
    }


def test_an_apu_has_a_voltage_that_cards_lack(tmp_path: Path) -> None:
    card = {"name": "amdgpu", "power1_average": "15000000", "power1_label": "PPT"}
    lay_out(tmp_path / "hwmon1", card)
    lay_out(tmp_path / "hwmon2", {**card, "in0_label": "vddgfx", "in1_label": "vddnb"})
    assert [s.name for s in discover(tmp_path)] == ["amdgpu/PPT", "amdgpu-apu/PPT"]


@pytest.mark.parametrize("older", [(), ("power1_oem_info",), ("power1_average", "power1_oem_info")])
def test_acpi_power_meters_are_named_by_their_oem_info(
    tmp_path: Path, older: tuple[str, ...]
) -> None:
    """Some of their files are in `device/`, as in older kernels."""
    for number, label in enumerate(("Module Power Socket 0", "CPU Power Socket 0", "")):
        files = {"power1_average": "100000000", "power1_oem_info": label, "name": "power_meter"}
        places = {"device/" * (name in older) + name: text for name, text in files.items()}
        lay_out(tmp_path / f"hwmon{number}", places)
    lay_out(tmp_path / "hwmon7", {"device/power/control": "auto", "name": "nvme"})
    assert [sensor.name for sensor in discover(tmp_path)] == [
        "power_meter/Module Power Socket 0",
        "power_meter/CPU Power Socket 0",
        "power_meter/power1",
    ]


def test_a_vanished_sensor_is_a_failed_read(tmp_path: Path) -> None:
    lay_out(tmp_path / "hwmon0", SUPPLY)
    folder = lay_out(tmp_path / "hwmon1", AMD)
    source = HwmonSource.open(tmp_path, NEVER_S)
    (folder / "energy1_input").unlink()
    (tmp_path / "hwmon0/power1_average").write_text("")
    readings = source.read()
    source.close()
    assert isinstance(readings["amd_energy/Ecore000"], Reading)
    gone, empty = readings["amd_energy/Esocket0"], readings["power_meter/power1"]
    assert isinstance(gone, ReadFailure) and "No such file" in gone.error
    assert isinstance(empty, ReadFailure) and "in place of a number" in empty.error


def test_another_chip_with_its_number_is_not_read_for_it(tmp_path: Path) -> None:
    """After a driver was loaded again its chip has another number, and its old one another chip."""
    root = tmp_path / "class"
    root.mkdir()
    for at, files in (("pci", AMD), ("usb", SUPPLY)):
        lay_out(tmp_path / at / "hwmon4", files)
    (root / "hwmon4").symlink_to(tmp_path / "pci/hwmon4")
    source = HwmonSource.open(root, NEVER_S)
    (root / "hwmon4").unlink()
    (tmp_path / "pci/hwmon4").rename(tmp_path / "pci/hwmon5")
    (root / "hwmon4").symlink_to(tmp_path / "usb/hwmon4")
    (tmp_path / "usb/hwmon4/energy1_input").write_text("9")
    reading = source.read()["amd_energy/Esocket0"]
    source.close()
    assert isinstance(reading, ReadFailure)


def test_sensors_that_give_no_number_are_refused(tmp_path: Path) -> None:
    lay_out(tmp_path / "hwmon0", {"name": "x", "power1_input": "N/A"})
    with refuses("no-sensor-readable"):
        HwmonSource.open(tmp_path)


def test_a_stated_averaging_interval_goes_with_the_readings(tmp_path: Path) -> None:
    files = {"name": "power_meter", "power1_average": "100000000"}
    lay_out(tmp_path / "hwmon0", {**files, "power1_average_interval": "300000"})
    lay_out(tmp_path / "hwmon1", {**files, "name": "other"})
    source = HwmonSource.open(tmp_path, NEVER_S)
    first = source.read()
    last = source.read()
    source.close()
    windows_s = {name: as_reading(reading).window_ns / 1e9 for name, reading in last.items()}
    assert windows_s == {"power_meter/power1": 300, "other/power1": 0}
    name = "power_meter/power1"
    assert total([first[name], last[name]], 2**63).flags == (SHORTER,)


def test_a_machine_without_sensors_is_detected_without_opening(tmp_path: Path) -> None:
    assert not HwmonSource.is_present(tmp_path)
