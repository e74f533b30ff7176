"""Test that a power which contradicts the voltage and current next to it is flagged."""

from __future__ import annotations

import json
import math

import pytest

from contract.strict_json import Document
from instrumentation.meters.answers import envelope
from instrumentation.meters.http import HttpMeter
from instrumentation.meters.line import LineMeter
from instrumentation.meters.rows import DOUBTFUL, Product
from instrumentation.tests.meter_helpers import flag_words

SECOND_NS = 10**9
LINE = r"(?P<voltage_v>\S+) V (?P<current_ma>\S+) mA (?P<power_mw>\S+) mW"
LIMITS: Document = {"relative_limit": 0.01, "absolute_limit_w": 0.0, "accuracy_source": "x"}
GENERIC: Document = {
    "profile": "generic",
    "path": "/x",
    "period_s": 1,
    "averaged_s": 1,
    "power_unit_w": 1,
    "resolution_w": 0.1,
}


@pytest.mark.parametrize(
    ("power_w", "current_a", "is_exceeded"),
    [
        (187.0, 0.813, False),
        (-187.0, 0.813, False),
        (187.0, 0.0813, True),  # a digit of the current is lost
        (1870.0, 0.813, True),
        (2.0, 0.0, False),  # a small current may be shown as none
        (187.0, math.inf, False),
    ],
)
def test_a_power_exceeds_the_product_or_not(
    power_w: float, current_a: float, is_exceeded: bool
) -> None:
    assert Product(230.0, current_a, 3.0).is_exceeded(power_w, 0.02) is is_exceeded


@pytest.mark.parametrize(
    ("beside", "is_flagged"),
    [
        ({"voltage": 227.2, "current": 9.15}, True),
        ({"U": 227.2, "I": 9.15}, True),
        ({"u1": 227.2, "i1": 9.15}, True),
        ({"u1": 227.2, "i1": 9.15, "u2": 226.9, "i2": 5.2}, False),
        ({"active_voltage_v": 227.2, "active_current_a": 9.15}, True),
        ({"voltage_mv": 227200, "current_ma": 9150}, True),
        ({"voltage_mv": 227200, "current_ma": 19150}, False),
        ({"voltage": 227.2, "current_power": 9.15}, False),  # the power of now
        ({"a_voltage": 227.2, "a_current": 9.15}, False),  # of one of three phases
    ],
)
def test_voltage_and_current_are_found_by_their_names(
    beside: dict[str, float], is_flagged: bool
) -> None:
    meter = HttpMeter({"0": "system"}, {**GENERIC, "power": "/P"})
    meter.opened()
    for t_ns in (0, SECOND_NS):
        meter.on_request_sent(meter.request(t_ns), t_ns)
        body = json.dumps({"P": 3200.5, **beside}).encode()
        output = meter.feed(envelope("200 OK", body), t_ns)
    assert ("doubtful" in flag_words(HttpMeter, output)[0]) == is_flagged


@pytest.mark.parametrize(
    ("line", "is_flagged"),
    [
        ("8.843 V 35.736 mA 253 mW", True),  # 80 % of the product of a direct current
        ("8.843 V 35.736 mA 316 mW", False),
        ("8.843 V 35.736 mA 395 mW", True),
        ("12.1 V 1500 mA 18.15 mW", True),  # W, called mW
        ("3.3 V 0.9 mA 2 mW", False),  # within the last digits
        ("230.1 V 500 mA 81000 mW", False),  # a power factor of 0.7
        ("230.1 V 500 mA 125000 mW", True),
        ("0.00 V 0.0 mA 0 mW", False),
    ],
)
def test_a_line_whose_power_contradicts_its_product_is_flagged(line: str, is_flagged: bool) -> None:
    meter = LineMeter({"0": "system"}, {"pattern": LINE, "period_s": 1.0, **LIMITS})
    meter.opened()
    meter.feed(b"\n", 0)
    result = meter.feed(line.encode() + b"\n", SECOND_NS)
    assert [bool(flags & DOUBTFUL) for flags in result.rows.flags] == [is_flagged]


@pytest.mark.parametrize(
    ("settings", "answer", "words"),
    [
        (
            {"profile": "shelly-switch"},
            {"apower": 3200.0, "voltage": 227.2, "current": 9.15},
            "doubtful",
        ),
        ({"profile": "shelly-switch"}, {"apower": 1.2, "voltage": 230.1, "current": 0.0}, ""),
        ({"profile": "shelly-switch"}, {"apower": 40.0, "voltage": 230.1, "current": 0.31}, ""),
        ({"profile": "shelly-switch"}, {"apower": 40.0, "voltage": 230.1}, ""),
        (
            {"profile": "tasmota"},
            {"StatusSNS": {"ENERGY": {"Power": 600, "Voltage": 230, "Current": 0.9}}},
            "doubtful",
        ),
        (
            {**GENERIC, "power": "/sensor/power"},
            {"sensor": {"power": 3200, "voltage": 227.2, "current": 9.15}},
            "doubtful",
        ),
        (  # the current is in mA
            {**GENERIC, "power": "/sensor/power"},
            {"sensor": {"power": 18.1, "voltage": 12.1, "current": 1500}},
            "",
        ),
        (  # tenths of a watt and of a volt, mA
            {**GENERIC, "power": "/power"},
            {"power": 600, "cur_voltage": 2301, "cur_current": 267},
            "doubtful",
        ),
        (
            {**GENERIC, "power": "/power"},
            {"power": 60, "cur_voltage": 2301, "cur_current": 267},
            "",
        ),
        (  # 7,000 W in 16 bits of tenths
            {**GENERIC, "power": "/power"},
            {"power": 446.4, "voltage": 230.1, "current": 31.1},
            "doubtful",
        ),
        ({**GENERIC, "power": "/power"}, {"power": 990, "voltage": 400, "current": 2.6}, ""),
        ({**GENERIC, "power": "/power"}, {"power": 0.4, "voltage": 230.1, "current": 0.1}, ""),
        (
            {**GENERIC, "power": "/power"},
            {"power": 9.7, "voltage": 12.12, "current": 1.002},
            "doubtful",
        ),
    ],
)
def test_an_answer_whose_power_contradicts_its_product_is_flagged(
    settings: Document, answer: Document, words: str
) -> None:
    meter = HttpMeter({"0": "system"}, settings)
    meter.opened()
    for second in range(2):
        request = meter.request(second * SECOND_NS)
        meter.on_request_sent(request, second * SECOND_NS)
        body = envelope("200 OK", json.dumps(answer).encode())
        result = meter.feed(body, second * SECOND_NS + 1)
    undated = " age-unknown" * (settings["profile"] == "generic")
    assert flag_words(HttpMeter, result) == [f"{words}{undated}".strip()]


@pytest.mark.parametrize(("current_a", "records"), [(0.983, 0), (0.1, 1)])
def test_no_watts_next_to_a_current_are_no_reading(current_a: float, records: int) -> None:
    meter = LineMeter({"0": "system"}, {"pattern": LINE, "period_s": 1.0, **LIMITS})
    meter.opened()
    meter.feed(b"\n", 0)
    result = meter.feed(f"230.0 V {1000 * current_a:.0f} mA 0 mW\n".encode(), SECOND_NS)
    assert len(result.rows) == records
    assert [fault.kind for fault in result.faults] == ["no-data"] * (1 - records)
