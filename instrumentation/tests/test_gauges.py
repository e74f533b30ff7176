"""Test sources other than RAPL: polled power and a battery's gauge."""

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
from instrumentation.sources.polled import PolledSource, PowerSum
from instrumentation.tests.gauges import BATTERY, CHARGE, lay_out

S = 10**9
PERIOD_NS = 200_000_000
NEVER_S = 3600.0  # polled by `read` alone


def test_a_power_applies_to_the_window_before_it() -> None:
    power = PowerSum(longest_ns=4 * S)
    power.add(0, 0, 5_000_000)
    assert power.add(S, S, 10_000_000).energy_uj == 10_000_000
    assert power.add(3 * S, 3 * S, 2_000_000) == Reading(3 * S, 3 * S, 14_000_000, 0)


def test_failed_and_late_reads_are_gaps_without_energy() -> None:
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


def test_a_source_polls_in_a_thread() -> None:
    source = PolledSource({"board": lambda: 10**8}, {}, period_s=0.001, names=("board",))
    polled = source.sums["board"]
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


def test_battery_by_charge_and_current_of_several(tmp_path: Path) -> None:
    folder = lay_out(tmp_path / "BAT0", CHARGE)
    lay_out(tmp_path / "BAT1", {**CHARGE, "status": "Not charging"})
    lay_out(tmp_path / "hid-mouse", {**BATTERY, "scope": "Device", "status": "Charging"})
    source = BatterySource.open(tmp_path, NEVER_S)
    assert source._power_uw() == 6_000_000  # BAT1 rests
    first = source.read()
    (folder / "charge_now").write_text("2999000\n")  # 1 mAh less, at 12 V
    energy = difference(first["battery/gauge"], source.read()["battery/gauge"], 2**63)
    assert energy.energy_uj == 43_200_000
    source.close()


@pytest.mark.parametrize("status", ["Charging", "Full", "Not charging", "Unknown"])
def test_on_mains_every_read_of_a_battery_fails(tmp_path: Path, status: str) -> None:
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


def test_a_battery_without_power_and_gauge_is_refused(tmp_path: Path) -> None:
    lay_out(tmp_path / "BAT0", {"type": "Battery", "status": "Discharging", "capacity": "90"})
    with refuses("battery-shows-nothing"):
        BatterySource.open(tmp_path)


AC = {"type": "Mains", "online": "1"}


def test_an_online_supply_refuses_a_discharging_battery(tmp_path: Path) -> None:
    lay_out(tmp_path / "BAT0", BATTERY)
    lay_out(tmp_path / "AC", AC)
    lay_out(tmp_path / "usb", {"type": "USB", "online": "2"})
    lay_out(tmp_path / "mouse", {"type": "USB", "online": "1", "scope": "Device"})
    with refuses("battery-hides"):
        BatterySource.open(tmp_path, NEVER_S)
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


def test_a_discharge_without_a_rate_still_has_the_gauge(tmp_path: Path) -> None:
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
def test_an_impossible_rate_is_a_failed_read(shown_uw: int, tmp_path: Path) -> None:
    """All bits set of mW, of mA at 12 V, and a rate in mW."""
    lay_out(tmp_path / "BAT0", {**BATTERY, "power_now": str(shown_uw)})
    source = BatterySource.open(tmp_path, NEVER_S)
    shown = source.read()
    source.close()
    assert isinstance(shown["battery"], ReadFailure)
    assert isinstance(shown["battery/gauge"], Reading) and source.totals is None


def test_absent_sources_are_detected_without_opening(tmp_path: Path) -> None:
    for name in ("battery", "perf"):
        assert not registry.load(name).is_present(tmp_path)
    lay_out(tmp_path / "BAT0", BATTERY)
    assert BatterySource.is_present(tmp_path)


@pytest.mark.parametrize(("power_uw", "is_shown"), [("5000000", False), ("0", True)])
def test_a_power_of_a_battery_in_an_unknown_state_is_not_left_out(
    power_uw: str, is_shown: bool, tmp_path: Path
) -> None:
    lay_out(tmp_path / "BAT0", BATTERY)
    lay_out(tmp_path / "BAT1", {**BATTERY, "status": "Unknown", "power_now": power_uw})
    source = BatterySource.open(tmp_path)
    try:
        assert isinstance(source.read()["battery"], Reading) is is_shown
    finally:
        source.close()
