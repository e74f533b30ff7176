"""The machine's temperature: which sensors count, and how it is waited for."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from agent.checks import Memory, processor
from agent.tests.check_context import Machine, inspect_before
from contract.examination import Finding

ZONE = "sys/class/thermal/thermal_zone1/temp"


def _first(place: Machine) -> float:
    text = (place.root / "suite/provenance/first-readings.json").read_text()
    return float(json.loads(text)["temperature_c"])


def _before(place: Machine, *acts: Callable[[], None]) -> tuple[list[str], Finding]:
    inspection, reasons, _ = inspect_before(place, Memory(), *acts)
    (finding,) = (f for f in inspection.findings if f.name == "temperature")
    return reasons, finding


def test_the_package_sensor_precedes_other_zones(place: Machine) -> None:
    assert processor.temperature_c(place.context) == 45.0


def test_hwmon_gives_the_package_temperature_without_a_zone(place: Machine) -> None:
    place.write("sys/class/thermal/thermal_zone1/type", "acpitz")
    assert processor.temperature_c(place.context) == 99.0
    chip = place.root / "sys/class/hwmon/hwmon3"
    chip.mkdir(parents=True)
    for name, text in {
        "name": "coretemp",
        "temp1_label": "Package id 0",
        "temp1_input": "51500",
        "temp2_label": "Core 0",
        "temp2_input": "60000",
    }.items():
        (chip / name).write_text(text)
    assert processor.temperature_c(place.context) == 51.5
    (chip / "name").write_text("nvme")
    assert processor.temperature_c(place.context) == 99.0


def test_a_broken_sensor_gives_no_temperature(place: Machine) -> None:
    place.write(ZONE, "-273150")
    assert processor.temperature_c(place.context) is None
    assert processor.temperature(place.context) is None


def test_the_first_temperature_is_stored_for_the_whole_suite(place: Machine) -> None:
    reasons, finding = _before(place)
    assert (reasons, finding.value, _first(place)) == ([], 45.0, 45.0)
    place.write(ZONE, "47900")
    assert _before(place)[1].ok
    assert _first(place) == 45.0


def test_a_hot_machine_is_waited_for_until_it_is_cool(place: Machine) -> None:
    _before(place)
    place.write(ZONE, "60000")
    cooling = (lambda: place.write(ZONE, "50000"), lambda: place.write(ZONE, "47000"))
    reasons, finding = _before(place, *cooling)
    assert reasons == [
        "temperature: the machine is warmer than at the suite's first reading "
        "(60.0 °C, 45.0 °C ± 3 °C wanted)"
    ]
    assert (finding.ok, finding.value, finding.waited_s) == (True, 47.0, 20.0)


def test_lasting_heat_is_a_warning(place: Machine) -> None:
    _before(place)
    place.write(ZONE, "60000")
    reasons, finding = _before(place)
    assert len(reasons) == 1
    assert (finding.ok, finding.severity, finding.waited_s) == (False, "warning", 180.0)


def test_a_cold_machine_is_made_to_work_and_the_finding_says_so(
    place: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "BUSY_S", 0.05)
    _before(place)
    place.write(ZONE, "30000")
    patient = [lambda: None] * 3
    reasons, finding = _before(place, *patient, lambda: place.write(ZONE, "44000"))
    assert reasons[0].startswith("temperature: the machine is colder")
    assert finding.ok
    assert finding.helped == "a short load was used to warm it up"
    assert {"waited_s", "helped"} <= finding.document().keys()


def test_a_hot_machine_is_not_made_to_work(place: Machine) -> None:
    _before(place)
    place.write(ZONE, "60000")
    assert not processor.warm_up(place.context, waited_s=1000.0)
    place.write(ZONE, "30000")
    assert not processor.warm_up(place.context, waited_s=0.0)
