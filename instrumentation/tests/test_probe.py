"""Test that the search for a meter opens only the named port and sends no byte to another."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from contract.plan import MeterEntry
from contract.tests.refusal import Refusal, refuses
from instrumentation import ports as probe
from instrumentation.ports import Port, all_ports
from instrumentation.recorder import Recorder
from instrumentation.simulators.play import SimulatedPort
from instrumentation.tests.simulators.registry import load

SMARTPOWER = "10c4:ea60"
_hearing: list[Callable[[str], None]] = []


def _heard(event: str, arguments: tuple[object, ...]) -> None:
    if _hearing and event == "open" and isinstance(arguments[0], str):
        _hearing[-1](arguments[0])


sys.addaudithook(_heard)


@contextlib.contextmanager
def opened() -> Iterator[list[str]]:
    """Collect the paths of all files that this process opens."""
    paths: list[str] = []
    _hearing.append(lambda path: paths.append(os.path.realpath(path)))
    try:
        yield paths
    finally:
        _hearing.pop()


@pytest.fixture
def strangers(tmp_path: Path) -> Iterator[list[SimulatedPort]]:
    """Provide terminals that the inventory does not name."""
    ports = [SimulatedPort(tmp_path / f"other-{number}") for number in range(4)]
    yield ports
    for port in ports:
        port.close()


def _untouched(strangers: list[SimulatedPort], paths: list[str]) -> bool:
    """Return whether no terminal was opened or received a byte."""
    return not {port.device for port in strangers} & set(paths) and not any(
        port.receive() for port in strangers
    )


def _as_ports(strangers: list[SimulatedPort]) -> list[Port]:
    """Describe them as no USB device, a cheap adapter, another meter and a smartpower3."""
    ids = ("", "1a86:7523", "0483:5740", SMARTPOWER)
    return [
        Port(s.device, usb_id, f"01D2A3F{n}", f"1-{n}")
        for n, (s, usb_id) in enumerate(zip(strangers, ids, strict=True))
    ]


@pytest.mark.parametrize(
    ("port", "message"),
    [
        ("{silent}", refuses("port-silent")),
        ("{busy}", refuses("port-in-use")),
        ("{absent}", refuses("port-absent", reason="it is not there")),
        ("usb:0403:6001", refuses("port-absent")),
        ("usb:10c4:ea60:OTHER", refuses("port-absent")),
    ],
)
def test_only_the_named_port_is_opened(
    port: str,
    message: Refusal,
    strangers: list[SimulatedPort],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from instrumentation.transports import SerialTransport

    named_ports = _as_ports(strangers)
    monkeypatch.setattr(sys.modules["instrumentation.ports"], "serial_ports", lambda: named_ports)
    silent, busy = (SimulatedPort(tmp_path / name) for name in ("silent", "busy"))
    held = SerialTransport(str(busy.link), 115200)
    places = {"silent": silent.link, "busy": busy.link, "absent": tmp_path / "absent"}
    named = port.format(**places)
    entry = MeterEntry("meter0", "smartpower3", named, "modelled", {"0": "system"}, 115200)
    with opened() as paths, message as refused:
        Recorder(entry, tmp_path / "out", tmp_path / "status.json", finder=all_ports).run(
            lambda: False
        )
    assert _untouched(strangers, paths), refused.value
    assert (silent.device in paths) == ("silent" in port)
    assert silent.receive() == b""
    assert all(stranger.device in str(refused.value) for stranger in strangers)
    held.close()
    for simulated in (silent, busy):
        simulated.close()


def test_a_kind_without_a_port_opens_only_its_device(
    strangers: list[SimulatedPort], tmp_path: Path
) -> None:
    """With `usb` no port of another kind is opened, even one of another meter."""
    named_ports = _as_ports(strangers)
    entry = MeterEntry("meter0", "smartpower3", "usb", "modelled", {"0": "system"}, 115200)
    with opened() as paths, refuses("became-pseudo-terminal"):
        Recorder(
            replace(entry, origin="measured"),
            tmp_path / "out",
            tmp_path / "status.json",
            finder=lambda: named_ports,
        ).run(lambda: False)
    assert _untouched(strangers, paths)  # a pseudo-terminal is no measured meter: not even its own
    with opened() as paths, refuses("port-silent"):
        Recorder(entry, tmp_path / "out", tmp_path / "status.json", finder=lambda: named_ports).run(
            lambda: False
        )
    assert {port.device for port in strangers} & set(paths) == {strangers[3].device}
    assert not any(port.receive() for port in strangers[:3])


def test_ports_are_described_by_the_kernels_facts(strangers: list[SimulatedPort]) -> None:
    named_ports = _as_ports(strangers)
    text = probe.describe_ports(str(strangers[0].link), lambda: named_ports)
    assert text.startswith("Other ports here (none was opened): ")
    assert strangers[0].device not in text
    assert f"{named_ports[3].device} (usb:{SMARTPOWER}:01D2A3F3), perhaps a smartpower3" in text
    assert probe.describe_ports(finder=lambda: []) == "Ports here (none was opened): none."


def test_a_stream_is_recognised_as_another_meters() -> None:
    simulator = load("smartpower3")()
    joules = np.cumsum(np.full((5, 2), 0.01), axis=0)
    stream = simulator.advance(joules)
    assert probe.recognise_kind(stream, besides="mcp39f511n") == "smartpower3"
    assert probe.recognise_kind(stream, besides="smartpower3") == ""
    assert probe.recognise_kind(b"$GPGGA,1,2\r\n" * 20, besides="") == ""
