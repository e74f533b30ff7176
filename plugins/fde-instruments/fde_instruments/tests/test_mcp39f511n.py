"""Test the MCP39F511N's frames with known bytes; only values read twice are used."""

from __future__ import annotations

import numpy as np
import pytest

from contract.strict_json import Json
from fde_instruments.meters.mcp39f511n import (
    Mcp39f511n,
    Outputs,
    Request,
    find_answer,
    power_w,
    read_request,
    write_request,
)
from fde_instruments.simulators.mcp39f511n import Mcp39f511nSimulator
from instrumentation.meters.base import MeterError
from instrumentation.tests.meter_helpers import energies, exchange, kinds, on_the_nth, opened, talk
from instrumentation.trace import Frame
from validation.metrology.conversation import conversation, decode_frames

# Of green-coding-solutions/green-metrics-tool and the data sheet's frame.
ASK_POWER = bytes.fromhex("A5 08 41 00 16 4E 08 5A")
POWER = bytes.fromhex("06 0B 39 30 00 00 00 00 00 00 7A")
WATTS = [40.0, 41.5, 43.25, 120.0, 119.5, 60.0, 61.0, 62.0, 63.0, 64.0]


def driver(**settings: Json) -> Mcp39f511n:
    return Mcp39f511n({"1": "system", "2": "drive"}, settings)


def test_request_is_that_of_the_vector() -> None:
    assert read_request(0x0016, 8) == ASK_POWER
    assert Request.from_frame(ASK_POWER) == Request(0x0016, 8)
    assert Request.from_frame(write_request(0x00A8, b"\x04\x00")) == Request(0x00A8, 0)


def test_answer_of_the_vector_is_read() -> None:
    answer = find_answer(POWER, Request(0x0016, 8))
    assert answer is not None
    assert (answer.start, answer.end) == (0, 11)
    assert power_w(int.from_bytes(answer.data[:4], "little"), 19 << 16) == pytest.approx(123.45)
    assert power_w(12345, 16 << 16 | 12 << 8 | 18) == pytest.approx(123.45 / 8)


def test_simulator_answers_the_vector() -> None:
    meter = Mcp39f511nSimulator(power_range=19)
    meter.advance(np.array([[123.45 * meter.period_s, 0.0]]))
    assert meter.receive(ASK_POWER) == POWER


def test_an_answer_is_found_after_similar_bytes() -> None:
    answer = find_answer(b"\x06\x0b\x06" + POWER, Request(0x0016, 8))
    assert answer is not None
    assert (answer.start, answer.data[:2]) == (3, b"\x39\x30")


def test_any_changed_value_is_a_new_window() -> None:
    before = Outputs.from_bytes(bytes(32)).measured
    changing = {
        at
        for at in range(32)
        if Outputs.from_bytes(bytes(at) + b"\x01" + bytes(31 - at)).measured != before
    }
    # Not the status, the version, the line frequency, and what only the longer answer has.
    assert changing == {4, 5, *range(8, 28)}


@pytest.mark.parametrize("at", range(len(POWER)))
def test_a_changed_byte_gives_no_record(at: int) -> None:
    for changed in range(256):
        answer = POWER[:at] + bytes([changed]) + POWER[at + 1 :]
        assert answer == POWER or find_answer(answer, Request(0x0016, 8)) is None


@pytest.mark.parametrize("power_range", [12, 16, 19])
def test_power_is_read_in_every_range(power_range: int) -> None:
    meter = Mcp39f511nSimulator(power_range=power_range)
    output, _ = talk(driver, meter, WATTS)
    assert not output.faults
    assert output.samples["power_w_system"].to_list() == pytest.approx(
        WATTS[:-1], abs=meter.resolution_w
    )


def test_windows_follow_the_measured_line_frequency() -> None:
    output, _ = talk(driver, Mcp39f511nSimulator(line_hz=49.9), WATTS)
    assert output.samples["window_s"].to_list() == pytest.approx([16 / 49.9] * 9)


def test_a_different_window_is_set_and_restored() -> None:
    meter, simulator = opened(driver(window_cycles=4)), Mcp39f511nSimulator(exponent=4)
    for t_ns in range(0, 10**9, 10**7):
        exchange(meter, simulator, t_ns)
    assert simulator.exponent == 2
    assert simulator.receive(meter.stop_command()) == b"\x06"
    assert simulator.exponent == 4


def test_a_window_set_just_before_is_restored() -> None:
    meter, simulator = opened(driver(window_cycles=4)), Mcp39f511nSimulator(exponent=4)
    for _ in range(7):  # the registers twice, and the writing
        exchange(meter, simulator, 0)
    assert simulator.exponent == 2
    simulator.receive(meter.stop_command())
    assert simulator.exponent == 4


def test_registers_that_do_not_read_the_same_twice_are_read_again() -> None:
    """Two swapped bytes of the range, which the sum does not detect."""
    wire = on_the_nth(1, lambda piece: piece[:3] + piece[4:5] + piece[3:4] + piece[5:])
    output, _ = talk(driver, Mcp39f511nSimulator(), WATTS, wire)
    assert kinds(output) == ["setup"]
    assert output.samples["power_w_system"].to_list() == pytest.approx(WATTS[:-1], abs=0.002)


def test_a_window_that_cannot_be_set_is_a_fault_and_the_true_one_used() -> None:
    class Stubborn(Mcp39f511nSimulator):
        def _execute(self, commands: bytes) -> bytes:
            return b"\x06" if commands[3:4] == b"M" else super()._execute(commands)

    output, _ = talk(lambda: driver(window_cycles=4), Stubborn(), WATTS)
    assert kinds(output) == ["setup"]
    assert set(output.samples["window_s"]) == {0.32}


def test_an_unchanged_value_is_recorded_once() -> None:
    """Each window gives one record, however often it is polled."""
    output, frames = talk(driver, Mcp39f511nSimulator(), WATTS)
    assert output.samples.height == len(WATTS) - 1
    assert sum(frame.sent for frame in frames) > 4 * len(WATTS)
    assert not any("late" in flags for flags in output.samples["flags"])


def test_a_window_that_ends_during_the_first_two_reads_is_no_fault() -> None:
    meter, simulator = opened(driver()), Mcp39f511nSimulator()
    for step in range(10):
        t_ns = step * 10_000_000
        assert not exchange(meter, simulator, t_ns).faults
        if step == 6:  # the first look at the outputs was taken
            simulator.advance(np.array([[40.0, 0.0]]))


def test_a_meter_that_stands_still_gives_no_records_then_a_gap() -> None:
    meter = Mcp39f511nSimulator()
    frames: list[Frame] = []
    start_ns = 0
    watching = driver()
    joules = energies(WATTS * 3, meter)
    for first, still in ((0, False), (10, True), (20, False)):
        meter.still = still
        piece = list(conversation(watching, meter, joules[first : first + 10], start_ns=start_ns))
        frames += piece if not frames else piece[1:]
        start_ns += round(10 * meter.period_s * 1e9)
    # `conversation` opens the port each time; here it was open all along.
    output = decode_frames(driver(), frames)
    assert kinds(output) == ["stale", "gap"]
    gaps = output.samples.filter(output.samples["flags"].str.contains("gap"))
    assert gaps.height == 1
    assert output.samples["window_s"].max() == pytest.approx(0.32)


def test_a_value_read_once_is_dropped() -> None:
    """Two bytes changed in opposite directions, which the sum does not detect."""

    def swap(piece: bytes) -> bytes:
        return piece[:22] + bytes([piece[22] + 1, piece[23] - 1 & 0xFF]) + piece[24:]

    clean, _ = talk(driver, Mcp39f511nSimulator(), WATTS)
    for nth in range(12, 30):
        wire = on_the_nth(nth, lambda piece: swap(piece) if len(piece) > 24 else piece)
        output, _ = talk(driver, Mcp39f511nSimulator(), WATTS, wire)
        assert set(output.samples["power_w_system"]) <= set(clean.samples["power_w_system"])


def test_a_window_with_an_unobserved_end_is_flagged_late() -> None:
    """The controller is busy for a while around the end of a window."""
    meter, simulator = opened(driver()), Mcp39f511nSimulator()
    flags, window_ns, windows = [], round(simulator.period_s * 1e9), 0
    for t_ns in range(0, 10 * window_ns, 1_000_000):
        if t_ns // window_ns > windows:
            windows += 1
            simulator.advance(np.array([[40.0 * windows + windows**2, 0.0]]))
        busy = 5 * window_ns - 50_000_000 < t_ns < 5 * window_ns + 50_000_000
        if not busy and (request := meter.request(t_ns)):
            meter.on_request_sent(request, t_ns)
            flags += meter.feed(simulator.receive(request), t_ns).rows.flags.tolist()
    assert flags == [0, 0, 0, 0, 16, 0, 0, 0, 0]


def test_late_answer_is_not_taken_for_the_next() -> None:
    """An answer after the time-out has another length than the next request."""
    meter, simulator = opened(driver()), Mcp39f511nSimulator()
    t_ns = 0
    for _ in range(6):
        exchange(meter, simulator, t_ns)
    request = meter.request(t_ns)
    meter.on_request_sent(request, t_ns)
    late = simulator.receive(request)
    t_ns += 200_000_000
    again = meter.request(t_ns)
    meter.on_request_sent(again, t_ns)
    assert Request.from_frame(again).size != Request.from_frame(request).size
    assert meter.feed(late, t_ns).faults[0].kind == "timeout"
    assert meter.request(t_ns) == b""  # it still waits for its own answer


def test_a_silent_meter_is_set_up_again() -> None:
    meter = opened(driver())
    simulator = Mcp39f511nSimulator()
    for _ in range(8):
        exchange(meter, simulator, meter.due_ns or 0)
    assert Request.from_frame(meter.request(10**9)).address == 0x0002
    for second in range(1, 5):
        meter.on_request_sent(meter.request(second * 10**9), second * 10**9)
    assert Request.from_frame(meter.request(10 * 10**9)).address == 0x00A8


@pytest.mark.parametrize("wrong", [{"window_cycles": 5}, {"line_hz": 16.7}, {"line_hz": "50"}])
def test_wrong_settings_are_refused(wrong: dict[str, Json]) -> None:
    with pytest.raises(MeterError):
        driver(**wrong)
