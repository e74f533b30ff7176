"""Test the Watts Up?'s packets with published records and its simulator."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from fde_instruments.meters.wattsup import FIELDS, WattsUp
from fde_instruments.simulators.wattsup import WattsUpSimulator, banner, encode_packet
from instrumentation.meters.rows import GAP, OVER_RANGE, RESTART, ParseResult, Rows
from instrumentation.tests.meter_helpers import feed_pieces, kinds, opened
from instrumentation.trace import Fault

SECOND_NS = 1_000_000_000
# Records that were published with programs that read these meters.
VECTOR = b"#d,-,18,965,1204,792,1,0,69384,5550,965,1205,833,965,1203,779,100,0,0,500,965;"
PUBLISHED = (
    (VECTOR, 96.5, 360),
    (b"#d,-,18,972,2277,433,5,0,70035,5602,973,2280,435,972,2274,432,95,0,0,500,1020;", 97.2, 1800),
    (b"#d,-,18,0,1201,0,0,0,2,0,0,1202,0,0,1201,0,100,0,0,600,0;", 0.0, 0),
    (b"#d,-,18,124,1191,97,0,_,_,_,124,_,_,_,_,_,100,_,_,_,_;", 12.4, 0),
    (b"#d,-,18,610,1186,545,45,_,_,_,610,_,_,_,_,_,94,_,_,_,_;", 61.0, 16200),
)
TEN = VECTOR.replace(b",792,1,", b",792,10,")  # counts of energy


def changed(packet: bytes, name: str, value: bytes | int) -> bytes:
    """Return a packet with another value of a reading."""
    values = packet[:-1].split(b",")
    values[3 + FIELDS.index(name)] = value if isinstance(value, bytes) else b"%d" % value
    return b",".join(values) + b";"


def fed(pieces: Sequence[bytes], meter: WattsUp | None = None) -> tuple[Rows, Sequence[Fault]]:
    """Feed pieces that arrive a second apart."""
    meter = meter or opened(WattsUp({"0": "system"}))
    output = feed_pieces(meter, pieces, SECOND_NS, SECOND_NS)
    return output.rows, output.faults


def a_simulator(fields: int = 18, logged: Sequence[str] = FIELDS) -> WattsUpSimulator:
    simulator = WattsUpSimulator(fields, logged)
    simulator.receive(b"#L,W,3,E,1,1;")
    return simulator


def seconds_of(
    simulator: WattsUpSimulator, watts: Sequence[float], used_j: float = 0
) -> list[bytes]:
    energy_j = used_j + np.cumsum(watts)
    return [simulator.advance(energy_j[n : n + 1, None]) for n in range(len(watts))]


@pytest.mark.parametrize(("packet", "watts", "joules"), PUBLISHED)
def test_published_records_are_read(packet: bytes, watts: float, joules: float) -> None:
    rows, faults = fed([packet + b"\r\n"] * 3)
    assert not faults
    assert rows.power_w.tolist() == [[watts]] * 2
    assert rows.energy_j is not None
    assert rows.energy_j.tolist() == [[joules]] * 2
    assert rows.window_s.tolist() == [1.0] * 2
    assert rows.t_mono_ns.tolist() == [2 * SECOND_NS, 3 * SECOND_NS]


def test_simulator_sends_the_published_form() -> None:
    values = [int(text) for text in VECTOR[8:-1].split(b",")]
    assert encode_packet("d", values) == VECTOR + b"\r\n"
    names = b"W,V,A,WH,Cost,WH/Mo,Cost/Mo,Wmax,Vmax,Amax,Wmin,Vmin,Amin,PF,DC,PC,Hz,VA"
    assert WattsUpSimulator().receive(b"#H,R,0;") == b"#h,-,18," + names + b";\r\n"


def test_requests_version_names_and_records_and_stops_at_the_end() -> None:
    meter = opened(WattsUp({"0": "system"}))
    t_ns, sent = 5 * SECOND_NS, []
    for _ in range(4):
        sent.append(meter.request(t_ns))
        assert meter.request(t_ns) == sent[-1]
        meter.on_request_sent(sent[-1], t_ns)
        assert meter.request(t_ns) == b""
        assert meter.due_ns is not None
        t_ns = meter.due_ns
    assert sent == [b"#V,R,0;", b"#H,R,0;", b"#L,W,3,E,1,1;", b"#V,R,0;"]
    assert meter.stop_command() == b"#L,W,0;"
    simulator = a_simulator()
    simulator.receive(meter.stop_command())
    assert not simulator.advance(np.array([[5.0]]))


def test_requests_are_repeated_only_after_a_silence() -> None:
    meter = opened(WattsUp({"0": "system"}))
    for n in range(3):
        meter.on_request_sent(meter.request(n * SECOND_NS), n * SECOND_NS)
    meter.feed(VECTOR, 4 * SECOND_NS)
    assert meter.request(7 * SECOND_NS) == b""
    assert meter.request(8 * SECOND_NS) == b"#V,R,0;"


@pytest.mark.parametrize("fields", [16, 18])
def test_models_differ_in_how_many_readings_they_send(fields: int) -> None:
    rows, faults = fed(seconds_of(a_simulator(fields), [50.0] * 5))
    assert not faults
    assert rows.power_w.tolist() == [[50.0]] * 4


HEADER = encode_packet("h", ["V", "W", "WH"])
OTHER_FORMS = (
    VECTOR.replace(b",100,0,0,", b",100,00,0,"),
    VECTOR.replace(b",18,", b",17,"),
    VECTOR.replace(b",0,500,", b",500,").replace(b",18,", b",17,"),
    VECTOR.replace(b",0,500,", b",,500,"),
    VECTOR.replace(b"#d,-,", b"#d,+,"),
    VECTOR.replace(b"#d", b"#e"),
)
# What arrives, the faults, the figures, and what the first fault's words hold.
ARRIVALS: dict[str, tuple[Sequence[bytes], Sequence[str], Sequence[float], str]] = {
    "names of readings": (
        [HEADER, *(encode_packet("d", [1200, 500 + n, 7]) for n in range(3))],
        *([], [50.1, 50.2], ""),
    ),
    "a record longer than the names": ([HEADER, VECTOR], ["framing"], [], ""),
    **{
        f"names {names}": ([encode_packet("h", names), *[VECTOR] * 2], ["framing"], [96.5], "")
        for names in (["V", "A"], ["W", "W"], ["W", "VV"])
    },
    "no watts": ([changed(VECTOR, "W", b"_")], ["framing"], [], "does not log watts"),
    "white space beside separators": ([VECTOR.replace(b",", b"\r\n,\t")] * 2, [], [96.5], ""),
    "white space in a number": ([VECTOR, changed(VECTOR, "W", b"9\r65")], ["framing"], [], ""),
    "opened in mid packet": ([VECTOR[20:], *[VECTOR] * 2], [], [96.5], ""),
    **{
        f"another form {form!r}": ([VECTOR, form, VECTOR], ["framing", "gap"], [96.5], "")
        for form in OTHER_FORMS
    },
    **{
        f"{deci_watts} dW beside 96.5 W": (
            [VECTOR, changed(VECTOR, "W", deci_watts), VECTOR],
            *(["inconsistent", "gap"], [96.5], relation),
        )
        for deci_watts, relation in (
            (695, "W = VA x PF, W = V x A x PF, Wmin"),
            (96, "W = VA x PF"),
            (9965, "W = VA x PF"),
        )
    },
    **{
        f"first record with {name} {value}": (
            [changed(VECTOR, name, value)],
            *(["inconsistent"], [], ""),
        )
        for name, value in (
            *(("Wmax", 964), ("Wmin", 966), ("Vmax", 1203), ("Amin", 793)),
            *(("Vmax", 2000), ("PF", 101)),
        )
    },
    **{
        f"energy jumps to {counts}": (
            [TEN, changed(TEN, "WH", counts), TEN, TEN],
            *(["inconsistent", "gap"], [96.5, 96.5], ""),
        )
        for counts in (100, 0)
    },
    "jumps that confirm nothing": (
        [TEN, *(changed(TEN, "WH", counts) for counts in (500, 90, 4)), TEN, TEN],
        *(["inconsistent"] * 3 + ["gap"], [96.5, 96.5], ""),
    ),
}


@pytest.mark.parametrize("name", ARRIVALS)
def test_packets_give_figures_or_faults(name: str) -> None:
    pieces, expected, watts, words = ARRIVALS[name]
    rows, faults = fed(pieces)
    assert (kinds(faults), rows.power_w[:, 0].tolist()) == (expected, watts)
    assert words in "".join(fault.detail for fault in faults[:1])


def test_a_falling_counter_is_a_fault() -> None:
    _, faults = fed([TEN, changed(TEN, "WH", 12), TEN, TEN])
    assert kinds(faults)[0] == "inconsistent"


def test_a_requested_version_is_no_fault() -> None:
    meter = opened(WattsUp({"0": "system"}))
    meter.on_request_sent(b"#V,R,0;", 0)
    rows, faults = fed([banner(), VECTOR, VECTOR], meter)
    assert not faults
    assert len(rows) == 1


def test_a_banner_in_the_stream_restarts_the_meter() -> None:
    simulator = a_simulator()
    before = seconds_of(simulator, [1500.0] * 10)
    message = simulator.switch_off_and_on()
    assert simulator.advance(np.array([[15_050.0]])) == b""
    meter = opened(WattsUp({"0": "system"}))
    meter.on_request_sent(b"#V,R,0;", -5 * SECOND_NS)
    fed([*before, message], meter)
    assert meter.request(12 * SECOND_NS) == b"#V,R,0;"
    simulator.receive(b"#L,W,3,E,1,1;")
    rows, faults = fed([*before, message, *seconds_of(simulator, [1500.0] * 3, 15_050)])
    assert kinds(faults) == ["banner", "restart", "gap"]
    assert "2,20000,7,11,1,0" in faults[0].detail
    assert rows.flags.tolist() == [0] * 9 + [GAP | RESTART, 0, 0]
    assert rows.energy_j is not None
    joules = rows.energy_j[:, 0]
    assert np.all(np.diff(joules) >= 0)
    assert joules[8] == pytest.approx(15_000, abs=360)
    assert joules[-1] == pytest.approx(15_000 + 4_500 + 50, abs=720)


def test_a_reset_without_a_banner_needs_a_second_record() -> None:
    simulator = a_simulator()
    packets = seconds_of(simulator, [1000.0] * 20)
    simulator.receive(b"#R,W,0;")
    rows, faults = fed([*packets, *seconds_of(simulator, [1000.0] * 5, 20_000)])
    assert kinds(faults) == ["inconsistent", "restart", "gap"]
    assert len(rows) == 19 + 4
    assert rows.energy_j is not None
    assert np.all(np.diff(rows.energy_j[:, 0]) >= 0)
    assert rows.energy_j[-1, 0] - rows.energy_j[0, 0] == pytest.approx(23_000, abs=720)


def test_missing_records_are_a_gap() -> None:
    packets = seconds_of(a_simulator(), [80.0] * 9)
    packets[3] = packets[4] = b""
    rows, faults = fed(packets)
    assert rows.flags.tolist() == [0, 0, GAP, 0, 0, 0]
    assert [(fault.kind, fault.detail) for fault in faults] == [
        ("gap", "records of some 2.0 s are missing")
    ]


def test_jitter_and_late_reads_are_no_contradiction() -> None:
    packets = seconds_of(a_simulator(), [1700.0] * 40)
    meter = opened(WattsUp({"0": "system"}))
    faults: list[Fault] = []
    for n in range(0, 40, 2):  # two are read at once
        result = meter.feed(packets[n] + packets[n + 1], n * SECOND_NS)
        faults += result.faults
    assert set(kinds(faults)) == {"gap"}


def test_a_relation_that_never_holds_is_dropped_and_reported_once() -> None:
    """Some firmware reports the largest power of each second, which may fall."""
    simulator = a_simulator()
    packets = []
    for n, packet in enumerate(seconds_of(simulator, [60.0] * 40)):
        packets.append(changed(packet.strip(), "Wmax", 600 + 7 * (n % 2)))
    rows, faults = fed(packets)
    assert kinds(faults).count("distrust") == 1
    assert "Wmax after Wmax" in next(f.detail for f in faults if f.kind == "distrust")
    assert len(rows) >= 34
    assert not rows.flags[-20:].any()


def test_energy_that_is_not_logged_is_unknown() -> None:
    rows, faults = fed(seconds_of(a_simulator(logged=("W", "V", "A", "PF")), [40.0] * 4))
    assert not faults
    assert rows.energy_j is not None
    assert np.isnan(rows.energy_j).all()


def test_a_foreign_stream_is_a_fault_and_not_buffered() -> None:
    meter = opened(WattsUp({"0": "system"}))
    rows, faults = fed([b"0000815169,15296,0036,00550,0\r\n" * 10] * 9, meter)
    assert not len(rows)
    assert len(faults) > 3


def one_change(packet: bytes, chance: random.Random) -> bytes:
    """Return a packet with one byte lost, doubled or changed.

    A third of the changes give a digit.
    """
    at = chance.randrange(len(packet) - 2)  # the end of the line means nothing
    match chance.randrange(4):
        case 0:
            return packet[:at] + packet[at + 1 :]
        case 1:
            return packet[:at] + packet[at : at + 1] + packet[at:]
        case 2:
            return packet[:at] + b"%d" % chance.randrange(10) + packet[at + 1 :]
        case _:
            return packet[:at] + bytes([chance.randrange(256)]) + packet[at + 1 :]


def test_a_single_change_is_reported_or_harmless() -> None:
    """The relations allow at most 3 % and 0.3 W, or two counts of energy."""
    chance = random.Random(11)
    watts = [chance.choice([3.0, 40.0, 95.0, 400.0]) + chance.random() for _ in range(6000)]
    packets, used_j = seconds_of(a_simulator(), watts), np.cumsum(watts)
    meter = opened(WattsUp({"0": "system"}))
    reported = changed = 0
    faulty = False
    for n, packet in enumerate(packets):
        was_faulty, faulty = faulty, n > 5 and n % 7 == 0
        arrived = one_change(packet, chance) if faulty else packet
        result: ParseResult = meter.feed(arrived, (n + 1) * SECOND_NS)
        for (power_w,) in result.rows.power_w.tolist():
            assert abs(power_w - watts[n]) <= 0.03 * watts[n] + 0.31
            assert result.rows.energy_j is not None
            assert abs(result.rows.energy_j[0, 0] - used_j[n]) <= 3 * 360
            assert not result.rows.flags[0] & RESTART
        reported += bool({"framing", "inconsistent"} & set(kinds(result.faults)))
        changed += arrived != packet
        if not (was_faulty or faulty) and n > 5:
            assert len(result.rows) == 1 or n % 7 == 2  # back in step
    assert reported >= 0.85 * changed


def test_an_unrequested_banner_after_other_requests_is_reported() -> None:
    meter = opened(WattsUp({"0": "system"}))
    meter.on_request_sent(b"#V,R,0;", -9 * SECOND_NS)
    meter.on_request_sent(b"#H,R,0;", 0)
    _, faults = fed([banner()], meter)
    assert kinds(faults) == ["banner"]


@pytest.mark.parametrize("name", ["Wmax", "Wmin", "Amax", "WH/Mo", "Cost/Mo", "Cost", "Hz", "VA"])
@pytest.mark.parametrize("how", ["lost", "doubled"])
def test_a_lost_or_doubled_digit_is_noticed_by_the_next_record(name: str, how: str) -> None:
    packets = seconds_of(a_simulator(), [700.0 + 10 * (n % 5) for n in range(120)])
    value = packets[100].split(b",")[3 + FIELDS.index(name)].rstrip(b";\r\n")
    packets[100] = changed(
        packets[100].strip(), name, value[1:] if how == "lost" else value[:1] + value
    )
    rows, faults = fed(packets)
    assert {"inconsistent", "framing"} & set(kinds(faults))
    assert len(rows) >= 117
    assert not (rows.flags & RESTART).any()


def test_physical_relations_survive_many_faults() -> None:
    packets = seconds_of(a_simulator(), [60.0] * 60)
    for n in range(1, 60, 3):
        packets[n] = changed(packets[n].strip(), "W", 200)
    rows, faults = fed(packets)
    assert rows.power_w.tolist() == [[60.0]] * 39
    assert kinds(faults).count("inconsistent") == 20


def test_a_power_above_all_models_is_flagged() -> None:
    """Only this flag shows it if the meter logs no extremes."""
    for counts, over in ((17_000, 0), (41_000, OVER_RANGE)):
        fields = [b"%d" % counts, b"2300", *[b"_"] * 16]
        packet = b"#d,-,18," + b",".join(fields) + b";"
        rows, faults = fed([packet] * 3)
        assert not faults
        assert rows.flags.tolist() == [over] * 2


def test_the_simulator_is_silent_until_logging_is_set() -> None:
    assert WattsUpSimulator().advance(np.array([[5.0]])) == b""


@pytest.mark.parametrize("wrong", [b"4", b"9"])
def test_mean_since_the_last_reset_cannot_jump(wrong: bytes) -> None:
    simulator = a_simulator(logged=[name for name in FIELDS if name != "Cost/Mo"])
    packets = seconds_of(simulator, [700.0 + 10 * (n % 5) for n in range(120)])
    value = packets[100].split(b",")[3 + FIELDS.index("WH/Mo")]
    packets[100] = changed(packets[100].strip(), "WH/Mo", wrong + value[1:])
    _, faults = fed(packets)
    assert "WH/Mo" in faults[0].detail
