"""The power model: its arithmetic, and sources of all coefficients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from contract.tests.refusal import Refusal, refuses
from lab.power_model import MODEL_FILE, Activity, DriveActivity, DrivePower, PowerModel, rapl_words

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


def test_power_is_the_sum_of_its_parts() -> None:
    did = DriveActivity(bytes_read=4, bytes_written=2, bytes_crypt=6)
    disk = DriveActivity(bytes_read=1000, service_ns=10**9)
    activity = Activity(cpu_ns=3 * 10**9, drives=(did, DriveActivity(), disk))
    power = MODEL.power(activity, dt_s=2.0, media=["drive", "drive", "disk"])
    assert power.drive_w == 2 * 1.0 + (4 * 2.0 + 2 * 3.0 + 6 * 0.5) / 2 + 4.0 + 2.0 / 2
    assert power.system_w == 10.0 + 5.0 * 1.5 + power.drive_w


def test_stolen_time_draws_no_idle_power() -> None:
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
    """Return the unit in a coefficient's name."""
    if "_mw" in key:
        return "mW"
    if key.endswith("_share"):
        return "1"
    return "J/byte" if key.startswith("j_per_byte") else "W"


def test_rapl_and_system_coefficients_agree() -> None:
    """A busy CPU costs the machine as much as package and memory together."""
    model = {s: {k: c["value"] for k, c in keys.items()} for s, keys in declared().items()}
    rapl, system = model["rapl"], model["system"]
    busy_mw = rapl["package_busy_mw_per_cpu"] + rapl["dram_busy_mw_per_cpu"]
    assert system["busy_w_per_cpu"] == pytest.approx(busy_mw / 1000)
    assert system["idle_w"] * 1000 > rapl["package_idle_mw"] + rapl["dram_idle_mw"]


NOISE = {"noise": {"value": 1, "unit": "W", "source": "a data sheet"}}


@pytest.mark.parametrize(
    ("section", "changes", "refusal"),
    [
        ("rapl", {"dram_idle_mw": None}, refuses("no-coefficient", key="dram_idle_mw")),
        ("drive", {"j_per_byte_crypt": None}, refuses("no-coefficient", section="drive")),
        ("hdd", NOISE, refuses("no-coefficient", section="hdd", key="noise")),
        ("drive", {"idle_w": {"value": 1, "unit": "W"}}, refuses("model-unread")),
        *(
            ("rapl", {"dram_idle_mw": {**NOISE["noise"], "value": value}}, refuses("model-unread"))
            for value in (-1, 1_000_001, "a lot", None)
        ),
    ],
)
def test_a_missing_unknown_or_invalid_coefficient_is_refused(
    section: str, changes: dict[str, Any], refusal: Refusal, tmp_path: Path
) -> None:
    model = declared()
    for key, coefficient in changes.items():
        model[section].pop(key, None)
        if coefficient:
            model[section][key] = coefficient
    path = tmp_path / "model.yml"
    path.write_text(yaml.safe_dump(model))
    with refusal:
        PowerModel.load(path)
        rapl_words(path)


@pytest.mark.parametrize("text", [None, "["])
def test_an_unreadable_power_model_is_refused(text: str | None, tmp_path: Path) -> None:
    if text:
        (tmp_path / "model.yml").write_text(text)
    with refuses("model-unread"):
        PowerModel.load(tmp_path / "model.yml")


def test_rapl_words_are_milliwatts_of_the_model(tmp_path: Path) -> None:
    model = declared()
    model["rapl"]["package_busy_mw_per_cpu"]["value"] = 10000.4
    path = tmp_path / "model.yml"
    path.write_text(yaml.safe_dump(model))
    assert rapl_words(path, packages=2) == [
        *("fde_rapl_sim.package_idle_mw=3490", "fde_rapl_sim.package_busy_mw_per_cpu=10000"),
        *("fde_rapl_sim.dram_idle_mw=744", "fde_rapl_sim.dram_busy_mw_per_cpu=1000"),
        "fde_rapl_sim.packages=2",
    ]
