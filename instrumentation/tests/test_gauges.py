"""Sources beside RAPL: polled power, battery gauge, sensors of the board, graphics processors."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from contract.counts import Gap
from contract.tests.refusal import refuses
from instrumentation.sources import registry
from instrumentation.sources.battery import BatterySource
from instrumentation.sources.counter import (
    LONE_FLAG,
    REOPENED,
    ReadFailure,
    Reading,
    difference,
    total,
)
from instrumentation.sources.hwmon import HwmonSource, discover
from instrumentation.sources.nvml import NvmlSource
from instrumentation.sources.polled import PowerSum
from instrumentation.tests.gauges import AMD, BATTERY, CHARGE, SUPPLY, compile_nvml, lay_out

S = 10**9
PERIOD_NS = 200_000_000
NEVER_S = 3600.0  # polled by `read` alone


def test_a_power_holds_for_the_window_that_ends_with_it() -> None:
    power = PowerSum(longest_ns=4 * S)
    power.add(0, 0, 5_000_000)
    assert power.add(S, S, 10_000_000).energy_uj == 10_000_000
    assert power.add(3 * S, 3 * S, 2_000_000) == Reading(3 * S, 3 * S, 14_000_000, 0)
    assert power.update_s == 2.0


def test_a_failed_read_and_a_late_one_are_gaps_and_no_energy() -> None:
    power = PowerSum(longest_ns=4 * S)
    before = power.add(0, 0, 10_000_000)
    assert power.fail(S, "No such device") == ReadFailure(S, "No such device")
    power.fail(2 * S, "No such device")
    power.add(3 * S, 3 * S, 10_000_000)
    after = power.add(4 * S, 4 * S, 10_000_000)
    assert power.gaps == [Gap(0, 2 * S, "No such device")]
    assert (after.energy_uj, after.epoch) == (10_000_000, 1)
    assert REOPENED in difference(before, after, 2**64 - 1).flags
    power.add(9 * S, 9 * S, 10_000_000)
    assert power.gaps[1:] == [Gap(4 * S, 9 * S, "no reading")]


@pytest.mark.parametrize(
    ("powers_w", "is_lone"),
    [
        ([20, 21, 5000, 20, 21], True),
        ([20, 21, 20, 5000], True),  # until another follows
        ([20, 21, *[5000] * 9, 20], False),  # a load
        ([20, 21, 5000, 4990, 20], False),
        ([20, 20, *[5000] * 6, 20], True),  # renewed once a second
        ([20, 21, 300, 20], False),
        ([5000, 20, 21, 20], False),  # before the first one nothing is known
        ([0.2, 0.1, 15, 0.1], False),
    ],
)
def test_a_lone_reading_of_a_polled_power_is_flagged(powers_w: list[float], is_lone: bool) -> None:
    power = PowerSum(longest_ns=4 * PERIOD_NS)
    times_ns = [n * PERIOD_NS for n in range(len(powers_w) + 2)]
    readings = [power.add(t, t, round(w * 1e6)) for t, w in zip(times_ns, powers_w, strict=False)]
    assert (LONE_FLAG in total(readings, 2**64 - 1).flags) == is_lone
    after, later = (power.add(t, t, round(min(powers_w) * 1e6)) for t in times_ns[-2:])
    assert LONE_FLAG not in total([after, later], 2**64 - 1).flags


def test_the_source_polls_by_itself_too(tmp_path: Path) -> None:
    lay_out(tmp_path / "hwmon0", SUPPLY)
    source = HwmonSource.open(tmp_path, period_s=0.001)
    polled = source.sums["power_meter/power1"]
    while polled._energy_nj == 0:
        time.sleep(0.001)
    source.close()
    assert not source._threads[0].is_alive()


def test_battery_by_energy_and_power(tmp_path: Path) -> None:
    folder = lay_out(tmp_path / "BAT0", BATTERY)
    source = BatterySource.open(tmp_path, NEVER_S)
    first = source.read()
    (folder / "energy_now").write_text("39990000\n")  # 10 mWh less
    last = source.read()
    source.close()
    assert list(last) == ["battery", "battery/gauge"]
    gauge = difference(first["battery/gauge"], last["battery/gauge"], 2**63)
    assert gauge.energy_uj == 36_000_000
    start, end = first["battery"], last["battery"]
    assert isinstance(start, Reading) and isinstance(end, Reading)
    passed_ns = end.t_after_ns - start.t_after_ns
    assert end.energy_uj - start.energy_uj == pytest.approx(passed_ns * 10 / 1000, abs=2)
    assert "steps of 36 J" in source.limits()[1]


def test_battery_by_charge_and_current_of_several(tmp_path: Path) -> None:
    folder = lay_out(tmp_path / "BAT0", CHARGE)
    lay_out(tmp_path / "BAT1", {**CHARGE, "status": "Not charging"})
    lay_out(tmp_path / "hid-mouse", {**BATTERY, "scope": "Device", "status": "Charging"})
    source = BatterySource.open(tmp_path, NEVER_S)
    assert source._power_uw() == 6_000_000  # BAT1 rests
    first = source.read()
    (folder / "charge_now").write_text("2999000\n")  # 1 mAh less, at 12 V
    used = difference(first["battery/gauge"], source.read()["battery/gauge"], 2**63)
    assert used.energy_uj == 43_200_000
    source.close()


@pytest.mark.parametrize("status", ["Charging", "Full", "Not charging", "Unknown"])
def test_on_mains_a_battery_tells_nothing(tmp_path: Path, status: str) -> None:
    folder = lay_out(tmp_path / "BAT0", {**BATTERY, "status": status})
    with refuses("battery-hides"):
        BatterySource.open(tmp_path)
    (folder / "status").write_text("Discharging\n")
    source = BatterySource.open(tmp_path, NEVER_S)
    first = source.read()["battery"]
    (folder / "status").write_text(status + "\n")
    assert all(isinstance(reading, ReadFailure) for reading in source.read().values())
    (folder / "status").write_text("Discharging\n")
    again = source.read()
    source.close()
    # What the mains gave in between is in neither figure.
    assert REOPENED in difference(first, again["battery"], 2**63).flags
    assert len(source.gaps["battery"]) == 1


def test_a_battery_that_shows_neither_is_refused(tmp_path: Path) -> None:
    lay_out(tmp_path / "BAT0", {"type": "Battery", "status": "Discharging", "capacity": "90"})
    with refuses("battery-shows-nothing"):
        BatterySource.open(tmp_path)


AC = {"type": "Mains", "online": "1"}


def test_a_supply_that_is_online_beside_a_discharge_refuses(tmp_path: Path) -> None:
    lay_out(tmp_path / "BAT0", BATTERY)
    lay_out(tmp_path / "AC", AC)
    lay_out(tmp_path / "usb", {"type": "USB", "online": "2"})
    lay_out(tmp_path / "mouse", {"type": "USB", "online": "1", "scope": "Device"})
    with refuses("battery-hides"):
        BatterySource.open(tmp_path, NEVER_S)
    source = BatterySource.open(tmp_path, NEVER_S, believe_online=False)
    assert all(isinstance(reading, Reading) for reading in source.read().values())
    source.close()
    for name in ("AC", "usb"):
        (tmp_path / name / "online").write_text("0\n")
    source = BatterySource.open(tmp_path, NEVER_S)
    first = source.read()
    (tmp_path / "AC/online").write_text("1\n")  # plugged in meanwhile
    assert all(isinstance(reading, ReadFailure) for reading in source.read().values())
    (tmp_path / "AC/online").write_text("0\n")
    again = source.read()
    source.close()
    for name in ("battery", "battery/gauge"):
        assert REOPENED in difference(first[name], again[name], 2**63).flags


def test_a_discharge_without_a_rate_leaves_the_gauge(tmp_path: Path) -> None:
    folder = lay_out(tmp_path / "BAT0", {**BATTERY, "power_now": "0"})
    source = BatterySource.open(tmp_path, NEVER_S)
    first = source.read()
    (folder / "energy_now").write_text("39990000\n")
    last = source.read()
    source.close()
    assert isinstance(last["battery"], ReadFailure) and "0 W" in last["battery"].error
    gauge = difference(first["battery/gauge"], last["battery/gauge"], 2**63)
    assert gauge.energy_uj == 36_000_000 and REOPENED not in gauge.flags
    assert source.least_uj == {"battery/gauge": 360_000_000}  # ten of its steps


def test_an_empty_bay_is_no_battery(tmp_path: Path) -> None:
    lay_out(tmp_path / "BAT0", BATTERY)
    lay_out(tmp_path / "BAT1", {"type": "Battery", "status": "Unknown", "present": "0"})
    lay_out(tmp_path / "BAT2", {**BATTERY, "status": "Charging", "present": "0"})
    source = BatterySource.open(tmp_path, NEVER_S)
    assert [type(reading) for reading in source.read().values()] == [Reading, Reading]
    source.close()


@pytest.mark.parametrize("shown_uw", [4_294_967_295_000, 65_535 * 12_000, 12_000])
def test_a_rate_that_cannot_be_is_a_failed_read(shown_uw: int, tmp_path: Path) -> None:
    """All bits set of mW, of mA at 12 V, and a rate in mW."""
    lay_out(tmp_path / "BAT0", {**BATTERY, "power_now": str(shown_uw)})
    source = BatterySource.open(tmp_path, NEVER_S)
    shown = source.read()
    source.close()
    assert isinstance(shown["battery"], ReadFailure)
    assert isinstance(shown["battery/gauge"], Reading) and source.totals_j is None


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


def test_an_average_that_cannot_be_read_leaves_the_input(tmp_path: Path) -> None:
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
def test_a_power_that_cannot_be_is_a_failed_read(
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


@pytest.mark.parametrize("older", [(), ("power1_oem_info",), ("power1_average", "power1_oem_info")])
def test_acpi_power_meters_are_told_apart_by_their_oem_info(
    tmp_path: Path, older: tuple[str, ...]
) -> None:
    """Whichever of their files stand in `device/`, as in older kernels."""
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


def test_a_sensor_that_goes_away_is_an_error_with_its_time(tmp_path: Path) -> None:
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


def test_sensors_that_give_no_number_are_refused(tmp_path: Path) -> None:
    lay_out(tmp_path / "hwmon0", {"name": "x", "power1_input": "N/A"})
    with refuses("no-sensor-readable"):
        HwmonSource.open(tmp_path)


def test_graphics_by_counter_or_by_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = compile_nvml(tmp_path, monkeypatch, "1500 90000\n-1 30000\n")
    source = NvmlSource.open(str(library), NEVER_S)
    assert source.names == ("gpu-0", "gpu-1")
    first = source.read()
    (tmp_path / "cards").write_text("1503 90000\n-1 30000\n")
    last = source.read()
    assert difference(first["gpu-0"], last["gpu-0"], 2**63).energy_uj == 3000
    start, end = first["gpu-1"], last["gpu-1"]
    assert isinstance(start, Reading) and isinstance(end, Reading)
    passed_ns = end.t_after_ns - start.t_after_ns
    assert end.energy_uj - start.energy_uj == pytest.approx(passed_ns * 30 / 1000, abs=2)
    (tmp_path / "cards").write_text("-2 90000\n-2 30000\n")
    assert {
        reading.error for reading in source.read().values() if isinstance(reading, ReadFailure)
    } == {"GPU is lost"}
    source.close()


def test_a_card_that_is_lost_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = compile_nvml(tmp_path, monkeypatch, "-2 90000\n1500 30000\n")
    source = NvmlSource.open(str(library), NEVER_S)
    assert source.names == ("gpu-1",)
    assert "gpu-0: GPU is lost" in source.omitted
    source.close()
    (tmp_path / "cards").write_text("-2 1\n")
    with refuses("gpus-unusable"):
        NvmlSource.open(str(library))


def test_graphics_without_driver_or_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = compile_nvml(tmp_path, monkeypatch, "")
    with refuses("no-gpu"):
        NvmlSource.open(str(library))
    (tmp_path / "cards").unlink()
    with refuses("nvml-refuses", error="Driver Not Loaded"):
        NvmlSource.open(str(library))
    with refuses("no-nvml"):
        NvmlSource.open(str(tmp_path / "none.so"))


def test_what_a_machine_does_not_have_is_known_without_opening(tmp_path: Path) -> None:
    for name in ("battery", "hwmon", "perf"):
        assert not registry.load(name).is_present(tmp_path)
    lay_out(tmp_path / "BAT0", BATTERY)
    assert BatterySource.is_present(tmp_path)
