"""What answers at a port is heard, or asked where that is harmless; strangers get no byte."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from instrumentation import probe
from instrumentation.meters import registry
from instrumentation.ports import Port
from instrumentation.simulators.play import Player
from instrumentation.simulators.port import SimulatedPort
from instrumentation.simulators.registry import load
from instrumentation.transports import SerialTransport


def test_each_port_is_told_with_what_is_heard_there(tmp_path: Path) -> None:
    player = Player(load("smartpower3"), tmp_path / "meter", [1.0, 2.0])
    ended = threading.Event()
    playing = threading.Thread(target=player.run, args=(ended.is_set,))
    playing.start()
    silent, foreign, busy = (SimulatedPort(tmp_path / name) for name in ("s", "f", "b"))
    stop = threading.Event()

    def chatter() -> None:
        while not stop.wait(0.05):
            foreign.send(b"$GPGGA\r\n")

    talking = threading.Thread(target=chatter)
    talking.start()
    held = SerialTransport(str(busy.link), 115200)
    names = ["meter", "s", "f", "b"]
    told = probe.survey([Port(str(tmp_path / name)) for name in names], listen_s=1.0)
    stop.set()
    ended.set()
    talking.join()
    playing.join()
    held.close()
    player.close()
    said = dict(zip(names, told, strict=True))
    assert said["meter"] == f"{tmp_path / 'meter'}: a smartpower3 answers"
    assert said["s"].endswith(": silent")
    assert "sends b'$GPGGA" in said["f"]
    assert "in use" in said["b"]
    assert silent.receive() == foreign.receive() == b""
    for port in (silent, foreign, busy):
        port.close()


def test_only_a_meters_own_usb_id_is_spoken_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(probe._QUESTIONS, "smartpower3", b"V")  # its chip is in many adapters
    for usb_id in ("", "0403:6001", "10c4:ea60", "1234:5678"):
        assert probe.question_for(usb_id) == b""
    for kind in registry.kinds():
        own = [usb_id for usb_id in registry.load(kind).usb_ids if probe.question_for(usb_id)]
        assert not own or kind in probe._QUESTIONS


def test_a_question_is_asked_once_where_it_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(probe._QUESTIONS, "smartpower3", b"V")
    monkeypatch.setattr(probe, "_ADAPTERS", ())
    ports = [SimulatedPort(tmp_path / name) for name in ("known", "stranger")]
    asked: list[bytes] = []

    def answer() -> None:
        ports[0].wait(2.0)
        asked.append(ports[0].receive())
        ports[0].send(b"meter 1.0\n")

    thread = threading.Thread(target=answer)
    thread.start()
    named = [Port(str(ports[0].link), "10c4:ea60", "A", "1-1"), Port(str(ports[1].link), "1:2")]
    said = probe.survey(named, listen_s=0.5)
    thread.join()
    assert asked == [b"V"]
    assert "usb:10c4:ea60:A" in said[0]
    assert "sends b'meter 1.0" in said[0]
    assert said[1].endswith(": silent")
    assert ports[1].receive() == b""
    for port in ports:
        port.close()


def test_a_stream_is_recognised_as_another_meters() -> None:
    simulator = load("smartpower3")()
    joules = np.cumsum(np.full((5, 2), 0.01), axis=0)
    stream = simulator.advance(joules)
    assert probe.looks_like(stream, besides="wattsup") == "smartpower3"
    assert probe.looks_like(stream, besides="smartpower3") == ""
    assert probe.looks_like(b"$GPGGA,1,2\r\n" * 20, besides="") == ""
