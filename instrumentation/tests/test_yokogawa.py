"""Test Yokogawa's meters: setup, queries, ranges and faults."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from instrumentation.meters import registry
from instrumentation.meters.base import MeterError
from instrumentation.meters.yokogawa import Yokogawa, number
from instrumentation.tests.meter_helpers import kinds, on_the_nth, talk
from instrumentation.tests.simulators import registry as simulators
from instrumentation.tests.simulators.wt310 import WT310Simulator
from instrumentation.tests.simulators.yokogawa import YokogawaSimulator

WATTS = [40.0, 41.5, 43.2, 320.0, 119.5, 60.0, 61.0, 62.0, 63.0, 64.0]
FIXED: dict[str, Any] = {"voltage_range_v": 300.0, "current_range_a": 5.0}
# The WT210's driver is another package's.
SIMULATORS: dict[str, type[Any]] = {
    kind: simulators.load(kind)
    for kind in registry.kinds()
    if issubclass(registry.load(kind), Yokogawa)
}
every_kind = pytest.mark.parametrize("kind", SIMULATORS)


def driver(kind: str, **settings: Any) -> Yokogawa:
    if kind == "wt310":
        settings.setdefault("model", "WT310E")
    meter = registry.load(kind)({"1": "system"}, settings)
    assert isinstance(meter, Yokogawa)
    return meter


def set_up(meter: Yokogawa, simulator: YokogawaSimulator) -> list[str]:
    """Ask until the meter waits for its data; return the requests."""
    meter.opened()
    sent: list[str] = []
    while len(sent) < 100 and (not sent or ":COMM:WAIT" not in sent[-1]):
        request = meter.request(0)
        sent.append(request.decode().strip())
        meter.on_request_sent(request, 0)
        if answer := simulator.receive(request):
            assert not meter.feed(answer, 0).faults
    return sent


@every_kind
def test_each_command_is_followed_by_an_error_query(kind: str) -> None:
    sent = set_up(driver(kind, **FIXED), SIMULATORS[kind]())
    setting = sent[: sent.index("*IDN?")]
    assert setting[0] == "*CLS"
    assert set(setting[1::2]) == {":STAT:ERR?"}
    assert not any(command.endswith("?") for command in setting[::2])
    assert sent[-3:] == ["*IDN?", ":STAT:EESR?", ":COMM:WAIT 1"]


@every_kind
def test_ranges_and_rate_are_set_at_the_meter(kind: str) -> None:
    simulator = SIMULATORS[kind](voltage_range_v=None, current_range_a=None, rate_s=1.0)
    set_up(driver(kind, rate_s=0.5, voltage_range_v=300, current_range_a=0.5), simulator)
    assert simulator.rate_s == 0.5
    assert (simulator.volts.full_scale, simulator.volts.auto) == (300.0, False)
    assert (simulator.amperes.full_scale, simulator.amperes.auto) == (0.5, False)
    simulator.advance(np.array([[1.0]]))  # it was still waiting
    set_up(driver(kind), simulator)
    assert simulator.volts.auto
    assert simulator.amperes.auto


@every_kind
def test_slowest_rate_is_waited_for(kind: str) -> None:
    simulator = SIMULATORS[kind](rate_s=5.0)
    output, _ = talk(lambda: driver(kind, rate_s=5.0, **FIXED), simulator, WATTS)
    assert not output.faults
    assert output.samples.height == len(WATTS) - 1


@every_kind
def test_a_meter_that_waits_by_an_earlier_command_gets_time(kind: str) -> None:
    meter = driver(kind, rate_s=5.0)
    meter.opened()
    for _ in range(2):
        meter.on_request_sent(meter.request(0), 0)
    assert meter.request(5 * 10**9) == b""
    assert meter.request(8 * 10**9) != b""


@every_kind
def test_lines_may_end_as_over_usb(kind: str) -> None:
    plain, _ = talk(lambda: driver(kind, **FIXED), SIMULATORS[kind](), WATTS)
    usb, frames = talk(lambda: driver(kind, **FIXED), SIMULATORS[kind](line_end=b"\n"), WATTS)
    assert not usb.faults
    assert usb.samples.equals(plain.samples)
    assert not any(b"\r" in frame.data for frame in frames if not frame.sent)


@every_kind
def test_range_that_the_meter_chooses_is_flagged(kind: str) -> None:
    simulator = SIMULATORS[kind](voltage_range_v=None, current_range_a=None)
    output, _ = talk(lambda: driver(kind), simulator, WATTS)
    flags = output.samples["flags"].to_list()
    assert all("auto-range" in each for each in flags)
    assert any("range-changed" in each for each in flags)
    assert "range-changed" not in flags[-1]


@every_kind
def test_meter_that_leaves_its_fixed_range_is_noticed(kind: str) -> None:
    simulator = SIMULATORS[kind](**FIXED)
    before = simulator._update

    def protective(mean_w: float) -> None:  # it leaves small ranges to save its input
        before(mean_w)
        if simulator.power_w > 300:
            simulator.amperes.full_scale = 10.0

    simulator._update = protective
    output, _ = talk(lambda: driver(kind, **FIXED), simulator, WATTS)
    assert set(kinds(output)) == {"range"}
    assert ["range-changed" in flags for flags in output.samples["flags"]] == [False] * 3 + [
        True
    ] * 6


@every_kind
def test_input_beyond_the_range_gives_no_reading_and_a_gap(kind: str) -> None:
    ranges: dict[str, Any] = {"voltage_range_v": 300.0, "current_range_a": 0.5}
    output, _ = talk(lambda: driver(kind, **ranges), SIMULATORS[kind](**ranges), WATTS)
    assert kinds(output) == ["over-range", "gap"]
    assert output.samples.height == len(WATTS) - 2
    assert output.samples.filter(output.samples["flags"] == "gap over-range").height == 1


@every_kind
def test_peak_beyond_the_range_is_flagged(kind: str) -> None:
    """A supply draws short peaks, which are cut off although the rms value fits."""
    ranges: dict[str, Any] = {"voltage_range_v": 300.0, "current_range_a": 0.5}
    watts = [40.0, 41.0, 90.0, 91.0, 42.0, 43.0]
    simulator = SIMULATORS[kind](**ranges, crest=4.0)
    output, _ = talk(lambda: driver(kind, **ranges), simulator, watts)
    assert output.samples["flags"].to_list() == ["", "over-range", "over-range", "", ""]
    assert kinds(output) == ["over-range"]


@every_kind
def test_meter_without_data_gives_no_record(kind: str) -> None:
    def nothing(piece: bytes) -> bytes:
        numbers = piece.split(b";")
        names = {b"wt310": (0, 5), b"wt210": (2,)}[kind.encode()]
        for part in range(2 if kind == "wt210" else 1):
            values = numbers[part].split(b",")
            for name in names:
                values[name] = b"NAN"
            numbers[part] = b",".join(values)
        return b";".join(numbers)

    clean, frames = talk(lambda: driver(kind, **FIXED), SIMULATORS[kind](), WATTS)
    answers = [frame.data for frame in frames if frame.data and not frame.sent]
    nth = next(n for n, data in enumerate(answers[-4:], len(answers) - 4) if b";" in data)
    wire = on_the_nth(nth, nothing)
    output, _ = talk(lambda: driver(kind, **FIXED), SIMULATORS[kind](), WATTS, wire)
    assert "no-data" in kinds(output)
    assert output.samples.height == clean.samples.height - 1


@every_kind
def test_refused_command_is_named(kind: str) -> None:
    older = SIMULATORS[kind]()
    unit_of = older._unit
    older._unit = lambda header, value: None if header.endswith("CFAC") else unit_of(header, value)
    output, _ = talk(lambda: driver(kind, **FIXED), older, WATTS)
    (fault,) = output.faults
    assert fault.kind == "refused"
    assert "CFAC 3: the meter reports Undefined Header (113)" in fault.detail
    assert output.samples.height == len(WATTS) - 1


def test_another_model_is_a_fault() -> None:
    output, _ = talk(lambda: driver("wt310", **FIXED), WT310Simulator(model="WT310"), WATTS)
    assert kinds(output) == ["identity"]


@every_kind
def test_accuracy_is_that_of_the_ranges(kind: str) -> None:
    fixed = driver(kind, **FIXED).accuracy
    part = 0.0005 if kind == "wt310" else 0.001
    assert fixed.relative_limit == 0.001
    assert fixed.absolute_limit_w == pytest.approx(part * 300 * 5)
    automatic = driver(kind, voltage_range_v=300).accuracy
    assert automatic.absolute_limit_w == pytest.approx(part * 300 * 20)
    assert "its largest" in automatic.source


def test_older_model_errs_twice_as_much_of_the_range() -> None:
    old, new = driver("wt310", model="WT310", **FIXED), driver("wt310", **FIXED)
    assert old.accuracy.absolute_limit_w == 2 * new.accuracy.absolute_limit_w


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate_s": 0.3},
        {"voltage_range_v": 100},
        {"current_range_a": 40},
        {"model": "WT500"},
        {"model": "WT310EH", "current_range_a": 0.5},
        {"rate_s": "fast"},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(MeterError):
        driver("wt310", **wrong)


@every_kind
def test_a_held_meter_is_set_up_again(kind: str) -> None:
    """HOLD was pressed during a run: the meter no longer updates."""
    meter, simulator = driver(kind, **FIXED), SIMULATORS[kind]()
    set_up(meter, simulator)
    simulator.hold = True
    messages = []
    for second in range(1, 8):
        request = meter.request(second * 10**9)
        messages.append(request)
        meter.on_request_sent(request, second * 10**9)
    assert b"\n*CLS\r\n" in messages


@pytest.mark.parametrize("text", ["INF", "9.9E37", "9.91E+37", "-9.9E+37"])
def test_values_beyond_the_range_are_infinite(text: str) -> None:
    assert math.isinf(number(text))
