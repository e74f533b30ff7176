"""Test graphics processors with a stand-in for NVIDIA's library."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.tests.refusal import refuses
from fde_instruments.sources.nvml import NvmlSource
from fde_instruments.tests.gauges import NEVER_S, compile_nvml
from instrumentation.sources import coverage
from instrumentation.sources.counter import ReadFailure, Reading, difference


def test_graphics_by_counter_or_by_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = compile_nvml(tmp_path, monkeypatch, "1500 90000\n-1 30000\n")
    source = NvmlSource.open(str(library), NEVER_S)
    assert source.names == ("gpu-0", "gpu-0/power", "gpu-1")
    first = source.read()
    (tmp_path / "cards").write_text("1503 90000\n-1 30000\n")
    last = source.read()
    assert difference(first["gpu-0"], last["gpu-0"], 2**63).energy_uj == 3000
    assert source.sums["gpu-1"].window_ns == 10**9  # as NVML states
    start, end = first["gpu-1"], last["gpu-1"]
    assert isinstance(start, Reading) and isinstance(end, Reading)
    passed_ns = end.t_after_ns - start.t_after_ns
    assert end.energy_uj - start.energy_uj == pytest.approx(passed_ns * 30 / 1000, abs=2)
    (tmp_path / "cards").write_text("-2 90000\n-2 30000\n")
    assert {
        reading.error for reading in source.read().values() if isinstance(reading, ReadFailure)
    } == {"GPU is lost"}
    source.close()


@pytest.mark.parametrize(
    ("card", "name", "covers"),
    [
        ("NVIDIA H100 80GB HBM3", "gpu-0", "accelerator"),
        ("NVIDIA GH200 480GB", "superchip-0", "module"),
        ("NVIDIA GB200", "superchip-0", "module"),
        ("NVIDIA GeForce GTX 1080", "gpu-0", "accelerator"),
    ],
)
def test_a_counter_covers_what_its_card_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, card: str, name: str, covers: str
) -> None:
    monkeypatch.setenv("FDE_TEST_CARD", card)
    source = NvmlSource.open(str(compile_nvml(tmp_path, monkeypatch, "1500 90000\n")), NEVER_S)
    assert source.names == ((name, f"{name}/power") if covers == "accelerator" else (name,))
    category = coverage.table().category(name, source.names)
    assert category is not None and category.name == covers
    source.close()


def test_a_card_that_is_lost_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = compile_nvml(tmp_path, monkeypatch, "-2 90000\n1500 30000\n")
    source = NvmlSource.open(str(library), NEVER_S)
    assert source.names == ("gpu-1", "gpu-1/power")
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
