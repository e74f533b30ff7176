"""Test what sensors of the board cover, and which may be added up."""

from __future__ import annotations

import pytest

from instrumentation.sources import coverage

TABLE = coverage.table()
GRACE = [f"power_meter/{part} Power Socket 0" for part in ("Module", "Grace", "CPU", "SysIO")]
CORES = [f"amd_energy/Ecore{n:03d}" for n in range(4)]


@pytest.mark.parametrize(
    ("name", "names", "covers"),
    [
        ("amd_energy/Ecore000", CORES, "core"),
        ("amd_energy/Esocket0", CORES, "processor"),
        ("hwmon3-zenergy/Esocket1", [], "processor"),
        ("amd_energy/Esocket0", ["amd_energy/Esocket1"], None),
        ("fam15h_power/power1", ["hwmon2-fam15h_power/power1"], None),
        ("power_meter/power1", ["power_meter/power1"], "machine"),
        ("power_meter/power1", ["power_meter/power1", "hwmon2-power_meter/power1"], None),
        (GRACE[0], GRACE, "module"),
        (GRACE[1], GRACE, "processor+memory"),
        (GRACE[2], GRACE[2:3], "part"),
        (GRACE[3], GRACE, "part"),
        ("corsairpsu/power total", [], "output"),
        ("zenpower/SVI2_P_Core", [], "core"),
        ("zenpower/SVI2_P_SoC", [], "part"),
        ("corsairpsu/power +12v", [], "rail"),
        ("ina3221/VDD_IN", [], "module"),
        ("ina3221/VDD_CPU_GPU_CV", [], "part"),
        ("apm_xgene/CPU power", [], "part"),
        ("apm_xgene/soc", [], "processor"),
        ("smpro_hwmon/power1 CORE VRD", [], "part"),
        ("smpro_hwmon/soc", [], "processor"),
        ("gpu-0", ["gpu-0"], "accelerator"),
        ("gpu-0", ["gpu-0", "gpu-1"], None),
        ("gpu-0", ["gpu-0", "amdgpu/PPT"], None),
        ("superchip-0", ["superchip-0", "superchip-0/power"], "module"),
        ("superchip-0", ["superchip-0", "superchip-1"], None),
        ("amdgpu-apu/PPT", ["amdgpu-apu/PPT", "hwmon3-amdgpu/PPT"], "processor"),
        ("xe/card", ["xe/card", "xe/pkg"], "accelerator"),
        ("xe/pkg", ["xe/card", "xe/pkg"], "accelerator-package"),
        ("xe/pkg", ["xe/pkg", "hwmon7-xe/pkg"], None),
        ("cards", ["gpu-0", "gpu-1", "cards"], "accelerator"),
        ("ina226/power1", [], None),
        ("nct6775/power1", [], None),
    ],
)
def test_each_quantity_covers_its_category(name: str, names: list[str], covers: str | None) -> None:
    category = TABLE.category(name, names)
    assert (category.name if category else None) == covers


def test_only_declared_parts_are_added_up() -> None:
    two = ["amd_energy/Esocket0", "hwmon3-amd_energy/Esocket0"]
    assert TABLE.sums([*CORES, *two]) == {"amd_energy/sockets": two}
    assert TABLE.sums([*CORES, two[0]]) == {}
    nodes = ["fam15h_power/power1", "hwmon2-fam15h_power/power1"]
    assert TABLE.sums(nodes) == {"fam15h_power/nodes": nodes}
    modules = [GRACE[0], GRACE[0].replace("0", "1")]
    assert TABLE.sums([*GRACE, modules[1]]) == {"power_meter/modules": modules}
    assert TABLE.category("power_meter/modules", modules) is TABLE.categories["module"]
    altra = ["apm_xgene/CPU power", "apm_xgene/IO power"]
    assert TABLE.sums(altra) == {"apm_xgene/soc": altra}
    cores = [altra[0], f"hwmon3-{altra[0]}"]
    assert TABLE.sums(cores) == {}  # cores alone are no processor
    assert TABLE.sums(["power_meter/power1", "hwmon1-power_meter/power1"]) == {}


@pytest.mark.parametrize(
    ("names", "cards"),
    [
        (["gpu-0", "gpu-1", "gpu-2", "gpu-3"], {"gpu-0", "gpu-1", "gpu-2", "gpu-3"}),
        (["amdgpu/PPT", "hwmon3-amdgpu/PPT"], {"amdgpu/PPT", "hwmon3-amdgpu/PPT"}),
        (["amdgpu/PPT", "gpu-0", "cpu"], {"amdgpu/PPT", "gpu-0"}),
        (["xe/card", "xe/pkg", "hwmon8-xe/card"], {"xe/card", "hwmon8-xe/card"}),
        (["xe/card", "xe/pkg"], set()),
        (["amdgpu/slowPPT", "amdgpu/fastPPT"], set()),
        (["gpu-0"], set()),
    ],
)
def test_several_cards_are_added_up_whatever_their_driver(
    names: list[str], cards: set[str]
) -> None:
    assert set(TABLE.sums(names).get("cards", ())) == cards


def test_categories_include_known_ones() -> None:
    for category in TABLE.categories.values():
        assert set(category.holds) <= set(TABLE.categories)
