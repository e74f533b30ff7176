"""The link that a disk is behind, by trees laid out as the kernel's."""

from __future__ import annotations

from pathlib import Path

from agent.checks import disks
from agent.checks.context import CheckContext
from agent.provenance import link_speed
from agent.storage.devices import controllers


def block(root: Path, device: str) -> Path:
    """Return a disk in /sys/block, which links to its place below its controller."""
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


def multipath(root: Path) -> CheckContext:
    """Return a disk of native NVMe multipath, laid out as by Linux 6.12: two controllers."""
    subsystem = root / "devices/virtual/nvme-subsystem/nvme-subsys0"
    (subsystem / "nvme0n1").mkdir(parents=True)
    (subsystem / "nvme0n1" / "device").symlink_to("../../nvme-subsys0")
    (subsystem / "serial").write_text("S1\n")
    for number, speed in enumerate(("16.0 GT/s PCIe", "8.0 GT/s PCIe")):
        pci = root / f"devices/pci0/0000:0{number}:00.0"
        controller = pci / f"nvme/nvme{number}"
        (controller / "hwmon1").mkdir(parents=True)
        (controller / f"nvme{number}c{number}n1").mkdir()
        (controller / "transport").write_text("pcie\n")
        (controller / "device").symlink_to(pci)
        (controller / "hwmon1/temp1_input").write_text(f"{40 + number}000\n")
        (pci / "current_link_speed").write_text(f"{speed}\n")
        (pci / "current_link_width").write_text("4\n")
        (subsystem / f"nvme{number}").symlink_to(controller)
    (root / "class/block").mkdir(parents=True)
    (root / "class/block/nvme0n1").symlink_to(subsystem / "nvme0n1")
    return CheckContext(root, sys=root, disks=("nvme0n1",))


def test_a_multipath_disk_has_the_links_and_sensors_of_its_controllers(tmp_path: Path) -> None:
    context = multipath(tmp_path)
    device = tmp_path / "class/block/nvme0n1/device"
    assert disks.links(context) == {"S1": "16.0 GT/s PCIe, x4 + 8.0 GT/s PCIe, x4"}
    assert disks.temperatures_c(context) == {"S1": 41.0}
    assert [link_speed(path) for path in controllers(device)] == ["16.0 GT/s PCIe", "8.0 GT/s PCIe"]
    before = disks.links(context)
    (tmp_path / "devices/pci0/0000:01:00.0/current_link_speed").write_text("2.5 GT/s PCIe\n")
    current = disks.links(context)
    assert before and current and not disks.link_changed(before, current).ok


def test_a_disk_without_a_link_is_reported_as_such(tmp_path: Path) -> None:
    """The check does not vanish: a link that was there at first and is not now is a change."""
    device = tmp_path / "class/block/vda/device"
    device.mkdir(parents=True)
    context = CheckContext(tmp_path, suite_dir=tmp_path, sys=tmp_path, disks=("vda",))
    observation = disks.link(context)
    assert observation and observation.ok and observation.value == "not reported"
    (tmp_path / "provenance/first-readings.json").write_text('{"disk_links": {"vda": "x4"}}')
    lost = disks.link(context)
    assert lost and not lost.ok
