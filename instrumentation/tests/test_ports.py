"""Test the lookup of ports by USB identity."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from contract.tests.refusal import refuses
from instrumentation.ports import (
    Lookup,
    Port,
    PortError,
    all_ports,
    check_form,
    has_chip,
    usbtmc_ports,
)

IDS = ("10c4:ea60",)


A, B, C = "01D2A3F4", "01D2A3F5", "01D2A3F6"  # such as CP2104 have
ADAPTERS = {  # of which no serial number, or one that others have as well, tells one from another
    "CP2102": ("10c4:ea60", "0001"),
    "CH340": ("1a86:7523", ""),
    "PL2303": ("067b:2303", ""),
    "counterfeit FT232R": ("0403:6001", "A50285BI"),
    "candlelight": ("1d50:606f", "000000000001"),
    "counted": ("10c4:ea60", "123456"),
    "erased": ("0403:6001", "AAAAAAAA"),
}


def cp2104(number: int, serial: str = A, location: str = "1-2.3") -> Port:
    return Port(f"/dev/ttyUSB{number}", "10c4:ea60", serial, location, "CP2104")


FTDI = Port("/dev/ttyUSB9", "0403:6001", "FTAL9DXB", "1-4", "FT232R")


@pytest.mark.parametrize(
    ("name", "ports", "device"),
    [
        ("usb", [FTDI, cp2104(0)], "/dev/ttyUSB0"),
        ("usb:0403:6001", [FTDI, cp2104(0)], "/dev/ttyUSB9"),
        (f"usb:10C4:EA60:{B}", [cp2104(0), cp2104(1, B)], "/dev/ttyUSB1"),
        ("usb:10c4:ea60@1-3", [cp2104(0, ""), cp2104(1, "", "1-3")], "/dev/ttyUSB1"),
        ("usb:10c4:ea60@1-3", [cp2104(0), cp2104(1, A, "1-3:1.0")], "/dev/ttyUSB1"),
        ("usb:10c4:ea60@1-3:1.1", [cp2104(0, A, "1-3:1.0"), cp2104(1, A, "1-3:1.1")], "1"),
    ],
)
def test_usb_names_find_their_device(name: str, ports: list[Port], device: str) -> None:
    assert Lookup(name, IDS, lambda: ports).device().endswith(device)


def test_every_port_is_found_by_its_name() -> None:
    ports = [cp2104(0), cp2104(1, B), cp2104(2, "", "1-5"), cp2104(3, "", "1-6"), FTDI]
    for port in ports:
        assert Lookup(port.name, (), lambda: ports).device() == port.device


def test_two_alike_are_refused_with_their_differences() -> None:
    with refuses("several-devices", count=2, form="usb:10c4:ea60:SERIAL") as caught:
        Lookup("usb", IDS, lambda: [cp2104(0), cp2104(1, B, "1-7")]).device()
    assert f"serial number {B}, location 1-7" in str(caught.value.facts["choices"])
    assert isinstance(caught.value, PortError) and caught.value.errno == errno.ENOTUNIQ
    with refuses("several-devices", form="usb:10c4:ea60@LOCATION"):
        Lookup("usb", IDS, lambda: [cp2104(0, ""), cp2104(1, "", "1-7")]).device()


def test_a_missing_device_is_refused_with_those_of_its_kind() -> None:
    with refuses("device-absent") as caught:
        Lookup(f"usb:10c4:ea60:{C}", IDS, lambda: [cp2104(0)]).device()
    assert isinstance(caught.value, PortError) and caught.value.errno == errno.ENOENT
    assert str(caught.value.facts["alike"]).startswith("/dev/ttyUSB0")
    with refuses("no-usb-device", ids="10c4:ea60"):
        Lookup("usb", IDS, lambda: [FTDI]).device()
    with refuses("no-usb-id"):
        Lookup("usb", (), lambda: [FTDI]).device()


def test_a_renumbered_and_moved_device_is_found_and_no_other() -> None:
    ports = [cp2104(0)]
    lookup = Lookup("usb", IDS, lambda: ports)
    assert lookup.device() == "/dev/ttyUSB0"
    ports[:] = [cp2104(5, location="2-1")]
    assert lookup.device() == "/dev/ttyUSB5"
    ports[:] = [cp2104(0, B)]
    with refuses("device-absent"):
        lookup.device()
    ports[:] = [cp2104(0, B), cp2104(6)]
    assert lookup.device() == "/dev/ttyUSB6"


def test_a_path_follows_its_devices_serial_number(tmp_path: Path) -> None:
    paths = [tmp_path / f"ttyUSB{n}" for n in range(2)]
    for path in paths:
        path.touch()
    mine, other = (Port(str(p), "0403:6001", s, "1-1") for p, s in zip(paths, (A, B), strict=True))
    ports = [mine]
    lookup = Lookup(str(paths[0]), (), lambda: ports)
    assert lookup.device() == str(paths[0])
    ports[:] = [Port(str(paths[0]), "0403:6001", B), Port(str(paths[1]), "0403:6001", A)]
    assert lookup.device() == str(paths[1])
    ports[:] = [other]
    with refuses("device-gone", device=f"usb:0403:6001:{A}"):
        lookup.device()
    ports[:] = [mine, other]
    assert lookup.device() == str(paths[0])


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("form", ["usb", "usb:{id}", "usb:{id}:{serial}", "path"])
def test_without_a_unique_serial_only_the_same_socket_is_accepted(
    form: str, adapter: str, tmp_path: Path
) -> None:
    usb_id, serial = ADAPTERS[adapter]
    paths = [tmp_path / f"ttyUSB{n}" for n in range(2)]
    for path in paths:
        path.touch()
    first, other = (Port(str(paths[0]), usb_id, serial, place) for place in ("1-1.2", "1-1.3"))
    name = str(paths[0]) if form == "path" else form.format(id=usb_id, serial=serial)
    name = name.rstrip(":")  # where it has no serial number to name
    ports = [first]
    lookup = Lookup(name, (usb_id,), lambda: ports)
    assert lookup.device() == str(paths[0])
    ports[:] = []
    with pytest.raises(PortError) as gone:
        lookup.device()
    assert gone.value.errno == errno.ENOENT
    ports[:] = [other]
    with refuses("device-moved", before="1-1.2", port=f"usb:{usb_id}@1-1.3"):
        lookup.device()
    ports[:] = [other, Port(str(paths[1]), usb_id, serial, "1-1.2")]
    assert lookup.device() == str(paths[1])  # renumbered, in its socket


def test_a_path_refuses_another_kind_of_adapter(tmp_path: Path) -> None:
    path = tmp_path / "ttyUSB0"
    path.touch()
    ports = [Port(str(path), "1a86:7523", "", "1-1.2")]
    lookup = Lookup(str(path), (), lambda: ports)
    assert lookup.device() == str(path)
    ports[:] = [Port(str(path), "0403:6001", C, "1-1.2")]
    with refuses("device-gone") as refusal:
        lookup.device()
    assert f"usb:0403:6001:{C}" in str(refusal.value.facts["other"])
    built_in = Lookup(str(path), (), lambda: ports)
    ports[:] = [Port(str(path))]
    assert built_in.device() == str(path)
    ports[:] = [Port(str(path), "0403:6001", C, "1-1.2")]
    with refuses("device-gone"):
        built_in.device()


def test_a_shared_serial_number_is_not_part_of_the_name() -> None:
    for usb_id, serial in ADAPTERS.values():
        assert Port("/dev/ttyUSB0", usb_id, serial, "1-5").name == f"usb:{usb_id}@1-5"
    assert cp2104(0).name == f"usb:10c4:ea60:{A}"


def test_a_path_without_usb_is_opened_unchanged(tmp_path: Path) -> None:
    lookup = Lookup(str(tmp_path / "port"), IDS, lambda: [])
    with pytest.raises(PortError) as caught:
        lookup.device()
    assert caught.value.errno == errno.ENOENT
    (tmp_path / "port").touch()
    assert lookup.device() == str(tmp_path / "port")


@pytest.mark.parametrize("name", ["usb:", "usb:10c4", "usb:10c4:ea60:", "usb:10c4:ea60@", "usb:x"])
def test_an_incomplete_usb_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="names no port: write usb:VVVV:PPPP"):
        check_form(name)
    check_form("./usb-serial")


def test_usbtmc_devices_are_read_from_sysfs(tmp_path: Path) -> None:
    usb = tmp_path / "devices/usb1/1-2"
    (usb / "1-2:1.0/usbmisc/usbtmc3").mkdir(parents=True)
    (usb / "1-2:1.0/usbmisc/usbtmc3/device").symlink_to("../..")
    for name, text in {
        "idVendor": "0b21",
        "idProduct": "0025",
        "serial": "C3UE12345",
        "manufacturer": "YOKOGAWA",
        "product": "WT310",
    }.items():
        (usb / name).write_text(text + "\n")
    sys_class = tmp_path / "class"
    sys_class.mkdir()
    (sys_class / "usbtmc3").symlink_to(usb / "1-2:1.0/usbmisc/usbtmc3")
    (sys_class / "usbtmc4").symlink_to(tmp_path / "gone")
    expected = Port("/dev/usbtmc3", "0b21:0025", "C3UE12345", "1-2", "YOKOGAWA WT310")
    assert usbtmc_ports(sys_class) == [expected]
    assert usbtmc_ports(tmp_path / "none") == []


def test_built_in_ports_without_a_chip_are_skipped(tmp_path: Path) -> None:
    for name, kind in {"ttyS0": "4", "ttyS1": "0", "ttyUSB0": ""}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "type").write_text(f"{kind}\n")
    (tmp_path / "ttyS2").mkdir()
    names = ["ttyS0", "ttyS1", "ttyS2", "ttyUSB0", "rfcomm0"]
    assert [n for n in names if has_chip(n, tmp_path)] == ["ttyS0", "ttyUSB0", "rfcomm0"]


def test_the_ports_of_this_machine_exist() -> None:
    assert all(os.path.lexists(port.device) for port in all_ports())
