"""Test measured commands with sensors that are refused, or are the only ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from contract.tests.refusal import refuses
from controller.measured_command.options import command_from_words, shell_commands
from controller.measured_command.sources import category, components_of
from controller.measured_command.tests.benches import (
    DRAM,
    PACKAGE,
    RESTED,
    counting_w,
    measured,
    metered,
    without_joules,
)
from fde_instruments.sources.hwmon import HwmonSource
from fde_instruments.tests.gauges import SUPPLY
from instrumentation.sources import standing
from instrumentation.sources.local import LocalSources
from instrumentation.sources.standing import ONE_VALUE
from instrumentation.tests.gauges import lay_out

WORK = shell_commands(["i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done"])
WATTS = {PACKAGE: 20, DRAM: 2}


def sensor_of(folder: Path, files: dict[str, str], period_s: float = 0.1) -> Callable[[], object]:
    """Lay out a sensor of the board; return a function that opens it."""
    lay_out(folder / "hwmon/hwmon0", files)
    return lambda: HwmonSource.open(folder / "hwmon", period_s)


def test_an_unreadable_socket_makes_the_other_a_part(tmp_path: Path) -> None:
    two = {"energy1_label": "Esocket0", "energy1_input": "1", "energy2_label": "Esocket1"}
    lay_out(tmp_path / "hwmon0", {"name": "amd_energy", **two})
    (tmp_path / "hwmon0/energy2_input").mkdir()
    sources = LocalSources.open({"hwmon": lambda: HwmonSource.open(tmp_path, 3600)})
    assert category("amd_energy/Esocket0", components_of(sources)) is None
    sources.close()


def test_a_sensor_that_ignores_work_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "OTHERS_PATIENCE_S", 0.5)
    monkeypatch.setattr(standing, "BUSY", 0.02)  # of a machine that has other work to do
    hwmon = sensor_of(tmp_path, SUPPLY)
    outcome = metered(tmp_path, WATTS, WORK, rest_s=0.0, hwmon=hwmon)
    assert outcome.component == "cpu+memory"
    assert without_joules(outcome)["power_meter/power1"] == {ONE_VALUE}
    # At rest it may well be true, and it is said that nothing tells.
    outcome = metered(tmp_path, WATTS, hwmon=hwmon)
    assert outcome.component == "power_meter/power1"
    assert any("120 W in every reading" in note.sentence for note in outcome.notes)


def test_a_machine_that_shows_0_w_is_measured_by_its_processor(tmp_path: Path) -> None:
    files = {"name": "power_meter", "power1_average": "0"}
    outcome = metered(tmp_path, WATTS, hwmon=sensor_of(tmp_path, files))
    assert outcome.component == "cpu+memory"
    silent = [note for note in outcome.notes if note.code == "no-joules"]
    assert [note.facts["components"] for note in silent] == [["power_meter/power1"]]


def test_sockets_are_added_up_and_a_core_is_never_the_machine(tmp_path: Path) -> None:
    cores = {"name": "amd_energy", "energy1_input": "1", "energy1_label": "Ecore000"}
    for number in (0, 1):
        sockets = {"energy2_input": "1", "energy2_label": f"Esocket{number}"}
        lay_out(tmp_path / f"hwmon/hwmon{number}", {**cores, **sockets})
    sources = {"hwmon": lambda: HwmonSource.open(tmp_path / "hwmon", 0.1)}
    files = {f"hwmon/hwmon{n}/energy{k}_input": 30.0 * k for n in (0, 1) for k in (1, 2)}
    longer = [
        command_from_words(["sleep", "0.6"])
    ]  # than a busy machine keeps the counters from counting
    with counting_w(tmp_path, files):
        outcome = measured(longer, RESTED, lambda: LocalSources.open(sources), tmp_path)
    assert outcome.component == "amd_energy/sockets"
    trial = outcome.commands[0].trials[0]
    parts = [trial.energy_j[f"amd_energy/Esocket{n}"] for n in (0, 1)]
    assert trial.energy_j["amd_energy/sockets"] == pytest.approx(sum(filter(None, parts)))


def test_a_meter_of_one_of_two_supplies_is_not_the_machine(tmp_path: Path) -> None:
    """It shows half of the processor's power, at rest as well: either may be wrong."""
    hwmon = sensor_of(tmp_path, {"name": "power_meter", "power1_average": "10000000"})
    work = [command_from_words(["sleep", "0.5"])]
    with refuses("no-component") as refusal:
        metered(tmp_path, WATTS, work, rest_s=0.3, hwmon=hwmon)
    reasons = str(refusal.value)
    assert "power_meter/power1 (hwmon)" in reasons and "package-0 + dram (RAPL)" in reasons
    assert "have no joules" in reasons


def test_sources_side_by_side(tmp_path: Path) -> None:
    outcome = metered(
        tmp_path,
        {},
        [command_from_words(["sleep", "0.1"])],
        "one socket",
        perf=lambda: pytest.fail("RAPL was read by powercap already"),
        hwmon=sensor_of(tmp_path, SUPPLY, 0.02),
    )
    assert outcome.component == "power_meter/power1"
    power = outcome.commands[0].components["power_meter/power1"].power_w
    assert power is not None and power.mean == pytest.approx(120, rel=0.1)
    assert {"cpu+memory", "package-0", "core", "dram"} < set(outcome.components)
    (short,) = [note for note in outcome.notes if note.code == "short-runs"]
    assert short.facts["component"] == "power_meter/power1"
    assert outcome.components["power_meter/power1"].label == "power_meter/power1 (hwmon)"
