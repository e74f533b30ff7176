"""The link that a disk is behind, by trees laid out as the kernel's."""

from __future__ import annotations

from pathlib import Path

from agent.provenance import link_speed


def block(root: Path, device: str) -> Path:
    """A disk in /sys/block, which links to its place below its controller."""
    place = root / "devices" / device
    place.mkdir(parents=True)
    (root / "block").mkdir(exist_ok=True)
    link = root / "block" / place.name
    link.symlink_to(place)
    return link


def test_a_disk_on_pci_express_has_the_speed_of_its_controllers_link(tmp_path: Path) -> None:
    disk = block(tmp_path, "pci0/0000:00:01.0/0000:01:00.0/nvme/nvme0/nvme0n1")
    for device, speed in (("0000:00:01.0", "16.0 GT/s"), ("0000:00:01.0/0000:01:00.0", "8.0 GT/s")):
        (tmp_path / "devices/pci0" / device / "current_link_speed").write_text(f"{speed} PCIe\n")
    assert link_speed(disk) == "8.0 GT/s PCIe"


def test_a_disk_on_sata_has_the_speed_of_its_port_and_not_of_the_controller(tmp_path: Path) -> None:
    disk = block(tmp_path, "pci0/0000:00:17.0/ata3/host2/target2:0:0/2:0:0:0/block/sda")
    (tmp_path / "devices/pci0/0000:00:17.0/current_link_speed").write_text("8.0 GT/s PCIe\n")
    (tmp_path / "links/link3").mkdir(parents=True)
    (tmp_path / "links/link3/sata_spd").write_text("6.0 Gbps\n")
    assert link_speed(disk, tmp_path / "links") == "6.0 Gbps"


def test_a_disk_without_a_link_has_none(tmp_path: Path) -> None:
    assert link_speed(block(tmp_path, "virtual/block/loop0")) is None
