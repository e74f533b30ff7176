"""Test simulated meters in real time, and the faults of their wires."""

from __future__ import annotations

import contextlib
import json
import threading
from pathlib import Path

import pytest

from instrumentation.decode import Decoded, decode
from instrumentation.meters import registry
from instrumentation.recorder import Recorder
from instrumentation.recorder_port import RecorderError, parse_meter
from instrumentation.tests.meter_helpers import an_entry
from instrumentation.tests.simulators import registry as simulators
from instrumentation.tests.simulators.player import Player
from validation.metrology.conversation import read_frames
from validation.metrology.faulty_meters import WIRE_FAULTS, FaultyWire, WireFaults

WATTS = (12.0, 5.0, 3.0, 2.0, 7.0, 1.0, 4.0, 6.0)
RECORDS = 3


def recorded(kind: str, link: Path, out: Path) -> Decoded:
    """Record a played meter in this process; return the decoded recording."""
    simulator = simulators.load(kind)()
    player = Player(simulator, link, WATTS[: len(simulator.channels)])
    channels = {key: f"ch_{n}" for n, key in enumerate(simulator.channels)}
    entry = an_entry(link, kind, channels=channels, settings=dict(simulator.settings))
    unplugged = threading.Event()
    playing = threading.Thread(target=player.run, args=(unplugged.is_set,))
    playing.start()
    status = out / "status.json"

    def enough() -> bool:
        return status.exists() and json.loads(status.read_text())["records"] >= RECORDS

    try:
        Recorder(parse_meter(entry), out, status).run(enough)
    finally:
        unplugged.set()
        playing.join()
        player.close()
    return decode(out)


SERIAL = [kind for kind in registry.kinds() if "port" in registry.load(kind).addresses]


@pytest.mark.parametrize("kind", SERIAL)  # the others: test_network
def test_every_meter_is_recorded_in_real_time(kind: str, tmp_path: Path) -> None:
    for attempt in range(5):  # a busy machine keeps the simulator from answering in time
        out = tmp_path / f"out{attempt}"
        with contextlib.suppress(RecorderError):
            recording = recorded(kind, tmp_path / f"meter{attempt}", out)
            faults = [fault for fault in recording.faults if fault.kind != "gap"]
            if not faults:
                break
    assert recording.samples.height >= RECORDS
    assert not faults
    last = recording.samples.row(-1, named=True)
    resolution_w = simulators.load(kind)().resolution_w
    for number, name in enumerate(simulators.load(kind)().channels):
        told_w = last[f"power_w_ch_{number}"]
        assert told_w == pytest.approx(WATTS[number], abs=2 * resolution_w), name
    sent = [frame for frame in read_frames(out / "stream.raw") if frame.sent]
    described = json.loads((out / "meter.json").read_text())
    driver = registry.load(kind)(described["channels"], described["settings"])
    driver.opened()
    assert bool(sent) == (driver.due_ns is not None)


@pytest.mark.parametrize("fault", WIRE_FAULTS)
def test_wire_faults_are_repeatable_by_seed(fault: str) -> None:
    pieces = [bytes(range(n % 7, n % 7 + 60)) for n in range(400)]
    asked = WireFaults(**{fault: 0.05})
    wires = [FaultyWire(seed, asked) for seed in (3, 3, 4)]
    first, again, carried = ([wire.carry(piece) for piece in pieces] for wire in wires)
    assert first == again != carried
    other = wires[-1]
    assert 5 < other.hit < 200
    sizes = sum(map(len, carried)) - sum(map(len, pieces))
    grown = {"double": 1, "banner": 1, "drop": -1, "lose": -1, "overrun": -1}.get(fault, 0)
    assert (sizes > 0) - (sizes < 0) == grown or fault == "stall"
    clean = FaultyWire(4)
    assert [clean.carry(piece) for piece in pieces] == pieces
    assert clean.hit == 0


def test_a_stall_loses_nothing() -> None:
    wire = FaultyWire(1, WireFaults(stall=0.2))
    pieces = [bytes([n]) * 9 for n in range(100)]
    arrived = b"".join(wire.carry(piece) for piece in pieces)
    assert b"".join(pieces).startswith(arrived)
    assert len(arrived) > 700
