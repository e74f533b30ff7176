"""The power model: its arithmetic, and that no coefficient stands there without a source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from contract.tests.refusal import refuses
from lab.power_model import MODEL_FILE, Activity, DriveActivity, DrivePower, PowerModel

MODEL = PowerModel(
    system_idle_w=10.0,
    system_busy_w_per_cpu=5.0,
    media={
        "drive": DrivePower(
            idle_w=1.0, j_per_byte_read=2.0, j_per_byte_written=3.0, j_per_byte_crypt=0.5
        ),
        "disk": DrivePower(idle_w=4.0, busy_w=2.0),
    },
)


def declared() -> dict[str, dict[str, dict[str, Any]]]:
    loaded = yaml.safe_load(MODEL_FILE.read_text())
    assert isinstance(loaded, dict)
    return loaded


def test_arithmetic() -> None:
    did = DriveActivity(bytes_read=4, bytes_written=2, bytes_crypt=6)
    disk = DriveActivity(bytes_read=1000, service_ns=10**9)
    activity = Activity(cpu_ns=3 * 10**9, drives=(did, DriveActivity(), disk))
    power = MODEL.power(activity, dt_s=2.0, media=["drive", "drive", "disk"])
    assert power.drive_w == 2 * 1.0 + (4 * 2.0 + 2 * 3.0 + 6 * 0.5) / 2 + 4.0 + 2.0 / 2
    assert power.system_w == 10.0 + 5.0 * 1.5 + power.drive_w


def test_a_machine_that_stands_still_draws_no_idle_power() -> None:
    activity = Activity(10**9, (DriveActivity(bytes_written=2),), stolen_ns=10**9)
    power = MODEL.power(activity, dt_s=4.0, media=["drive"])
    assert power.drive_w * 4.0 == 3 * 1.0 + 2 * 3.0
    assert power.system_w * 4.0 == pytest.approx(3 * 10.0 + 5.0 + power.drive_w * 4.0)
    half = replace(MODEL, stolen_idle_share=0.5).power(activity, dt_s=4.0, media=["drive"])
    assert half.drive_w * 4.0 == 3.5 * 1.0 + 2 * 3.0


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1, max_size=20))
def test_energy_does_not_depend_on_how_time_is_cut(steps: list[tuple[int, int]]) -> None:
    def energy_j(cpu_ns: int, written: int, seconds: float) -> float:
        activity = Activity(cpu_ns, (DriveActivity(bytes_written=written),))
        return MODEL.power(activity, seconds, ["drive"]).system_w * seconds

    whole_j = energy_j(sum(c for c, _ in steps), sum(b for _, b in steps), 0.01 * len(steps))
    assert sum(energy_j(c, b, 0.01) for c, b in steps) == pytest.approx(whole_j)


def test_restarted_counter_counts_from_zero() -> None:
    then = Activity(100, (DriveActivity(bytes_read=1000, bytes_written=50), DriveActivity(5)))
    restarted = Activity(150, (DriveActivity(30, 50, bytes_crypt=4), DriveActivity(7)))
    assert restarted.since(then) == Activity(
        50, (DriveActivity(30, 0, bytes_crypt=4), DriveActivity(2))
    )


def test_every_coefficient_has_a_unit_and_a_source() -> None:
    PowerModel.load()
    for section, coefficients in declared().items():
        for key, coefficient in coefficients.items():
            assert set(coefficient) == {"value", "unit", "source"}, f"{section}.{key}"
            assert isinstance(coefficient["value"], int | float)
            assert len(coefficient["source"]) > 20
            assert coefficient["unit"] == unit_of(key)


def unit_of(key: str) -> str:
    """Units stand in the names."""
    if "_mw" in key:
        return "mW"
    if key.endswith("_share"):
        return "1"
    return "J/byte" if key.startswith("j_per_byte") else "W"


def test_counters_and_meter_tell_of_the_same_machine() -> None:
    """A busy CPU costs the machine what it costs package and memory together, and idle no less."""
    model = {s: {k: c["value"] for k, c in keys.items()} for s, keys in declared().items()}
    rapl, system = model["rapl"], model["system"]
    busy_mw = rapl["package_busy_mw_per_cpu"] + rapl["dram_busy_mw_per_cpu"]
    assert system["busy_w_per_cpu"] == pytest.approx(busy_mw / 1000)
    assert system["idle_w"] * 1000 > rapl["package_idle_mw"] + rapl["dram_idle_mw"]


def test_coefficient_without_source_is_refused(tmp_path: Path) -> None:
    model = declared()
    del model["drive"]["j_per_byte_crypt"]["source"]
    path = tmp_path / "model.yml"
    path.write_text(yaml.safe_dump(model))
    with refuses("model-unread"):
        PowerModel.load(path)
    noisy = {**declared()["hdd"], "noise": declared()["hdd"]["idle_w"]}
    for section, changed in (("drive", {"idle_w": noisy["noise"]}), ("hdd", noisy)):
        path.write_text(yaml.safe_dump({**declared(), section: changed}))
        with refuses("no-coefficient", section=section):
            PowerModel.load(path)
    with refuses("model-unread"):
        PowerModel.load(tmp_path / "none.yml")
