"""Power switches: simulated plugs and outlets on loopback, programs that stand for others."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from contract.plan import PowerSwitch
from contract.tests.refusal import refuses
from instrumentation import power_switch
from instrumentation.simulators.http import HttpSimulator
from instrumentation.simulators.snmp import SnmpSimulator
from instrumentation.tests.noting_plug import NotingPlug

SECRET = "admin:corr&ct horse"
PROFILES = {"shelly": "shelly-switch", "shelly-gen1": "shelly-gen1", "tasmota": "tasmota"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power_switch, "PAUSE_S", 0.0)
    monkeypatch.setattr(power_switch, "TRIES", 2)


def kept(folder: Path, text: str = SECRET) -> str:
    path = folder / "secret"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return str(path)


def switch(kind: Any, address: str = "", **more: Any) -> PowerSwitch:
    return PowerSwitch(kind=kind, address=address, off_s=0.0, **more)


@pytest.mark.parametrize("kind", PROFILES)
@pytest.mark.parametrize("secret", ["", SECRET])
def test_a_plug_is_switched_off_and_on(kind: str, secret: str, tmp_path: Path) -> None:
    plug = NotingPlug(PROFILES[kind])
    server = plug.serve("127.0.0.1", 0, secret)
    try:
        file = kept(tmp_path) if secret else ""
        power_switch.cycle(switch(kind, server.address, secret_file=file))
        assert list(dict.fromkeys(plug.let_through)) == [False, True] and plug.output
        with refuses("switch-refuses"):
            wrong = kept(tmp_path, "admin:wrong") if secret else ""
            plug.broken = not secret
            power_switch.cycle(switch(kind, server.address, secret_file=wrong))
    finally:
        server.close()


def test_power_is_given_back_though_the_answer_to_off_was_lost() -> None:
    plug = HttpSimulator("shelly-switch")
    answer = plug.answer

    def losing(request: str) -> tuple[str, bytes]:
        label, body = answer(request)
        return ("503 Busy", b"") if "on=false" in request else (label, body)

    plug.answer = losing  # type: ignore[method-assign]
    server = plug.serve("127.0.0.1", 0)
    try:
        with refuses("switch-refuses"):
            power_switch.cycle(switch("shelly", server.address))
    finally:
        server.close()
    assert plug.output


def test_an_answer_without_the_deed_is_none() -> None:
    plug = HttpSimulator("tasmota")
    warning = b'{"WARNING": "Need user=<username>&password=<password>"}'
    plug.answer = lambda request: ("200 OK", warning)  # type: ignore[method-assign]  # noqa: ARG005
    server = plug.serve("127.0.0.1", 0)
    try:
        with refuses("switch-refuses", answer="200 OK"):
            power_switch.cycle(switch("tasmota", server.address))
    finally:
        server.close()


@pytest.mark.parametrize("oid", ["", "1.3.6.1.4.1.32473.2.4"])
def test_an_outlet_is_switched_by_snmp(oid: str, tmp_path: Path) -> None:
    unit = SnmpSimulator("apc-rpdu2")
    server = unit.serve("127.0.0.1", 0, "community")
    try:
        file = kept(tmp_path, "community")
        cycled = switch("snmp", server.address, outlet=2, oid=oid, secret_file=file)
        power_switch.cycle(cycled)
        outlet = oid or "1.3.6.1.4.1.318.1.1.26.9.2.4.1.5.2"
        assert unit.commands == [(outlet, 2), (outlet, 1)]
        unit.silent = True
    finally:
        server.close()


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """Put a program called ipmitool first on the PATH; what it is asked is in the file returned."""
    program, log = folder / "bin" / "ipmitool", folder / "asked"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >>{log}\n{script}\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return log


def test_a_bmc_is_asked_by_ipmitool_which_reads_the_password_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program stands for ipmitool: it says no to `cycle` as a machine that is off does."""
    log = stand_in(tmp_path, monkeypatch, 'case "$*" in *cycle) exit 1 ;; esac')
    file = kept(tmp_path)
    power_switch.cycle(switch("ipmi", "bmc.example", user="ADMIN", secret_file=file))
    lines = log.read_text(encoding="utf-8").splitlines()
    asked = f"-I lanplus -H bmc.example -U ADMIN -f {file} chassis power"
    assert lines == [f"{asked} cycle", f"{asked} on"]
    Path(file).chmod(0o644)
    with refuses("secret-open"):
        power_switch.cycle(switch("ipmi", "bmc.example", user="ADMIN", secret_file=file))


def test_a_program_is_run_once_and_its_failure_is_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    power_switch.cycle(switch("program", argv=("sh", "-c", f"echo cycled >>{log}")))
    assert log.read_text(encoding="utf-8") == "cycled\n"
    with refuses("switch-program", status=3):
        power_switch.cycle(switch("program", argv=("sh", "-c", "exit 3")))


def test_a_magic_packet_wakes() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as card:
        card.bind(("127.0.0.1", 0))
        card.settimeout(10)
        port = card.getsockname()[1]
        power_switch.cycle(switch("wake-on-lan", f"02:00:5e:10:00-ff@127.0.0.1:{port}"))
        packet = card.recv(200)
    assert packet == b"\xff" * 6 + bytes.fromhex("02005e1000ff") * 16


@pytest.mark.parametrize(
    ("kind", "address", "keys"),
    [
        ("shelly", "192.0.2.7", ["address"]),
        ("shelly", "http://192.0.2.7", []),
        ("snmp", "http://192.0.2.7", ["address"]),
        ("wake-on-lan", "02:00:5e:10:00:ff", ["address"]),
        ("ipmi", "bmc", ["user", "secret_file"]),
        ("program", "", ["argv"]),
    ],
)
def test_an_entry_lacks_what_its_kind_needs(kind: Any, address: str, keys: list[str]) -> None:
    assert switch(kind, address).faults == keys
