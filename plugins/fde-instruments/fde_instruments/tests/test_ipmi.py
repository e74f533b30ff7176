"""Test the driver of a management controller with a stand-in for ipmitool."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from contract.tests.refusal import refuses
from fde_instruments.meters.ipmi import IpmiMeter
from fde_instruments.simulators.ipmi import IpmiSimulator
from instrumentation.meters.answers import envelope
from instrumentation.meters.base import MeterError
from instrumentation.meters.rows import ParseResult
from instrumentation.tests.meter_helpers import flag_words, kinds, opened
from instrumentation.tests.test_network import (
    HOST,
    REFRESH_S,
    SECRET,
    a_config,
    in_no_file,
    on_the_network,
    recorded,
    records,
    secret_file,
    the_wire,
    until_heard,
)

# What the driver starts in place of ipmitool: it asks a simulator by TCP, not by RMCP+.
STAND_IN = """
import os, socket, sys
host, port, user = (sys.argv[sys.argv.index(option) + 1] for option in ("-H", "-p", "-U"))
assert sys.argv[1:3] == ["-I", "lanplus"]
login = f"{user}:{os.environ['IPMITOOL_PASSWORD']}"
with socket.create_connection((host, int(port)), 2) as wire:
    wire.sendall(f"{login}\\t{' '.join(sys.argv[sys.argv.index('-E') + 1:])}\\n".encode())
    text = b""
    while not text.endswith(b"\\n\\n"):
        text += wire.recv(4096)
if text == b"\\n\\n":
    sys.exit("Error: Unable to establish IPMI v2 / RMCP+ session")
sys.stdout.buffer.write(text)
"""


@pytest.fixture
def ipmitool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "bin" / "ipmitool"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{STAND_IN}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return program


@pytest.mark.usefixtures("ipmitool")
def test_ipmi_needs_the_right_login_and_activated_readings(tmp_path: Path) -> None:
    controller = IpmiSimulator(refresh_s=REFRESH_S)
    with on_the_network(controller, secret=SECRET) as server:
        config = a_config(controller, server.address, secret_file=secret_file(tmp_path))
        recorded(config, tmp_path / "plug", records(2))
        with the_wire(a_config(controller, server.address)) as wire:
            watts, (fault,) = until_heard(*wire, lambda _, faults: bool(faults))
        assert (fault.kind, watts) == ("no-data", []) and "RMCP+" in fault.detail
        controller.active = False
        with the_wire(config) as wire:
            _, (fault,) = until_heard(*wire, lambda _, faults: bool(faults))
        assert fault.kind == "configuration"
    assert in_no_file(SECRET, tmp_path / "plug")


def test_a_controller_needs_ipmitool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    config = a_config(IpmiSimulator(), f"ipmi://{HOST}:1")
    with refuses("address-refused"):
        recorded(config, tmp_path / "plug", records(1))


TEXT = """
    Instantaneous power reading:                   200 Watts
    IPMI timestamp:                           Fri Sep 20 05:12:{second:02d} 2019
    Sampling period:                          00000005 Seconds.
    Power reading state is:                   activated
"""


def answer_each_second(*texts: str) -> list[ParseResult]:
    """Ask a meter once a second; return what it makes of these answers."""
    meter = opened(IpmiMeter({"0": "system"}, {"period_s": 1}))
    outputs = []
    for n, text in enumerate(texts):
        t_ns = n * 10**9
        meter.on_request_sent(meter.request(t_ns), t_ns)
        outputs.append(meter.feed(envelope("ok", text.encode()), t_ns))
    return outputs


def test_every_reading_is_flagged_as_a_mean_and_late_by_it() -> None:
    outputs = answer_each_second(*(TEXT.format(second=n) for n in range(3)))
    assert [flag_words(IpmiMeter, output) for output in outputs] == [[], ["averaged"], ["averaged"]]
    assert IpmiMeter({"0": "system"}, {"period_s": 1}).arrival_delay_limit_s == 30.5


def test_an_answer_that_stands_still_with_its_stamp_is_one_reading() -> None:
    outputs = answer_each_second(*(TEXT.format(second=n) for n in (1, 2, 2, 2)))
    assert [len(output.rows) for output in outputs] == [0, 1, 0, 0]


def test_a_controller_without_a_clock_is_read() -> None:
    outputs = answer_each_second(*[TEXT.format(second=0).replace("2019", "1970")] * 3)
    assert [len(output.rows) for output in outputs] == [0, 1, 1]


def test_a_state_other_than_activated_is_quoted() -> None:
    (output,) = answer_each_second(TEXT.format(second=0).replace("activated", "deactivated"))
    assert kinds(output) == ["configuration"]
    assert "power reading is deactivated" in output.faults[0].detail


def test_a_meter_without_a_period_is_refused() -> None:
    with pytest.raises(MeterError, match="period_s"):
        IpmiMeter({"0": "system"}, {})
