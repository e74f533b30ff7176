"""Test the SmartPower3's lines and time with documented lines and the simulator's."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from itertools import pairwise
from operator import xor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instrumentation.meters import smartpower3
from instrumentation.meters.rows import ParseResult, join_results
from instrumentation.meters.smartpower3 import SmartPower3, clean_lines, doubtful_lines, is_product
from instrumentation.simulators.smartpower3 import encode_line
from instrumentation.tests.meter_helpers import feed_pieces, flag_words, kinds, opened
from instrumentation.trace import Frame
from validation.metrology.conversation import pieces_of

# A line of the maker's documentation.
VECTOR = b"0000815169,15296,0036,00550,0,00000,0000,00000,0,00,00000,0000,00000,0,00,14,12\r\n"


def fed(lines: list[bytes], channels: dict[str, str] | None = None) -> ParseResult:
    return feed_pieces(opened(SmartPower3(channels or {"0": "system"})), lines)


def words(output: ParseResult) -> list[str]:
    return flag_words(SmartPower3, output)


def times_ms(output: ParseResult) -> list[int]:
    return [t_us // 1000 for t_us in output.rows.t_device_us.tolist()]


def closed(line: bytes) -> bytes:
    """Return a line with the checksums of its first part."""
    checked = line[:74]
    return checked + b"%02x,%02x\r\n" % (-sum(checked) & 0xFF, functools.reduce(xor, checked))


def test_documented_line_is_read() -> None:
    before = encode_line(815159, (0, 0))
    output = fed([before, VECTOR], {"input": "supply", "0": "system", "1": "drive"})
    assert not kinds(output)
    assert output.rows.power_w.tolist() == [[0.55, 0.0, 0.0]]
    assert words(output) == ["off-0 off-1"]
    assert (times_ms(output), output.rows.window_s.tolist()) == ([815169], [0.01])


def test_simulator_sends_the_documented_line() -> None:
    line = encode_line(
        815169, (0, 0), input_mw=550, input_mv=15296, voltage_mv=(0, 0), on=(False, False)
    )
    assert line == VECTOR


@pytest.mark.parametrize("at", range(79))
def test_a_changed_byte_gives_no_record(at: int) -> None:
    before = encode_line(815159, (0, 0))
    for changed in (b"0", b"7", b",", b"\x00"):
        line = VECTOR[:at] + changed + VECTOR[at + 1 :]
        if line != VECTOR:
            assert not len(fed([before, line]).rows)


@pytest.mark.parametrize(("before_ms", "together"), [(20, 1), (400, 100)])
def test_device_time_is_unwrapped(before_ms: int, together: int) -> None:
    times = [(1 << 32) - before_ms + n * 10 for n in range(5 * together)]
    lines = [encode_line(t_ms, (1000, 0)) for t_ms in times]
    output = fed([b"".join(lines[n : n + together]) for n in range(0, len(lines), together)])
    assert times_ms(output) == times[1:]
    assert not kinds(output)


@pytest.mark.parametrize("interval_ms", [5, 10, 50, 100, 500, 1000])
def test_missing_lines_are_a_gap_never_a_longer_window(interval_ms: int) -> None:
    times = [n * interval_ms for n in (0, 1, 2, 3, 6, 7)]
    output = fed([encode_line(t, (1000, 0)) for t in times])
    assert output.rows.window_s.tolist() == [interval_ms / 1000] * 5
    assert words(output) == ["", "", "", "gap", ""]
    (fault,) = output.faults
    assert (fault.kind, fault.detail) == ("gap", f"records of {2 * interval_ms} ms are missing")


def test_uneven_device_time_is_no_gap() -> None:
    times = [0, 10, 21, 30, 44, 50, 60]
    output = fed([encode_line(t, (1000, 0)) for t in times])
    assert not kinds(output)
    assert sum(output.rows.window_s) == pytest.approx(0.06)


def test_a_changed_interval_is_adopted() -> None:
    times = [0, 10, 20, 30, 130, 230, 330, 430]
    output = fed([encode_line(t, (1000, 0)) for t in times])
    assert output.rows.window_s.tolist()[-1] == 0.1


def test_a_restarted_meter_is_flagged() -> None:
    output = fed([encode_line(t, (1000, 0)) for t in (90_000, 90_010, 90_020, 10, 20)])
    assert kinds(output) == ["restart"]
    assert times_ms(output) == [90_010, 90_020, 10, 20]
    assert words(output) == ["", "", "restart", ""]


def test_each_line_has_the_arrival_of_its_first_byte() -> None:
    meter = opened(SmartPower3({"0": "system"}))
    lines = [encode_line(n * 10, (1000, 0)) for n in range(4)]
    meter.feed(lines[0], 100)
    pieces = [lines[1] + lines[2][:1], lines[2][1:40], lines[2][40:] + lines[3]]
    output = feed_pieces(meter, pieces, 100, 200)
    assert output.rows.t_mono_ns.tolist() == [200, 200, 400]


def test_port_opened_in_mid_line_is_no_fault() -> None:
    lines = [encode_line(n * 10, (1000, 0)) for n in range(3)]
    assert not kinds(fed([lines[0][50:], lines[1], lines[2]]))


def test_tripped_protection_is_flagged() -> None:
    line = closed(encode_line(10, (1000, 0)).replace(b",1,00,", b",1,20,", 1))
    assert words(fed([encode_line(0, (0, 0)), line])) == ["tripped-0"]


def test_a_power_that_is_no_product_is_doubtful() -> None:
    sound = encode_line(10, (1200, 0))
    assert b"12000,0100,01200" in sound
    hurt = closed(sound.replace(b"01200,1", b"02100,1"))
    assert hurt[74:] == sound[74:]
    assert words(fed([encode_line(0, (0, 0)), sound])) == [""]
    assert words(fed([encode_line(0, (0, 0)), hurt])) == ["doubtful"]


@given(voltage=st.floats(0, 20_000, width=32), current_ma=st.integers(0, 4000))
def test_a_power_by_the_firmwares_arithmetic_is_a_product(voltage: float, current_ma: int) -> None:
    power_mw = int(np.float32(voltage) * np.float32(current_ma) / np.float32(1000))
    assert is_product(int(voltage), current_ma, power_mw)


@pytest.mark.parametrize("scale_mw", [70, 700, 7_000, 45_000, 99_000])
def test_simulated_power_is_a_product(scale_mw: int) -> None:
    """No simulated line is doubtful for any power up to the largest current."""
    times = range(0, 2000, 10)
    lines = [encode_line(t, (scale_mw + t // 10, 59 + t % 7)) for t in times]
    assert not any(words(fed(lines, {"0": "system", "1": "drive"})))


def _swapped(line: bytes, chance: random.Random) -> bytes:
    """Return the line with two digits of the checked part swapped."""
    digits = [at for at in range(74) if line[at : at + 1].isdigit()]
    a, b = sorted(chance.sample(digits, 2))
    return line[:a] + line[b : b + 1] + line[a + 1 : b] + line[a : a + 1] + line[b + 1 :]


def _moved(line: bytes, chance: random.Random) -> bytes:
    a, b = chance.sample(range(74), 2)
    others = line[:a] + line[a + 1 :]
    return others[:b] + line[a : a + 1] + others[b:]


def _two_changed(line: bytes, chance: random.Random) -> bytes:
    changed = bytearray(line)
    for at in chance.sample([at for at in range(74) if line[at : at + 1].isdigit()], 2):
        changed[at] = chance.choice(b"0123456789")
    return bytes(changed)


@pytest.mark.parametrize(
    ("damage", "passed_before", "passes_now"),
    [(_swapped, 0.3, 0.013), (_moved, 0.003, 0.001), (_two_changed, 0.003, 0.001)],
    ids=["swapped", "moved", "two changed"],
)
def test_few_wrong_powers_are_not_doubtful(
    damage: Callable[[bytes, random.Random], bytes],
    passed_before: float,
    passes_now: float,
    thorough: bool,
) -> None:
    count = 3000 if thorough else 1000
    chance = random.Random(1)
    passed = undoubted = 0
    for _ in range(count):
        line = encode_line(
            chance.randrange(10**7), (chance.randrange(100, 60_000), chance.randrange(100, 60_000))
        )
        sound, hurt = clean_lines(line, 0, 1), clean_lines(damage(line, chance), 0, 1)
        if hurt.size and (sound[3:13:4] != hurt[3:13:4]).any():
            passed += 1
            undoubted += not doubtful_lines(hurt).all()
    assert passed > passed_before * count
    assert undoubted < passes_now * count


@given(
    seed=st.integers(0, 10_000),
    damages=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 5)), max_size=12),
    cuts=st.lists(st.floats(0, 1), max_size=30),
)
def test_many_lines_at_once_equal_single_lines(
    seed: int, damages: list[tuple[float, int]], cuts: list[float]
) -> None:
    chance = random.Random(seed)
    data = bytearray()
    t_ms = chance.choice([0, (1 << 32) - 300])
    for _ in range(90):
        t_ms += chance.choice([10] * 40 + [9, 11, 14, 30, 100, 1, 0])
        data += encode_line(
            t_ms, (chance.randrange(60_000), 1200), on=(chance.random() < 0.9, True)
        )
    for place, kind in damages:
        at = int(place * (len(data) - 1))
        if kind == 0:
            del data[at]
        elif kind == 1:
            data.insert(at, data[at])
        elif kind == 2:
            data[at] ^= chance.randrange(1, 256)
        elif kind == 3:
            data[at:at] = chance.randbytes(chance.randrange(200))
        elif kind == 4:
            del data[at : at + chance.randrange(300)]
        else:
            data[at : at + 1] = b"9"
    bounds = sorted({0, len(data), *(int(cut * len(data)) for cut in cuts)})
    pieces = [Frame(1000 + a, bytes(data[a:b])) for a, b in pairwise(bounds)]
    meters = [opened(SmartPower3({"0": "system", "input": "supply"})) for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smartpower3, "_FIRST_LOOK", 1)
        patch.setattr(smartpower3, "_LAST_LOOK", 1)
        first = join_results([meters[0].feed(piece.data, piece.t_mono_ns) for piece in pieces])
    other = meters[1].feed_all(pieces_of(pieces))
    assert first.faults == other.faults
    for name in ("t_mono_ns", "t_device_us", "window_s", "power_w", "flags"):
        assert getattr(first.rows, name).tolist() == getattr(other.rows, name).tolist(), name
