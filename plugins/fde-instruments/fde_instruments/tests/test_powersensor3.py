"""Test the PowerSensor3: frames, configuration, time and damage."""

from __future__ import annotations

import functools
import json
import random
import re
import struct
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.tests.refusal import refuses
from fde_instruments.meters import powersensor3_frames as frames
from fde_instruments.meters.powersensor3 import PowerSensor3
from fde_instruments.meters.powersensor3_talk import STOP, STOPPED, Sensor, Talk
from fde_instruments.simulators.powersensor3 import PowerSensor3Simulator, eeprom
from instrumentation.meters.rows import ParseResult, join_results
from instrumentation.recorder import Recorder
from instrumentation.recorder_port import parse_meter
from instrumentation.simulators.play import SimulatedPort
from instrumentation.tests.meter_helpers import flag_words, kinds, opened
from instrumentation.trace import Frame
from validation.metrology.conversation import pieces_of

RAILS = {"0": "system", "2": "drive"}
US = 1000


def frame(t_us: int, levels: tuple[int, ...] = (600,) * 8, marker: bool = False) -> bytes:
    """Return 18 bytes in the layout of the firmware."""
    return _frame(t_us % 1024, levels, marker)


@functools.cache
def _frame(t_us: int, levels: tuple[int, ...], marker: bool) -> bytes:
    words = [0xF0 | t_us >> 6, 0x40 | t_us & 0x3F]
    for sensor, level in enumerate(levels):
        words += [0x80 | sensor << 4 | level >> 6, level & 0x3F | 0x40 * (marker and sensor == 0)]
    return bytes(words)


def talked(meter: PowerSensor3, simulator: PowerSensor3Simulator, t_ns: int = 0) -> ParseResult:
    """Exchange all requests and answers without waiting; return the driver's result."""
    outputs = [meter.feed(b"", t_ns)]
    while request := meter.request(t_ns):
        meter.on_request_sent(request, t_ns)
        if answer := simulator.receive(request):
            outputs.append(meter.feed(answer, t_ns))
    return join_results(outputs)


def started(**settings: int) -> tuple[PowerSensor3, PowerSensor3Simulator]:
    simulator = PowerSensor3Simulator(settings.get("frames_hz", 20_000))
    meter = opened(PowerSensor3(RAILS, settings))
    assert not talked(meter, simulator).faults
    return meter, simulator


def words(output: ParseResult) -> list[str]:
    return flag_words(PowerSensor3, output)


def a_stream(simulator: PowerSensor3Simulator, count: int, seed: int = 1) -> list[bytes]:
    """Return the frames of a load that jumps."""
    chance = np.random.default_rng(seed)
    watts = chance.choice([0.1, 3.0, 20.0], (count, 4))
    data = simulator.advance(np.cumsum(watts * simulator.period_s, axis=0))
    return [data[at : at + 18] for at in range(0, len(data), 18)]


def same(first: ParseResult, other: ParseResult) -> None:
    assert sorted(first.faults, key=repr) == sorted(other.faults, key=repr)
    for name in ("t_mono_ns", "t_device_us", "window_s", "power_w", "flags"):
        assert getattr(first.rows, name).tolist() == getattr(other.rows, name).tolist(), name


def test_a_frame_by_hand() -> None:
    # 1111tttt 01tttttt of 0b1010110011, then sensor 0 with 0b1000000001 and the marker.
    data = frame(0b1010110011, (0b1000000001, *range(1, 8)), marker=True)
    assert data[:4] == bytes([0b11111010, 0b01110011, 0b10001000, 0b01000001])
    stream_frames = frames.find_frames(data)
    assert frames.levels(stream_frames.words).tolist() == [
        [0b1010110011, 0b1000000001, *range(1, 8)]
    ]
    assert frames.has_marker(stream_frames.words).tolist() == [True]


def test_power_is_current_times_voltage() -> None:
    meter, _ = started(window_ms=0)
    data = frame(100, (700, 400) * 4) + frame(150, (700, 400) * 4) + frame(200)
    output = meter.feed(data, 5)
    vref, per_a, gain, gain_5v = (float(np.float32(v)) for v in (1.636, 0.12, 0.091, 0.25))
    ampere = (3.3 * 700 / 1023 - vref) / per_a
    volt, volt_5v = 3.3 * 400 / 1023 / gain, 3.3 * 400 / 1023 / gain_5v
    assert output.rows.power_w[0] == pytest.approx([ampere * volt, ampere * volt_5v], rel=1e-12)
    assert output.rows.t_device_us.tolist() == [100, 150]
    assert output.rows.window_s.tolist() == [50e-6, 50e-6]


def test_a_record_is_the_mean_of_its_frames() -> None:
    meter, _ = started(window_ms=1)
    steps = [50, 51, 49, 50] * 11  # the meter's own clock is read in whole µs
    times = np.cumsum([1000, *steps])
    levels = [(500 + n, 400) * 4 for n in range(45)]
    pieces = [frame(int(t), level) for t, level in zip(times, levels, strict=True)]
    output = join_results([meter.feed(piece, n) for n, piece in enumerate(pieces)])
    single, _ = started(window_ms=0)
    each = single.feed(b"".join(pieces), 0).rows
    assert output.rows.t_device_us.tolist() == [times[19], times[39]]
    assert output.rows.window_s.tolist() == [each.window_s[:20].sum(), each.window_s[20:40].sum()]
    assert output.rows.t_mono_ns.tolist() == [19, 39]  # of the last frame in each
    assert output.rows.power_w == pytest.approx(
        np.stack([each.power_w[:20].mean(axis=0), each.power_w[20:40].mean(axis=0)])
    )


def test_stream_and_configuration_are_never_confused() -> None:
    simulator = PowerSensor3Simulator()
    first = opened(PowerSensor3(RAILS))
    talked(first, simulator)
    left_over = b"".join(a_stream(simulator, 40))[7:]  # it streams on, and somebody else opens
    second = opened(PowerSensor3(RAILS))
    assert second.request(0) == STOP
    second.on_request_sent(STOP, 0)
    assert not second.feed(left_over, 1).faults
    # The firmware sends the frame that it was about to send behind its answer.
    answer = simulator.receive(STOP)
    assert answer.startswith(STOPPED) and len(answer) == 4 + 18
    for cut in range(len(answer) + 1):
        third = opened(PowerSensor3(RAILS))
        third.on_request_sent(STOP, 0)
        third.feed(answer[:cut], 1)
        third.feed(answer[cut:], 1)
        fresh = PowerSensor3Simulator()
        third.on_request_sent(b"R", 1)
        third.feed(answer[4:] + fresh.receive(b"R"), 2)  # late, and still no configuration
        assert not talked(third, fresh, 3).faults
        assert len(third.feed(b"".join(a_stream(fresh, 60)), 4).rows) == 2


@pytest.mark.parametrize("records", range(9))
def test_a_half_read_configuration_is_ended(records: int) -> None:
    simulator = PowerSensor3Simulator()
    simulator.receive(b"R" + b"s" * records)  # somebody stopped reading here
    meter = opened(PowerSensor3(RAILS))
    assert not talked(meter, simulator).faults
    assert len(meter.feed(b"".join(a_stream(simulator, 60)), 1).rows) == 2


def test_a_configuration_that_changed_on_the_way_is_not_used() -> None:
    for at in range(41):
        simulator = PowerSensor3Simulator()
        meter = opened(PowerSensor3(RAILS))
        hurt = bytearray(eeprom()[0])
        hurt[at] ^= 0x55
        true, simulator.eeprom[0] = simulator.eeprom[0], bytes(hurt)
        t_ns, outputs = 0, []
        while t_ns < 10_000_000_000:
            request = meter.request(t_ns)
            if not request:
                t_ns += 10_000_000
                continue
            meter.on_request_sent(request, t_ns)
            outputs.append(meter.feed(simulator.receive(request), t_ns))
            if request == b"R":
                simulator.eeprom[0] = true  # the damage was on the wire, and once
            if request == b"S":
                break
        assert request == b"S"
        assert meter._talk.sensors == tuple(map(Sensor.from_bytes, eeprom()))


def test_a_configuration_without_its_end_is_not_used() -> None:
    talk = Talk((0,))
    talk.on_request_sent(STOP, 0)
    talk.hear(STOPPED, 1)
    talk.on_request_sent(b"R", 2)
    for record in eeprom():
        assert talk.hear(record, 3) == ""
        talk.on_request_sent(talk.request(3), 3)
    assert talk.hear(b"E", 4) == "the configuration ended with b'E' and not with b'D'; asking again"
    assert talk.request(4) == b"" and talk.request(20_000_004) == STOP


def test_a_port_opened_in_mid_frame_is_no_fault() -> None:
    meter, _ = started()
    assert not meter.feed(frame(0)[7:] + frame(50) + frame(100), 0).faults


def test_junk_between_frames_is_a_fault_in_any_cutting() -> None:
    meter, _ = started()
    pieces = [frame(50), b"not a frame, ", b"nor this, what", b"ever it is", frame(100), frame(150)]
    (fault,) = join_results([meter.feed(piece, n) for n, piece in enumerate(pieces)]).faults
    assert (fault.kind, fault.t_mono_ns) == ("framing", 4)
    assert fault.detail == "37 bytes before this are no PowerSensor3 frame"


def test_a_rail_that_is_off_gives_a_fault_and_no_records() -> None:
    simulator = PowerSensor3Simulator()
    simulator.eeprom = eeprom((True, True, False, True))
    meter = opened(PowerSensor3(RAILS))
    (fault,) = talked(meter, simulator).faults
    assert fault.kind == "configuration"
    assert "rail 2" in fault.detail and "psconfig" in fault.detail
    assert not meter.request(1_000_000_000)
    assert meter.request(3_000_000_000) == STOP  # perhaps somebody has switched it on
    simulator.eeprom = eeprom()
    assert not talked(meter, simulator, 3_000_000_000).faults
    assert simulator.advance(np.ones((1, 4)))


def test_a_meter_that_does_not_answer_is_asked_again() -> None:
    talk = Talk((0,))
    assert talk.request(0) == STOP
    talk.on_request_sent(STOP, 0)
    assert talk.request(400_000_000) == b""
    assert talk.due_ns == 500_000_000 and talk.request(500_000_000) == STOP
    talk.on_request_sent(STOP, 500_000_000)
    talk.hear(b"some banner" + STOPPED, 600_000_000)
    assert talk.request(600_000_000) == b"R"
    talk.on_request_sent(b"R", 600_000_000)
    assert talk.request(799_999_999) == b"" and talk.request(800_000_000) == STOP


def test_a_stream_that_falls_silent_is_started_again() -> None:
    meter, simulator = started()
    meter.feed(b"".join(a_stream(simulator, 40)), 5_000_000_000)
    assert meter.request(5_900_000_000) == b""
    assert meter.request(6_000_000_000) == STOP
    assert meter.stop_command() == b"X"


def test_missing_frames_end_a_record_and_are_flagged() -> None:
    meter, _ = started()
    times = [50 * n for n in range(1, 101) if not 30 <= n < 33]
    output = meter.feed(b"".join(frame(t) for t in times), 0)
    assert kinds(output) == ["gap"]
    assert output.faults[0].detail == "frames of 150 µs are missing"
    assert output.rows.t_device_us.tolist() == [1000, 1450, 2600, 3600, 4600]
    assert output.rows.window_s.tolist() == pytest.approx([1e-3, 0.45e-3, 1e-3, 1e-3, 1e-3])
    assert words(output) == ["", "", "gap", "", ""]


@pytest.mark.parametrize("lost", [1, 19, 20, 21, 40, 100, 2000])
def test_arrival_determines_the_number_of_wraps(lost: int) -> None:
    meter, _ = started()
    first = [meter.feed(frame(50 * n), 50 * n * US) for n in range(1, 200)]
    assert not join_results(first).faults
    later = [meter.feed(frame(50 * n), 50 * n * US) for n in range(200 + lost, 400 + lost)]
    output = join_results(later)
    assert kinds(output) == ["gap"]
    assert output.faults[0].detail == f"frames of {50 * lost} µs are missing"
    assert set(np.diff(output.rows.t_device_us[2:]).tolist()) == {1000}
    assert output.rows.t_device_us[-1] <= 50 * (399 + lost) < output.rows.t_device_us[-1] + 1100


def test_a_loss_of_whole_wraps_is_corrected_within_seconds() -> None:
    # 512 frames are exactly 25 wraps.
    meter, _ = started()
    chance = random.Random(3)
    outputs = []
    for start in range(0, 240_000, 200):
        skip = 512 if start >= 100_000 else 0
        numbers = range(start + skip, start + skip + 200)
        late_us = chance.choice([0, 0, 3000])
        t_ns = (50 * numbers[-1] + late_us) * US
        outputs.append(meter.feed(b"".join(frame(50 * n) for n in numbers), t_ns))
    output = join_results(outputs)
    (fault,) = output.faults
    assert (fault.kind, fault.detail) == ("gap", "frames of 25600 µs are missing")
    assert 5e9 < fault.t_mono_ns < 9.5e9
    assert abs(50 * (239_999 + 512) - int(output.rows.t_device_us[-1])) <= 1000


def test_wraps_counted_too_often_are_corrected() -> None:
    meter, _ = started()
    outputs = []
    for start in range(0, 240_000, 200):
        numbers = range(start, start + 200)
        if start == 100_000:  # frames are lost just when the bytes are read late
            numbers = range(start + 3, start + 200)
        late_us = 9000 if start == 100_000 else 0
        t_ns = (50 * numbers[-1] + late_us) * US
        outputs.append(meter.feed(b"".join(frame(50 * n) for n in numbers), t_ns))
    output = join_results(outputs)
    assert kinds(output) == ["gap", "restart"]
    assert words(output).count("restart") == 1
    assert abs(50 * 239_999 - int(output.rows.t_device_us[-1])) <= 1000


def test_a_frame_with_an_impossible_time_is_dropped() -> None:
    meter, _ = started()
    times = [50 * n for n in range(1, 101)]
    times[50] += 300
    output = meter.feed(b"".join(map(frame, times)), 0)
    assert kinds(output) == ["corrupt", "gap"]
    assert output.faults[1].detail == "frames of 50 µs are missing"
    assert np.diff(output.rows.t_device_us).tolist() == [1000, 500, 1050, 1000]


def test_marker_and_end_of_range_are_flagged() -> None:
    meter, _ = started()
    low, high = (0, 400) * 4, (600, 1023) * 4
    foreign = (600, 400, 1023, 1023, 600, 400, 0, 1023)  # of rails that are not named
    special = {5: frame(250, low), 25: frame(1250, high), 45: frame(2250, foreign)}
    special[65] = frame(3250, (600, 400) * 4, marker=True)
    output = meter.feed(b"".join(special.get(n, frame(50 * n)) for n in range(1, 102)), 0)
    assert words(output) == ["over-range", "over-range", "", "marker", ""]


def test_the_simulated_marker_comes_once() -> None:
    meter, simulator = started()
    simulator.receive(b"M")
    assert words(meter.feed(b"".join(a_stream(simulator, 81)), 0)) == ["marker", "", "", ""]


def test_an_f401_with_a_lower_rate_is_read() -> None:
    meter, simulator = started(frames_hz=17_500)
    output = meter.feed(b"".join(a_stream(simulator, 1000)), 0)
    assert not output.faults
    assert output.rows.window_s.sum() == pytest.approx(len(output.rows) * 18 / 17_500, rel=1e-4)


def test_at_1_khz_a_single_lost_frame_is_a_gap() -> None:
    meter, simulator = started(frames_hz=1000)
    sent = a_stream(simulator, 100)
    del sent[50]
    output = join_results([meter.feed(data, n * 1_000_000) for n, data in enumerate(sent)])
    assert kinds(output) == ["gap"]
    assert len(output.rows) == 98


@pytest.mark.parametrize("wrong", [{"window_ms": -1}, {"frames_hz": 900}, {"relative_limit": -0.1}])
def test_invalid_settings_are_refused(wrong: dict[str, float]) -> None:
    with refuses("invalid-settings", kind="powersensor3"):
        PowerSensor3(RAILS, wrong)


def test_limits_of_error_can_be_given() -> None:
    meter = PowerSensor3(RAILS, {"relative_limit": 0.01, "absolute_limit_w": 0.1})
    assert meter.accuracy.relative_limit == 0.01
    assert meter.accuracy.source.startswith("the settings")


def test_the_configuration_has_the_firmwares_layout() -> None:
    record = struct.pack("<16s16sff?", b"MLX10", b"Jetson", 1.625, 0.125, True)
    assert len(record) == 41
    sensor = Sensor.from_bytes(record)
    assert (sensor.vref_v, sensor.sensitivity, sensor.is_used) == (1.625, 0.125, True)
    assert sensor.to_bytes() == record
    for bad in (record[:-1] + b"\x02", record[:32] + b"\xff" * 8 + b"\x01"):
        with pytest.raises(ValueError, match=r"neither used|no finite"):
            Sensor.from_bytes(bad)


def _hurt(data: bytearray, damages: list[tuple[float, int]], chance: random.Random) -> None:
    for place, kind in damages:
        at = int(place * (len(data) - 1))
        if kind == 0:
            del data[at]
        elif kind == 1:
            data.insert(at, data[at])
        elif kind == 2:
            data[at] ^= chance.randrange(1, 256)
        elif kind == 3:
            data[at:at] = chance.randbytes(chance.randrange(60))
        else:
            del data[at : at + chance.randrange(300)]


DAMAGES = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 4)), max_size=12)


@given(seed=st.integers(0, 999), damages=DAMAGES, start=st.integers(0, 40))
def test_frames_found_by_the_stretch_are_those_of_the_pattern(
    seed: int, damages: list[tuple[float, int]], start: int
) -> None:
    chance = random.Random(seed)
    data = bytearray().join(frame(50 * n, (chance.randrange(1024),) * 8) for n in range(400))
    _hurt(data, damages, chance)
    pattern: re.Pattern[bytes] = frames._FRAME
    stream_frames = frames.find_frames(bytes(data[start:]))
    assert stream_frames.at.tolist() == [match.start() for match in pattern.finditer(data[start:])]
    taken = 18 * len(stream_frames.at) + int(stream_frames.junk.sum()) + stream_frames.junk_after
    assert taken == stream_frames.end


@given(
    seed=st.integers(0, 999),
    damages=DAMAGES,
    cuts=st.lists(st.floats(0, 1), max_size=40),
    window_ms=st.sampled_from([0, 1, 7]),
)
def test_pieces_taken_together_give_the_same_as_one_by_one(
    seed: int, damages: list[tuple[float, int]], cuts: list[float], window_ms: int
) -> None:
    chance = random.Random(seed)
    first, simulator = started(window_ms=window_ms)
    other, _ = started(window_ms=window_ms)
    data = bytearray().join(a_stream(simulator, 900, seed))
    _hurt(data, damages, chance)
    bounds = sorted({0, len(data), *(int(cut * len(data)) for cut in cuts)})
    stretched = chance.choice([1, 100])  # so that there are blocks of 2 s
    pieces = [
        Frame((b * 50 // 18 + chance.choice([0, 0, 2000])) * US * stretched, bytes(data[a:b]))
        for a, b in pairwise(bounds)
    ]
    pieces.sort(key=lambda piece: piece.t_mono_ns)
    same(
        join_results([first.feed(piece.data, piece.t_mono_ns) for piece in pieces]),
        other.feed_all(pieces_of(pieces)),
    )


@given(seed=st.integers(0, 999))
def test_clean_pieces_taken_together_leave_the_driver_as_one_by_one(seed: int) -> None:
    chance = random.Random(seed)
    first, simulator = started()
    other, _ = started()
    data = b"".join(a_stream(simulator, 700, seed))
    bounds = sorted({0, len(data), *(chance.randrange(len(data)) for _ in range(40))})
    late = [0, 0, 700, 3000, 30_000]
    pieces = [
        Frame((b * 50 // 18 * 300 + chance.choice(late)) * US, data[a:b])
        for a, b in pairwise(bounds)
    ]
    pieces.sort(key=lambda piece: piece.t_mono_ns)
    part = chance.randrange(1, len(pieces))
    for some in (pieces[:part], pieces[part:]):
        same(
            join_results([first.feed(piece.data, piece.t_mono_ns) for piece in some]),
            other.feed_all(pieces_of(some)),
        )
        assert vars(first._time) == vars(other._time)


def test_each_damaged_frame_costs_only_itself(thorough: bool) -> None:
    meter, simulator = started(window_ms=0)
    count = 100_000 if thorough else 10_000
    sent = a_stream(simulator, count)
    chance = random.Random(8)
    hurt = set(range(100, count, 7))
    for n in hurt:
        broken = bytearray(sent[n])
        broken[chance.randrange(18)] ^= chance.choice((0x80, 0xC0))
        if chance.random() < 0.3:
            del broken[chance.randrange(18)]
        sent[n] = bytes(broken)
    parts = [
        meter.feed(b"".join(sent[n : n + 200]), (n + 200) * 50 * US) for n in range(0, count, 200)
    ]
    read = set((join_results(parts).rows.t_device_us // 50).tolist())
    lost = set(range(1, count)) - read
    assert {n - 1 for n in lost} <= hurt


def test_the_recorder_names_the_rail_that_is_off(tmp_path: Path) -> None:
    simulator = PowerSensor3Simulator()
    simulator.eeprom = eeprom((True, True, False, True))
    port, ended = SimulatedPort(tmp_path / "port"), threading.Event()

    def answer() -> None:
        while not ended.is_set():
            port.wait(0.05)
            if asked := port.receive():
                port.send(simulator.receive(asked))

    thread = threading.Thread(target=answer)
    thread.start()
    entry = {"name": "rails", "kind": "powersensor3", "port": str(port.link), "channels": RAILS}
    config = parse_meter(json.dumps(entry | {"origin": "modelled"}))
    try:
        with refuses("wiring-refused", meter="rails"):
            Recorder(config, tmp_path / "out", tmp_path / "status.json").run(lambda: False)
    finally:
        ended.set()
        thread.join()
        port.close()
