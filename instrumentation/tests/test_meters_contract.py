"""What every driver must hold with its simulator; a meter that is registered is tested here."""

from __future__ import annotations

import random
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instrumentation.decode import decode_frames
from instrumentation.meters import registry
from instrumentation.recorder_port import MeterConfig, open_port
from instrumentation.simulators import registry as simulators
from instrumentation.simulators.faults import FaultyWire
from instrumentation.simulators.port import SimulatedPort
from instrumentation.trace import Fault, Frame, Record

KINDS = registry.kinds()
every_meter = pytest.mark.parametrize("kind", KINDS)


def a_load(seed: int, lines: int, channels: int, interval_s: float) -> list[tuple[float, ...]]:
    """Energies at the ends of intervals, of a load that jumps and creeps."""
    chance = random.Random(seed)
    columns = []
    for _ in range(channels):
        watts = [chance.choice((0.0, 0.06, 3.3, 8.0, 43.5)) + chance.random() for _ in range(lines)]
        columns.append(list(accumulate(w * interval_s for w in watts)))
    return list(zip(*columns, strict=True))


def a_stream(kind: str, seed: int, lines: int) -> tuple[list[bytes], list[tuple[float, ...]]]:
    simulator = simulators.load(kind)()
    load = a_load(seed, lines, len(simulator.channels), simulator.interval_ms / 1000)
    return [simulator.line(energy_j) for energy_j in load], load


def fed(kind: str, pieces: list[bytes]) -> list[Record | Fault]:
    meter = registry.load(kind)({name: f"ch-{name}" for name in simulators.load(kind).channels})
    meter.opened()
    return [item for t_ns, piece in enumerate(pieces) for item in meter.feed(piece, t_ns)]


def records(items: list[Record | Fault]) -> list[Record]:
    return [item for item in items if isinstance(item, Record)]


@every_meter
def test_accuracy_has_a_source(kind: str) -> None:
    accuracy = registry.load(kind).accuracy
    assert accuracy.source
    limit_w = accuracy.relative_limit * 40 + accuracy.absolute_limit_w
    assert 0 < accuracy.standard_uncertainty_w(40) < limit_w


@every_meter
def test_energy_is_that_of_the_load(kind: str) -> None:
    """Rounding on the wire must not add up: after any time less than one last digit is missing."""
    lines, load = a_stream(kind, seed=1, lines=3000)
    interval_s = simulators.load(kind)().interval_ms / 1000
    for number, name in enumerate(simulators.load(kind).channels):
        mine = [r for r in records(fed(kind, lines)) if r.channel == f"ch-{name}"]
        got_j = sum(r.power_w * r.window_s for r in mine)
        true_j = load[-1][number] - load[-1 - len(mine)][number]
        assert len(mine) >= 2998
        assert abs(got_j - true_j) <= 0.001 * interval_s


@every_meter
@given(cuts=st.lists(st.integers(0, 2000), max_size=40), seed=st.integers(0, 99))
def test_how_the_bytes_are_cut_does_not_matter(kind: str, cuts: list[int], seed: int) -> None:
    stream = b"".join(a_stream(kind, seed, lines=25)[0])
    bounds = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[a:b] for a, b in pairwise(bounds)]

    def without_time(items: list[Record | Fault]) -> list[tuple[object, ...]]:
        return [(r.seq, r.t_device_ms, r.channel, r.window_s, r.power_w) for r in records(items)]

    assert without_time(fed(kind, pieces)) == without_time(fed(kind, [stream]))
    assert not [item for item in fed(kind, pieces) if isinstance(item, Fault)]


@every_meter
@pytest.mark.parametrize("fault", ["drop", "double", "corrupt", "lose"])
def test_faults_on_the_wire_are_noticed_and_survived(kind: str, fault: str) -> None:
    lines, _ = a_stream(kind, seed=3, lines=4000)
    clean = {(r.t_device_ms, r.channel): r.power_w for r in records(fed(kind, lines))}
    wire = FaultyWire(7)
    setattr(wire, fault, 0.05)
    items = fed(kind, [wire.carry(line) for line in lines])
    got = records(items)
    channels = len(simulators.load(kind).channels)
    assert wire.hit > 100
    assert all(clean[r.t_device_ms, r.channel] == r.power_w for r in got)  # nothing made up
    assert len(got) >= len(clean) - channels * (wire.hit + 2)  # in step with the next record
    for channel in {r.channel for r in got}:
        mine = [r for r in got if r.channel == channel]
        for before, after in pairwise(mine):
            assert before.t_device_ms is not None and after.t_device_ms is not None
            uncovered_ms = after.t_device_ms - before.t_device_ms - after.window_s * 1000
            assert (uncovered_ms > 0.5) == ("gap" in after.flags)
    if len(got) < len(clean) - channels:
        assert any(isinstance(item, Fault) for item in items)


@every_meter
@given(junk=st.binary(max_size=600))
def test_foreign_bytes_do_no_harm(kind: str, junk: bytes) -> None:
    lines, _ = a_stream(kind, seed=4, lines=8)
    items = fed(kind, [*lines[:4], junk, *lines[4:]])
    assert len(records(items)) >= len(records(fed(kind, lines))) - len(
        simulators.load(kind).channels
    )


@every_meter
def test_over_a_real_port(kind: str, tmp_path: Path) -> None:
    simulator = simulators.load(kind)
    lines, _ = a_stream(kind, seed=5, lines=40)
    port = SimulatedPort(tmp_path / "meter")
    config = MeterConfig(
        "meter0", kind, str(port.link), registry.load(kind).default_baud, "modelled", {}
    )
    assert not port.send(lines[0])  # nobody listens: dropped, not kept for later
    reader = open_port(config)
    meter = registry.load(kind)({name: name for name in simulator.channels})
    frames = [Frame(0, b"")]
    for t_ns, line in enumerate(lines[1:]):
        assert port.send(line)
        got = b""
        while len(got) < len(line):
            got += reader.read(reader.in_waiting)
        frames.append(Frame(t_ns, got))
    decoded = decode_frames(meter, frames)
    reader.close()
    port.close()
    assert port.dropped == 1
    assert not decoded.faults
    assert decoded.samples.height == 38 * len(simulator.channels)
    assert decoded.samples["power_w"].to_list() == [
        r.power_w for r in records(fed(kind, lines[1:]))
    ]


@every_meter
def test_port_that_nobody_reads_drops_and_never_blocks(kind: str, tmp_path: Path) -> None:
    lines, _ = a_stream(kind, seed=6, lines=10)
    port = SimulatedPort(tmp_path / "meter")
    config = MeterConfig(
        "m", kind, str(port.link), registry.load(kind).default_baud, "modelled", {}
    )
    reader = open_port(config)  # open, and not reading
    sent = [port.send(lines[n % 10]) for n in range(20_000)]
    assert not all(sent)
    assert port.dropped == sent.count(False)
    reader.timeout = 0.5
    kept = b""
    while got := reader.read(4096):
        kept += got
        port.send(b"")  # lets the rest of a line go that was cut where the buffer ended
    assert kept
    assert len(kept) % len(lines[0]) == 0
    reader.close()
    port.close()
