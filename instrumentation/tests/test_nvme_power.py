"""Test which drives report their power; the guest's test reads real logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from instrumentation.sources import nvme
from instrumentation.sources.nvme import NvmePowerError, NvmeSource, power_uw
from instrumentation.tests.gauges import lay_out_nvme


def test_only_drives_that_measure_power_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out_nvme(tmp_path, monkeypatch, nvme0=None, nvme1=1 << 16 | 25_000, nvme2=2 << 16 | 610)
    source = NvmeSource.open(tmp_path, tmp_path)
    source.close()
    assert source.names == ["nvme1", "nvme2"]
    assert [power_uw(tmp_path / name) for name in source.names] == [2_500_000, 6_100_000]


@pytest.mark.parametrize("word", [0, 3 << 16 | 7, 7, 1 << 20 | 1 << 16 | 7])
def test_an_invalid_power_word_is_a_failed_read(
    word: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out_nvme(tmp_path, monkeypatch, nvme0=word)
    with pytest.raises(OSError, match=f"{word:#010x}"):
        power_uw(tmp_path / "nvme0")


def test_drives_without_power_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = []
    for drives in ({}, {"nvme0": None}):
        lay_out_nvme(tmp_path, monkeypatch, **drives)
        with pytest.raises(NvmePowerError) as refused:
            NvmeSource.open(tmp_path, tmp_path)
        codes.append(refused.value.code)

    def deny(_device: str) -> bytes:
        raise PermissionError(13, "denied")

    monkeypatch.setattr(nvme, "identify_controller", deny)
    with pytest.raises(NvmePowerError) as refused:
        NvmeSource.open(tmp_path, tmp_path)
    assert [*codes, refused.value.code] == ["no-nvme-drive", "no-nvme-power", "nvme-drives-refused"]
    assert not NvmeSource.is_present(tmp_path, tmp_path)
