"""Test the drivers of networked meters with single answers, in simulated time."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instrumentation.meters.answers import MOST_BODY_BYTES, Answer, Answers, envelope
from instrumentation.meters.base import Meter, MeterError
from instrumentation.meters.http import PROFILES, HttpMeter
from instrumentation.meters.json_paths import value_at
from instrumentation.meters.rows import ParseResult
from instrumentation.meters.scpi import ScpiMeter
from instrumentation.tests.meter_helpers import flag_words, kinds, opened, talk
from instrumentation.tests.simulators.http import HttpSimulator
from instrumentation.tests.simulators.scpi import ScpiSimulator
from instrumentation.trace import Fault

SECOND_NS = 1_000_000_000
GENERIC: dict[str, Any] = {
    "profile": "generic",
    "path": "/p",
    "power": "/w",
    "period_s": 1,
    "resolution_w": 0.1,
    "averaged_s": 1,
    "power_unit_w": 1,
}

HOME_ASSISTANT: dict[str, Any] = {
    **{"profile": "home-assistant", "entity": "sensor.plug", "period_s": 10, "resolution_w": 0.1}
}
SCPI: dict[str, Any] = {"query": "P?", "period_s": 1, "resolution_w": 1}


def a_meter(driver: type[Meter], channel: str = "0", /, **settings: Any) -> Meter:
    return opened(driver({channel: "system"}, settings))


def answer_in_turn(
    meter: Meter, *bodies: Any, label: str = "200 OK", step_s: float = 1.0
) -> list[ParseResult]:
    """Return the driver's results of these answers in turn; bytes are sent unchanged.

    Texts and bytes as they are.
    """
    outputs: list[ParseResult] = []
    for n, body in enumerate(bodies):
        t_ns = round(n * step_s * SECOND_NS)
        meter.on_request_sent(meter.request(t_ns) or b"GET", t_ns)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        outputs.append(meter.feed(envelope(label, data), t_ns))
    return outputs


def watts(outputs: list[ParseResult]) -> list[float]:
    return [value for output in outputs for value in output.rows.power_w[:, 0].tolist()]


def test_a_place_that_becomes_another_sensors_gives_no_reading() -> None:
    """An index of a list is that of the next one after one has dropped out."""
    hub, plug = {"name": "hub", "value": 1}, {"name": "power", "value": 61}
    sensors = [hub, plug, {"name": "temperature", "value": 45}]
    meter = a_meter(HttpMeter, **{**GENERIC, "power": "/1/value"})
    outputs = answer_in_turn(meter, [], sensors, sensors, sensors[1:], sensors)
    assert watts(outputs) == [61.0, 61.0]
    assert "another object" in outputs[3].faults[0].detail


# The envelope

labels = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40)
answers = st.lists(st.tuples(labels, st.binary(max_size=60)), max_size=6)


@given(answers, st.lists(st.integers(1, 30), max_size=30))
def test_envelopes_are_parsed_back(sent: list[tuple[str, bytes]], cuts: list[int]) -> None:
    stream = b"".join(envelope(label, body) for label, body in sent)
    inbox, at = Answers(), 0
    answers: list[Answer | Fault] = []
    for size in [*cuts, len(stream)]:
        answers += inbox.add(stream[at : at + size], at)
        at += size
    assert [(output.label, output.body) for output in answers if isinstance(output, Answer)] == sent
    assert len(answers) == len(sent)
    assert not inbox.drop_incomplete()


@given(answers.filter(bool), st.integers(0, 10**6), st.integers(1, 255))
def test_a_changed_byte_gives_no_record(sent: list[tuple[str, bytes]], at: int, by: int) -> None:
    """All unchanged answers are parsed, and no others."""
    stream = b"".join(envelope(label, body) for label, body in sent)
    place = at % len(stream)
    changed = stream[:place] + bytes([stream[place] ^ by]) + stream[place + 1 :]
    inbox = Answers()
    answers = [*inbox.add(changed + envelope("end", b"{}"), 0), *inbox.drop_incomplete()]
    sound = [(output.label, output.body) for output in answers if isinstance(output, Answer)]
    assert len(sound) == len(sent)  # all but the changed one, and the end
    assert sound[-1] == ("end", b"{}")
    assert set(sound[:-1]) <= set(sent)
    assert any(isinstance(output, Fault) for output in answers)


def test_an_answer_that_is_too_long_is_a_fault() -> None:
    (answer,) = (
        HttpMeter({"0": "system"}, GENERIC)
        .feed(envelope("200 OK", b'{"w": 1, "x": "' + b"x" * MOST_BODY_BYTES + b'"}'), 0)
        .faults
    )
    assert answer.kind == "framing"


# Sound envelopes, documents at random: the fuzz behind the checksum

documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["w", "0", "meters", "StatusSNS", "ENERGY", "Power"]), inner
        )
    ),
    max_leaves=12,
)
DRIVERS: list[tuple[type[Meter], dict[str, Any], str, str]] = [
    (HttpMeter, GENERIC, "0", "200 OK"),
    *(
        (HttpMeter, {"profile": name}, next(iter(PROFILES[name].places.power)), "200 OK")
        for name in ("shelly-gen1", "shelly-gen1-em", "shelly-switch", "shelly-em", "tasmota")
    ),
    (ScpiMeter, {"query": ":P?", "period_s": 1, "resolution_w": 0.1}, "0", "ok"),
]


@pytest.mark.parametrize("case", DRIVERS, ids=lambda case: f"{case[0].kind}-{case[2]}")
@given(documents=st.lists(documents, min_size=2, max_size=4), junk=st.binary(max_size=40))
def test_any_document_is_a_finite_reading_or_a_fault(
    case: tuple[type[Meter], dict[str, Any], str, str], documents: list[Any], junk: bytes
) -> None:
    driver, settings, channel, label = case
    meter = a_meter(driver, channel, **settings)
    results = answer_in_turn(meter, *documents, junk, label=label)
    assert all(math.isfinite(value) for value in watts(results))
    completed = sum(len(output.rows) + len(output.faults) for output in results)
    assert completed >= len(results) - 1  # of the first reading nobody knows what it is the mean of


# Times


@pytest.mark.parametrize("poll_s", [1.0, 2.0])
def test_a_slow_display_repeats_its_reading(poll_s: float) -> None:
    """A repeated reading looks like an equal one: the arrival limit includes it."""
    plug = HttpSimulator(refresh_s=3.0)
    settings = {**plug.settings, "period_s": poll_s, "refresh_s": 3.0}
    output, _ = talk(lambda: HttpMeter({"0": "system"}, settings), plug, [10, 20, 30, 40, 50])
    values = output.samples["power_w_system"].to_list()
    assert set(values) <= {0.0, 10.0, 20.0, 30.0, 40.0}
    assert len(values) > len(set(values))
    assert HttpMeter({"0": "system"}, settings).arrival_delay_limit_s == 3.5


def test_a_reading_with_a_stamp_is_used_once() -> None:
    plug = HttpSimulator("generic", refresh_s=3.0)
    settings = {**plug.settings, "period_s": 1.0, "refresh_s": 3.0}
    output, _ = talk(lambda: HttpMeter({"0": "system"}, settings), plug, [10, 20, 30, 40, 50])
    assert output.samples["power_w_system"].to_list() == [10.0, 20.0, 30.0, 40.0]


def test_home_assistant_that_reports_only_changes_leaves_gaps() -> None:
    plug = HttpSimulator("home-assistant", reports_anew=False)
    output, _ = talk(
        lambda: HttpMeter({"0": "system"}, plug.settings), plug, [10, 10, 10, 10, 20, 20, 30, 30]
    )
    assert output.samples["power_w_system"].to_list() == [10.0, 20.0, 30.0]
    assert output.samples["flags"].to_list() == ["", "gap", "gap"]
    assert kinds(output) == ["gap", "gap"]


def test_a_missing_answer_is_a_timeout_and_a_gap() -> None:
    meter = a_meter(HttpMeter, **GENERIC, answer_limit_s=1)
    answer_in_turn(meter, {"w": 1}, {"w": 2})
    for second in (2, 3):
        meter.on_request_sent(meter.request(second * SECOND_NS), second * SECOND_NS)
    output = meter.feed(envelope("200 OK", b'{"w": 3}'), 3 * SECOND_NS)
    assert kinds(output) == ["timeout", "gap"]
    assert flag_words(HttpMeter, output) == ["gap age-unknown"]
    assert output.rows.window_s.tolist() == [1.0]


def test_the_wait_for_an_answer_doubles_up_to_the_limit() -> None:
    """2 s at first, doubled after each silence up to the limit; then by the last answer."""
    meter = a_meter(HttpMeter, **GENERIC, answer_limit_s=7)
    waited = []
    for _ in range(4):
        asked_ns = meter.due_ns or 0
        meter.on_request_sent(meter.request(asked_ns), asked_ns)
        assert meter.due_ns is not None
        waited.append((meter.due_ns - asked_ns) // SECOND_NS)
    assert waited == [2, 4, 7, 7]
    meter.feed(envelope("200 OK", b'{"w": 3}'), asked_ns + round(2.5e9))
    assert meter.due_ns == asked_ns + SECOND_NS  # at once
    meter.on_request_sent(meter.request(20 * SECOND_NS), 20 * SECOND_NS)
    assert meter.due_ns == 25 * SECOND_NS


# Counters


def test_a_counter_is_used_only_when_it_moved() -> None:
    plug = HttpSimulator(counter=True, counter_s=60.0)
    output, _ = talk(lambda: HttpMeter({"0": "system"}, plug.settings), plug, [60.0] * 200)
    told_j = output.samples["energy_j_system"]
    moved = output.samples["energy_j_system"].is_not_null().to_numpy().nonzero()[0]
    assert np.diff(moved).tolist() == [60] * (len(moved) - 1) and len(moved) == 3
    assert told_j.drop_nulls().diff().drop_nulls().to_list() == pytest.approx([3600.0, 3600.0])


def test_a_restarted_counter_is_continued() -> None:
    settings = {**GENERIC, "energy": "/e", "energy_unit_j": 3600}
    outputs = answer_in_turn(
        a_meter(HttpMeter, **settings), *({"w": 1, "e": e} for e in (5, 6, 6, 7, 1, 2))
    )
    hours = [e / 3600 for e in counted(outputs)]
    assert hours[0] == 6 and math.isnan(hours[1]) and hours[2] == 7
    assert math.isnan(hours[3]) and hours[4] == 9  # 7 before, 2 since
    assert kinds(outputs[4]) == ["restart"]
    assert flag_words(HttpMeter, outputs[4]) == ["restart age-unknown"]


def counted(outputs: list[ParseResult]) -> list[float]:
    return [e for output in outputs for e in np.ravel(output.rows.energy_j).tolist()]  # type: ignore[arg-type]


def sockets(power: Any, total: Any) -> dict[str, Any]:
    return {"StatusSNS": {"ENERGY": {"Total": total, "Power": power}}}


@pytest.mark.parametrize(
    ("power", "totals", "channel", "counted_j"),
    [
        (100, (1.0, 1.5), "0", 5.4e6),  # one socket
        ([100], (1.0, 1.5), "0", 5.4e6),
        ([100, 500], (1.0, 1.5), "0", None),  # its total is that of both
        ([100, 500], (1.0, 1.5), "1", None),
        ([100, 500], ([1.0, 3.0], [1.5, 4.0]), "0", 5.4e6),
        ([100, 500], ([1.0, 3.0], [1.5, 4.0]), "1", 14.4e6),
    ],
)
def test_a_total_of_several_sockets_is_no_channels_counter(
    power: Any, totals: tuple[Any, Any], channel: str, counted_j: float | None
) -> None:
    bodies = [sockets(power, total) for total in totals]
    meter = a_meter(HttpMeter, channel, profile="tasmota")
    (energy_j,) = counted(answer_in_turn(meter, *bodies))
    assert math.isnan(energy_j) if counted_j is None else energy_j == pytest.approx(counted_j)


def test_a_total_above_a_list_of_meters_is_no_channels_counter() -> None:
    settings = {**GENERIC, "power": "/meters/0/w", "energy": "/total", "energy_unit_j": 3600}
    for meters, hours in (([1, 2], [math.nan] * 2), ([1], [1.0, 2.0])):
        bodies = ({"meters": [{"w": w} for w in meters], "total": n} for n in range(3))
        energy_j = counted(answer_in_turn(a_meter(HttpMeter, **settings), *bodies))
        assert energy_j == pytest.approx([3600 * h for h in hours], nan_ok=True)


def test_a_missing_counter_leaves_the_power() -> None:
    meter = a_meter(HttpMeter, **GENERIC, energy="/e", energy_unit_j=3600)
    outputs = answer_in_turn(meter, *({"w": 1, "e": e} for e in (5, None, 6, "soon", 1, 2)))
    assert watts(outputs) == [1.0] * 5
    hours = [e / 3600 for e in counted(outputs)]
    assert hours[1] == 6 and hours[4] == 8  # 6 before the restart, 2 since
    assert all(map(math.isnan, (hours[0], hours[2], hours[3])))
    assert kinds(outputs[4]) == ["restart"]


# Profiles


@pytest.mark.parametrize(
    ("profile", "channel", "body", "expected_w"),
    [
        # As the makers' pages print them, shortened.
        ("shelly-gen1", "1", {"meters": [{"power": 1}, {"power": 2.5, "is_valid": True}]}, 2.5),
        ("shelly-gen1-em", "0", {"emeters": [{"power": 10.66, "is_valid": True}]}, 10.66),
        ("shelly-switch", "0", {"id": 0, "apower": 8.9, "aenergy": {"total": 6.532}}, 8.9),
        ("shelly-pm1", "0", {"id": 0, "apower": 61.0, "aenergy": {"total": 1.0}}, 61.0),
        ("shelly-em", "total", {"total_act_power": 2413.825}, 2413.825),
        ("shelly-em1", "0", {"id": 0, "act_power": 51.2}, 51.2),
        ("tasmota", "0", {"StatusSNS": {"ENERGY": {"Power": 27}}}, 27.0),
        ("tasmota", "1", {"StatusSNS": {"ENERGY": {"Power": [3, 4]}}}, 4.0),
    ],
)
def test_profiles_read_documented_answers(
    profile: str, channel: str, body: dict[str, Any], expected_w: float
) -> None:
    named = {"entity": "1", "period_s": 1, "resolution_w": 1} if PROFILES[profile].entity else {}
    meter = a_meter(HttpMeter, channel, profile=profile, counter=False, **named)
    assert watts(answer_in_turn(meter, body, body)) == [expected_w]


@pytest.mark.parametrize(("unit", "expected_w"), [("W", 1.5), ("kW", 1500.0), ("mW", 0.0015)])
def test_home_assistants_unit_scales_the_power(unit: str, expected_w: float) -> None:
    meter = a_meter(HttpMeter, **HOME_ASSISTANT)
    bodies = [
        {"state": "1.5", "last_updated": n, "attributes": {"unit_of_measurement": unit}}
        for n in range(2)
    ]
    assert watts(answer_in_turn(meter, *bodies, step_s=10)) == pytest.approx([expected_w])


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"state": "unavailable"}, "no-data"),
        ({"state": "unknown"}, "no-data"),
        ({"state": True}, "no-data"),
        ({"state": "1e999"}, "no-data"),
        ({"state": 65535}, "no-data"),
        ({"last_updated": None}, "no-data"),
        ({"attributes": {"unit_of_measurement": "kWh"}}, "configuration"),
    ],
)
def test_a_state_that_is_no_power_is_a_fault(changes: dict[str, Any], kind: str) -> None:
    meter = a_meter(HttpMeter, **HOME_ASSISTANT)
    good = {"state": "5", "last_updated": 1, "attributes": {"unit_of_measurement": "W"}}
    (_, output) = answer_in_turn(meter, good, {**good, "last_updated": 2, **changes})
    assert kinds(output) == [kind]
    assert not len(output.rows)


def test_an_invalid_reading_is_no_data() -> None:
    meter = a_meter(HttpMeter, profile="shelly-gen1", counter=False)
    good = {"meters": [{"power": 5.0, "is_valid": True}]}
    outputs = answer_in_turn(meter, good, {"meters": [{"power": 5.0, "is_valid": False}]}, good)
    assert [kinds(output) for output in outputs] == [[], ["no-data"], ["gap"]]


def test_an_exceeded_range_is_no_reading() -> None:
    instrument = ScpiSimulator()
    instrument.over = True
    meter = a_meter(ScpiMeter, **instrument.settings)
    assert meter.request(0) == b"*CLS\n:OUTP ON\n:MEAS?\n"
    output = meter.feed(instrument.receive(meter.request(0)), 0)
    assert kinds(output) == ["over-range"]
    assert meter.stop_command() == b":OUTP OFF\n"


def test_the_reading_after_an_exceeded_range_is_flagged() -> None:
    """9.9E37 is beyond the range, 9.91E37 no number at all (SCPI-1999, 7.2.1.4 and 7.2.1.5)."""
    bodies = (b"5", b"5", b"9.9E37", b"5", b"5")
    over = answer_in_turn(a_meter(ScpiMeter, **SCPI), *bodies, label="ok")
    words = [flag_words(ScpiMeter, output) for output in over]
    assert words == [[], [""], [], ["gap over-range"], [""]]
    none = answer_in_turn(a_meter(ScpiMeter, **SCPI), *(b"5", b"5", b"9.91E37", b"5"), label="ok")
    assert kinds(none[2]) == ["no-data"]
    assert flag_words(ScpiMeter, none[3]) == ["gap"]


@pytest.mark.parametrize(("range_w", "most_w"), [(2500, 2500), (None, 4000)])
def test_a_power_at_the_end_of_the_range_is_flagged(range_w: float | None, most_w: float) -> None:
    """By default that is what a socket can carry: mW taken for W are beyond."""
    meter = a_meter(ScpiMeter, **SCPI, range_w=range_w)
    powers_w = 5, most_w - 0.1, most_w, -most_w - 100, 5
    outputs = answer_in_turn(meter, *(b"%.1f\n" % power_w for power_w in powers_w))
    words = [flag_words(ScpiMeter, output) for output in outputs[1:]]
    assert words == [[""], ["over-range"], ["over-range"], [""]]


# What a device says of itself

PLUG = {"id": 0, "output": True, "apower": 61.3, "aenergy": {"total": 1.5}}
PHASES = {"a_act_power": 1500.0, "b_act_power": 5.0, "total_act_power": 1505.0}
OUT = ["out_of_range:act_power"]
FIRST = {"meters": [{"power": 5.0, "is_valid": True}], "relays": [{"ison": True}]}
REMARKS: list[tuple[str, str, dict[str, Any], str]] = [
    ("shelly-switch", "0", PLUG, ""),
    ("shelly-switch", "0", {**PLUG, "errors": []}, ""),
    ("shelly-switch", "0", {**PLUG, "errors": ["overtemp"]}, "device-error"),
    ("shelly-switch", "0", {**PLUG, "errors": OUT}, "over-range"),
    ("shelly-switch", "0", {**PLUG, "output": False}, "off"),
    ("shelly-switch", "0", {**PLUG, "output": False, "apower": 0.0}, ""),
    ("shelly-pm1", "0", {"apower": 61.3, "errors": ["overvoltage"]}, "device-error"),
    ("shelly-em1", "0", {"act_power": 61.3, "errors": OUT}, "over-range"),
    ("shelly-em", "a", {**PHASES, "a_errors": OUT}, "over-range"),
    ("shelly-em", "b", {**PHASES, "a_errors": OUT}, ""),
    ("shelly-em", "total", {**PHASES, "b_errors": OUT}, "over-range"),
    ("shelly-em", "b", {**PHASES, "errors": ["phase_sequence"]}, "device-error"),
    ("shelly-em", "a", {**PHASES, "a_errors": [*OUT, "no_load"]}, "over-range device-error"),
    ("shelly-gen1", "0", FIRST, ""),
    ("shelly-gen1", "0", {**FIRST, "relays": [{"ison": False}]}, "off"),
    ("shelly-gen1", "0", {**FIRST, "overtemperature": True}, "device-error"),
    ("shelly-gen1", "0", {**FIRST, "overtemperature": False}, ""),
    ("generic", "0", {"w": 5, "errors": "sensor fault"}, "device-error age-unknown"),
]


@pytest.mark.parametrize(
    ("config", "faults"), [({}, []), ({"reachable": True}, []), ({"reachable": False}, ["no-data"])]
)
def test_the_last_power_of_a_device_that_is_offline_is_none(
    config: dict[str, bool], faults: list[str]
) -> None:
    meter = a_meter(HttpMeter, **{**GENERIC, "power": "/state/w"})
    document = {"state": {"w": 5.0}, "config": config}
    assert kinds(answer_in_turn(meter, document, document)[1]) == faults


def test_an_answer_that_lost_a_field_is_none() -> None:
    meter = a_meter(ScpiMeter, query=":NUM:VAL?", period_s=1, resolution_w=0.1, fields={"0": 2})
    sound, lost = b"230.1,60.5,1.0", b"60.5,1.0"
    outputs = answer_in_turn(meter, sound, sound, lost, sound, sound, label="ok")
    assert [kinds(output) for output in outputs] == [[], [], ["framing"], ["gap"], []]


def test_an_error_message_is_no_power() -> None:
    meter = a_meter(ScpiMeter, query=":MEAS:POW?", period_s=1, resolution_w=0.1)
    outputs = answer_in_turn(meter, *[b'-113,"Undefined header"'] * 2, label="ok")
    assert [kinds(output) for output in outputs] == [["device-error"]] * 2


@pytest.mark.parametrize(
    ("averaged_s", "word", "limit_s"),
    [(None, "averaging-unknown", 10.5), (10, "", 10.5), (30, "averaged", 30.5)],
)
def test_the_averaging_time_of_a_sensor_is_in_its_flags_and_its_delay(
    averaged_s: float | None, word: str, limit_s: float
) -> None:
    meter = a_meter(HttpMeter, **{**HOME_ASSISTANT, "averaged_s": averaged_s})
    states = [
        {"state": f"{n}", "last_reported": f"{n}", "attributes": {"unit_of_measurement": "W"}}
        for n in range(2)
    ]
    output = answer_in_turn(meter, *states, step_s=10.0)[1]
    assert flag_words(HttpMeter, output) == [word]
    assert meter.arrival_delay_limit_s == limit_s


@pytest.mark.parametrize(
    ("body", "settings", "expected"),
    [
        ({"w": 5, "unit": "W"}, {}, 5.0),
        ({"w": 5, "uom": "kWh"}, {}, "'kWh', which is no power"),
        ({"w": 5, "unit": "mW"}, {}, "'mW', not in 1 W"),
        ({"x": 5, "unit": "kW"}, {"power": "/x", "power_unit_w": 1000}, 5000.0),
        ({"w": 5, "is": "kW"}, {"unit": "/is", "power_unit_w": None}, 5000.0),
        ({"w": 5, "is": "Watts"}, {"unit": "/is"}, 5.0),
        ({"w": 5}, {"unit": "/is"}, "None, which is no power"),
        ({"P": 3, "S": 5}, {"power": "/S"}, "no active power"),
        ({"R": 4, "S": 5, "T": 6}, {"power": "/S"}, 5.0),  # phases
    ],
)
def test_the_unit_beside_a_described_power_decides_or_contradicts(
    body: dict[str, Any], settings: dict[str, Any], expected: float | str
) -> None:
    outputs = answer_in_turn(a_meter(HttpMeter, **{**GENERIC, **settings}), body, body)
    if isinstance(expected, str):
        assert expected in outputs[1].faults[0].detail
        assert not watts(outputs)
    else:
        assert watts(outputs) == [expected]


@pytest.mark.parametrize(("profile", "channel", "body", "words"), REMARKS)
def test_a_devices_remarks_are_flags(
    profile: str, channel: str, body: dict[str, Any], words: str
) -> None:
    settings = GENERIC if profile == "generic" else {"profile": profile}
    output = answer_in_turn(a_meter(HttpMeter, channel, **settings), body, body)[1]
    assert flag_words(HttpMeter, output) == [words]


def test_a_failed_meter_has_no_reading() -> None:
    """0 W with `power_meter_failure` is no reading, and the next one is flagged."""
    meter = a_meter(HttpMeter, profile="shelly-switch", counter=False)
    failed = {**PLUG, "apower": 0.0, "errors": ["power_meter_failure"]}
    outputs = answer_in_turn(meter, PLUG, PLUG, failed, PLUG, PLUG)
    assert kinds(outputs[2]) == ["device-error"]
    assert watts(outputs) == [61.3, 61.3, 61.3]
    words = [flag_words(HttpMeter, output) for output in outputs]
    assert words == [[], [""], [], ["gap device-error"], [""]]


LOGIN = {"WARNING": "Need user=<username>&password=<password>"}


@pytest.mark.parametrize(
    ("body", "kind", "part"),
    [
        (LOGIN, "configuration", "wants a login"),
        ({"Command": "Unknown"}, "no-data", '"Command": "Unknown"'),
    ],
)
def test_an_answer_without_a_power_is_quoted(body: Any, kind: str, part: str) -> None:
    (output,) = answer_in_turn(a_meter(HttpMeter, profile="tasmota"), body)
    assert kinds(output) == [kind]
    assert part in output.faults[0].detail


@pytest.mark.parametrize(
    ("pointer", "expected"),
    [
        ("", {"a/b": [1, {"~": 2}]}),
        ("/a~1b/0", 1),
        ("/a~1b/1/~0", 2),
        ("/a~1b/2", None),
        ("/a~1b/0/0", 1),
        ("/a~1b/0/1", None),
        ("/nothing", None),
    ],
)
def test_pointers_follow_rfc_6901(pointer: str, expected: Any) -> None:
    assert value_at({"a/b": [1, {"~": 2}]}, pointer) == expected


@pytest.mark.parametrize(
    ("driver", "settings", "name"),
    [
        (HttpMeter, {}, "profile"),
        (HttpMeter, {"profile": "tasmota", "path": "/x"}, "path"),
        (HttpMeter, {"profile": "tasmota", "id": -1}, "id"),
        (HttpMeter, {"profile": "tasmota", "period_s": 0}, "period_s"),
        (HttpMeter, {"profile": "tasmota", "period_s": "1"}, "period_s"),
        (HttpMeter, {"profile": "tasmota", "period_s": 1e9}, "period_s"),
        (HttpMeter, {"profile": "tasmota", "answer_limit_s": 0}, "answer_limit_s"),
        (HttpMeter, {"profile": "tasmota", "answer_limit_s": 1e3}, "answer_limit_s"),
        (HttpMeter, {"profile": "tasmota", "range_w": 0}, "range_w"),
        (HttpMeter, {"profile": "tasmota", "relative_limit": 0.01}, "accuracy_source"),
        (HttpMeter, {"profile": "tasmota", "accuracy_source": "x"}, "accuracy_source"),
        (HttpMeter, {**GENERIC, "power": "w"}, "power"),
        (HttpMeter, {**GENERIC, "power": {}}, "power"),
        (HttpMeter, {**GENERIC, "path": "/a b\nHost: x"}, "path"),
        (HttpMeter, {"profile": "home-assistant", "period_s": 1, "resolution_w": 1}, "entity"),
        (HttpMeter, {**HOME_ASSISTANT, "entity": "sensor/../x"}, "entity"),
        (HttpMeter, {"profile": "redfish", "entity": "1"}, "a mean of up to a minute"),
        (HttpMeter, {"profile": "prometheus", "entity": "up"}, "a dead exporter"),
        (HttpMeter, {**GENERIC, "path": "/redfish/v1/Chassis/1/Power"}, "redfish"),
        (HttpMeter, {**GENERIC, "path": "/api/v1/query?query=up"}, "prometheus"),
        (HttpMeter, {**GENERIC, "power": "/node_joules_total"}, "states energy"),
        (HttpMeter, {**GENERIC, "power": "/e/kWh"}, "states energy"),
        (HttpMeter, {**GENERIC, "power": "/power_mw"}, "states units of 0.001, not 1"),
        (HttpMeter, {**GENERIC, "power": "/power", "power_unit_w": 1, "unit": "x"}, "unit"),
        (HttpMeter, {**GENERIC, "power": "/apparent_power"}, "states apparent"),
        (HttpMeter, {**GENERIC, "power": "/power_va"}, "states apparent"),
        (HttpMeter, {**GENERIC, "power": "/a_aprt_power"}, "states apparent"),
        (HttpMeter, {**GENERIC, "power": "/ups.load"}, "states share"),
        (HttpMeter, {**GENERIC, "power": "/PowerCapacityWatts"}, "states limit"),
        (HttpMeter, {**GENERIC, "power": "/power_max"}, "states extreme"),
        (HttpMeter, {**GENERIC, "energy": "/total_kwh", "energy_unit_j": 3600}, "3600000, not"),
        (HttpMeter, {**GENERIC, "energy": "/total_wh", "energy_unit_j": 1}, "3600, not"),
        (HttpMeter, {"profile": "tasmota", "valid": "/ok"}, "valid"),
        (HttpMeter, {**GENERIC, "power": {"a": "x"}}, "power.a"),
        (HttpMeter, {"profile": "generic", "period_s": 1, "resolution_w": 1}, "path"),
        (HttpMeter, {**GENERIC, "averaged_s": None}, "averaged_s"),
        (HttpMeter, {**GENERIC, "power_unit_w": None}, "unit (where"),
        (HttpMeter, {**GENERIC, "resolution_w": None}, "as in {profile: generic, path: /data"),
        (HttpMeter, {**GENERIC, "energy": "/e"}, "energy_unit_j"),
        (ScpiMeter, {**SCPI, "energy_fields": {"0": 2}}, "energy_unit_j"),
        (ScpiMeter, {**SCPI, "query": "*RST"}, "query"),
        (ScpiMeter, {"query": "P?", "period_s": 1}, "resolution_w"),
        (ScpiMeter, {**SCPI, "start": "*IDN?"}, "start"),
        (ScpiMeter, {**SCPI, "start": "*CLS\n*IDN? "}, "start"),
        (ScpiMeter, {**SCPI, "fields": {"0": 0}}, "fields.0"),
    ],
)
def test_wrong_settings_are_one_sentence(
    driver: type[Meter], settings: dict[str, Any], name: str
) -> None:
    with pytest.raises(MeterError) as refused:
        a_meter(driver, **settings)
    assert name in str(refused.value)
    assert "\n" not in str(refused.value)


def test_stated_limits_are_in_the_budget() -> None:
    stated: dict[str, Any] = {
        "relative_limit": 0.02,
        "absolute_limit_w": 0.3,
        "accuracy_source": "its leaflet",
    }
    accuracy = a_meter(HttpMeter, **GENERIC, **stated).accuracy
    limits = {term.name: term.limit for term in accuracy.terms}
    assert limits["gain"] == 0.02 and limits["range"] == 0.3 and limits["resolution"] == 0.05
    assert "its leaflet" in accuracy.source


def test_a_reading_that_nothing_dates_is_flagged() -> None:
    bodies = [{"w": 30, "n": n} for n in range(3)]
    undated = answer_in_turn(a_meter(HttpMeter, **{**GENERIC, "stamp": None}), *bodies)
    assert flag_words(HttpMeter, undated[2]) == ["age-unknown"]
    dated = answer_in_turn(a_meter(HttpMeter, **GENERIC, stamp="/n"), *bodies, bodies[-1])
    assert [flag_words(HttpMeter, output) for output in dated] == [[], [""], [""], []]


# What stands around a figure


@pytest.mark.parametrize(
    ("body", "power", "kind"),
    [
        ({"flow": {"unit": "kW", "grid": {"p": 1.2}}}, "/flow/grid/p", "configuration"),
        ({"flow": {"unit": "metric", "grid": {"p": 1.2}}}, "/flow/grid/p", ""),
        ({"value": 1.23, "state": "1.23 kW"}, "/value", "configuration"),
        ({"value": 1.23, "state": "1.23 W", "peak": "2.5 kW"}, "/value", ""),
        ({"w": 2, "attributes": {"unit_of_measurement": "kW"}}, "/w", "configuration"),
        ({"w": 2, "w_unit": "mW", "temperature_unit": "C"}, "/w", "configuration"),
        ({"w": 2, "temperature_unit": "C"}, "/w", ""),
        ({"v": 2, "u": "kW", "d": 3}, "/v", "configuration"),
        ({"p": 2, "dimension": "kVA"}, "/p", "configuration"),
        ({"p": 2, "e": 5, "e_dimension": "kWh"}, "/p", ""),
        ({"p": 2, "phase": "A", "type": "power"}, "/p", ""),
    ],
)
def test_a_document_that_contradicts_the_settings_gives_no_reading(
    body: dict[str, Any], power: str, kind: str
) -> None:
    outputs = answer_in_turn(a_meter(HttpMeter, **{**GENERIC, "power": power}), body, body)
    assert kinds(outputs[1]) == [kind] * bool(kind)
    assert bool(watts(outputs)) is not bool(kind)


def test_a_reading_that_the_meter_calls_not_valid_is_no_data() -> None:
    meter = a_meter(HttpMeter, **GENERIC, valid="/online")
    (first, lost) = answer_in_turn(meter, {"w": 12, "online": True}, {"w": 12, "online": False})
    assert [kinds(first), kinds(lost)] == [[], ["no-data"]]


def test_a_counter_that_falls_again_and_again_is_none() -> None:
    meter = a_meter(HttpMeter, **GENERIC, energy="/Ws", energy_unit_j=1)
    bodies = [{"w": 12, "Ws": joules} for joules in (10, 12, 11, 13, 12, 14)]
    energies_j = counted(answer_in_turn(meter, *bodies))
    assert energies_j == pytest.approx([12, np.nan, 25, np.nan, np.nan], nan_ok=True)


def test_a_relay_that_is_off_flags_its_power() -> None:
    body = {"w": 12, "relay": False}
    (_, output) = answer_in_turn(a_meter(HttpMeter, **GENERIC), body, body)
    assert flag_words(HttpMeter, output) == ["off age-unknown"]


@pytest.mark.parametrize(
    "power",
    [
        "/watt_seconds",
        "/session_energy",
        "/aenergy/total",
        "/maxReportWatts",
        "/demand",
        "/w_today",
    ],
)
def test_a_name_that_states_no_power_of_a_moment_is_refused(power: str) -> None:
    with pytest.raises(MeterError):
        HttpMeter({"0": "system"}, {**GENERIC, "power": power})


@pytest.mark.parametrize("power", ["/energy_meter/power", "/instantaneous_demand", "/total_power"])
def test_a_name_of_a_power_is_accepted(power: str) -> None:
    assert HttpMeter({"0": "system"}, {**GENERIC, "power": power}).period_s == 1


@pytest.mark.parametrize(
    ("query", "field", "body"),
    [
        (":NUM:NORM:VAL? 3", 1, b"61.3E+00\n"),
        (":MEAS:VOLT?;CURR?;POW?", 3, b"230.1;0.27;61.3\n"),
        (":MEAS:ALL?", 2, b"230.1,61.3\n"),
    ],
)
def test_a_query_may_have_a_parameter_and_several_answers(
    query: str, field: int, body: bytes
) -> None:
    meter = a_meter(ScpiMeter, **{**SCPI, "query": query, "fields": {"0": field}})
    assert watts(answer_in_turn(meter, body, body)) == [61.3]


def test_the_power_must_be_named_among_several_numbers() -> None:
    meter = a_meter(ScpiMeter, **SCPI)
    body = b"230.1,0.27,61.3\n"
    assert kinds(answer_in_turn(meter, body, label="ok")[0]) == ["configuration"]


@pytest.mark.parametrize("query", [":MEAS:POW:APP?", "MEAS:VA?", ":CHAN1:MEAS:DATA? URMS?"])
def test_a_query_of_something_else_than_power_is_refused(query: str) -> None:
    with pytest.raises(MeterError):
        ScpiMeter({"0": "system"}, {**SCPI, "query": query})
    several = {**SCPI, "query": f"{query[:-1]};:MEAS:POW?"}
    assert ScpiMeter({"0": "system"}, several).period_s == 1
