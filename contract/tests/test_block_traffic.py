"""The kernel's counts of a block device, whole or a partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.block_traffic import BlockTraffic

COUNTS = "7 0 80 3 9 0 160 5 0 8 8 2 0 24 1 4 2\n"


@pytest.fixture
def blocks(tmp_path: Path) -> Path:
    """Provide a disk and a partition of it, as sysfs links them."""
    disk = tmp_path / "devices" / "sda"
    for folder in (disk, disk / "sda1"):
        folder.mkdir(parents=True)
        (folder / "stat").write_text(COUNTS)
    (disk / "queue").mkdir()
    (disk / "queue" / "iostats").write_text("1\n")
    blocks = tmp_path / "class"
    blocks.mkdir()
    for folder in (disk, disk / "sda1"):
        (blocks / folder.name).symlink_to(folder)
    return blocks


@pytest.mark.parametrize("name", ["sda", "sda1"])
def test_counts_are_in_bytes_and_none_without_iostats(name: str, blocks: Path) -> None:
    traffic = BlockTraffic.of_device(name, blocks)
    assert traffic == BlockTraffic(80 * 512, 160 * 512, 24 * 512)
    assert traffic - BlockTraffic(0, 512, 0) == BlockTraffic(80 * 512, 159 * 512, 24 * 512)
    (blocks / "sda" / "queue" / "iostats").write_text("0\n")
    assert BlockTraffic.of_device(name, blocks) is None
