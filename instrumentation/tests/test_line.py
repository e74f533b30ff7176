"""Test the line meter: patterns and lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.tests.refusal import refuses
from instrumentation.meters.base import MeterError
from instrumentation.meters.line import LineMeter
from instrumentation.meters.line_pattern import layout
from instrumentation.meters.rows import GAP, NO_TIME, OVER_RANGE, RESTART, Rows, join_results
from instrumentation.tests.meter_helpers import feed_pieces, kinds, opened
from instrumentation.trace import Fault

GIVEN: dict[str, Any] = {
    "period_s": 0.1,
    "relative_limit": 0.005,
    "absolute_limit_w": 0.01,
    "accuracy_source": "data sheet of the INA226, table 7.5",
}
TENTH_NS = 100_000_000


def a_meter(pattern: str, channels: dict[str, str] | None = None, **settings: Any) -> LineMeter:
    return opened(LineMeter(channels or {"0": "system"}, {**GIVEN, "pattern": pattern, **settings}))


def fed(meter: LineMeter, lines: Sequence[bytes]) -> tuple[Rows, Sequence[Fault]]:
    """Feed lines, a tenth of a second apart, after the end of one that is cut."""
    meter.feed(b"rest\n", 0)
    output = feed_pieces(meter, [line + b"\r\n" for line in lines], TENTH_NS, TENTH_NS)
    return output.rows, output.faults


@pytest.mark.parametrize(
    ("pattern", "line", "watts"),
    [
        (r"(?P<power_w>-?\d+\.\d+) W", b"-1.25 W", -1.25),
        (r"P: *(?P<power_mw>[\d.]+)mW", b"P:  1250.5mW", 1.2505),
        (r"(?P<voltage_v>\d+\.\d+),(?P<current_ma>\d+)", b"12.10,250", 3.025),
        (r"(?P<voltage_mv>\d+) (?P<current_a>\S+)", b"5000 2.5e-1", 1.25),
        (r"(?P<voltage_v>\d+),(?P<current_a>\d+),(?P<power_w>\d+)", b"5,2,9", 9.0),
    ],
)
def test_units_are_those_of_the_groups(pattern: str, line: bytes, watts: float) -> None:
    rows, faults = fed(a_meter(pattern), [line, line])
    assert not faults
    assert rows.power_w[:, 0].tolist() == pytest.approx([watts] * 2)
    assert rows.window_s.tolist() == [0.1, 0.1]
    assert rows.t_device_us.tolist() == [NO_TIME] * 2
    assert rows.energy_j is None


@pytest.mark.parametrize(
    ("pattern", "line", "watts"),
    [
        (r"Power: (?P<power_w>\d+)[., ].*", b"Power: 12,5 W", []),
        (r"Power: (?P<power_w>\d+)[., ].*", b"Power: 12.5 W", []),
        (r"Power: (?P<power_w>\d+)[., ].*", b"Power: 12 W", [12.0]),
        (r"(?P<power_w>\d+),.*", b"12,34,x", [12.0]),  # values that commas separate
        (r"(?P<power_w>[0-9.]+)\s*,.*", b"12.5,34", [12.5]),
        (r"(?P<power_w>\d+)\.\d+ W", b"12.5 W", [12.0]),  # as it was told to
        (r"(?P<power_w>[0-9.,]+) W", b"12,5 W", []),
        (r"(?P<power_w>[0-9.]+) k?W", b"1.25 kW", []),  # a meter that changes its range
        (r"(?P<power_w>[0-9.]+) \S+", b"950 mW", []),
        (r"(?P<power_w>[0-9.]+) \S+", b"950 W", [950.0]),
        (r"(?P<voltage_v>\d+) (?P<current_a>\S+)", b"230 0.41", []),  # of mains: VA
        (r"(?P<voltage_v>\d+) (?P<current_a>\S+)", b"48 0.5", [24.0]),
    ],
)
def test_a_number_cut_off_by_its_group_is_a_fault(
    pattern: str, line: bytes, watts: list[float]
) -> None:
    rows, faults = fed(a_meter(pattern), [line])
    assert rows.power_w[:, 0].tolist() == watts
    assert kinds(faults) == ["framing"] * (not watts)


@pytest.mark.parametrize("before", [r".* ", r"P=\s*", r"\d{4}", r"(?:a|b)*", r"[^,]*,", r"x?"])
def test_what_takes_no_part_of_a_number_may_be_before_it(before: str) -> None:
    assert layout(rf"{before}(?P<power_w>\d+) W").channels


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        (b"1.25 kW", "power_w is in kW in this line: b'1.25 kW'"),
        (b"1.2,5 W", "power_w is no whole number in this line: b'1.2,5 W'"),
        (b"x", "a line that the pattern does not fit: b'x'"),
    ],
)
def test_a_fault_states_why_a_line_is_not_read(line: bytes, detail: str) -> None:
    _, faults = fed(a_meter(r"(?P<power_w>[0-9.]+).*"), [line])
    assert [fault.detail for fault in faults] == [detail]


def test_a_power_at_the_end_of_the_declared_range_is_flagged() -> None:
    lines = [b"39.9 W", b"40 W", b"-41 W", b"1 W"]
    rows, faults = fed(a_meter(r"(?P<power_w>\S+) W", range_w=40), lines)
    assert not faults
    assert rows.flags.tolist() == [0, OVER_RANGE, OVER_RANGE, 0]
    with refuses("invalid-settings"):
        a_meter(r"(?P<power_w>\S+) W", range_w=0)


def test_channels_are_those_of_the_groups() -> None:
    pattern = (
        r"(?P<power_mw_cpu>\d+) (?P<voltage_v_2>\d+) (?P<current_ma_2>\d+) (?P<energy_wh_2>\S+)"
    )
    meter = a_meter(pattern, {"2": "drive", "cpu": "processor"})
    assert meter.available_channels() == ("cpu", "2")
    rows, faults = fed(meter, [b"700 5 300 0.25"])
    assert not faults
    assert rows.power_w[0].tolist() == pytest.approx([1.5, 0.7])
    assert rows.energy_j is not None
    assert rows.energy_j[0, 0] == 900
    assert math.isnan(rows.energy_j[0, 1])
    with refuses("unknown-channel", channel="0", known="cpu, 2"):
        a_meter(pattern, {"0": "system"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pattern": ""}, "no power"),
        ({"pattern": 7}, "pattern"),
        ({"pattern": r"(?P<power_w>\d+"}, "not a valid regular expression"),
        ({"pattern": r"(?P<power_w>\d)\1"}, "not a valid regular expression"),
        ({"pattern": r"\d+"}, "has no power"),
        ({"pattern": r"(?P<watts>\d+)"}, "group watts"),
        ({"pattern": r"(?P<power_gw>\d+)"}, "group power_gw"),
        ({"pattern": r"(?P<t_ms_0>\d) (?P<power_w>\d)"}, "group t_ms_0"),
        ({"pattern": r"(?P<voltage_v>\d+)"}, "no power for channel 0"),
        ({"pattern": r".*?(?P<power_w>\d+)"}, ".* before power_w may take"),
        ({"pattern": r"P=-?(?P<power_w>\d+) W"}, "-? before power_w may take"),
        ({"pattern": r"[^ ]{1,9}(?P<power_w>\d+) W"}, "[^ ]{1,9} before power_w may take"),
        ({"pattern": r"(?P<power_w_a>\d) (?P<current_a_b>\d)"}, "no power for channel b"),
        ({"pattern": r"(?P<power_w>\d) (?P<power_mw>\d)"}, "power of channel 0 twice"),
        ({"pattern": r"(?P<power_w>\d) (?P<power_w_0>\d)"}, "power of channel 0 twice"),
        ({"pattern": r"(?P<t_ms>\d) (?P<t_us>\d) (?P<power_w>\d)"}, "two times"),
        ({"pattern": r"(?P<power_w>\d+) mW"}, "shows mW behind the group power_w"),
        ({"pattern": r"(?P<power_mw>\d+)\s*W"}, "shows W behind"),
        ({"pattern": r"(?P<power_w>\d+)VA"}, "shows VA behind"),
        ({"pattern": r"(?P<power_w>\d+) W (?P<energy_wh>\d+) kWh"}, "shows kWh behind"),
        ({"pattern": "(?P<power_w>1)" + "a" * 1000}, "longer than"),
        ({"period_s": 0}, "period_s"),
        ({"period_s": "1"}, "period_s"),
        ({"period_s": math.nan}, "period_s"),
        ({"relative_limit": None}, "relative_limit"),
        ({"absolute_limit_w": -1}, "absolute_limit_w"),
        ({"relative_limit": 0, "absolute_limit_w": 0}, "absolute_limit_w"),
        ({"accuracy_source": " "}, "accuracy_source"),
        ({"max_line_bytes": 5000}, "max_line_bytes"),
        ({"arrival_delay_limit_s": 0}, "arrival_delay_limit_s"),
        ({"start": 1}, "start"),
    ],
)
def test_wrong_descriptions_are_refused(settings: dict[str, Any], message: str) -> None:
    with refuses("invalid-settings", kind="line") as refused:
        a_meter(**{"pattern": r"(?P<power_w>\d+)", **settings})
    assert message in str(refused.value)


def test_a_separator_is_found_after_groups_of_every_form() -> None:
    forms = (
        r"(?P<power_w>\d+)(?:\.(\d+))?",
        r"(?P<power_w>(?:\d)+)(?:\.)",
        r"(?P<power_w>[)(]*)\.",
    )
    for form in forms:
        assert layout(form).channels["0"]["power"].separators == "."


def test_settings_appear_in_the_description_and_requests() -> None:
    meter = a_meter(r"(?P<t_us>\d+) (?P<power_w>\d+)", start="go\n", stop="end\n", period_s=1)
    assert meter.timing == meter.description()["timing"] == "device"
    assert meter.arrival_delay_limit_s == 1.0
    assert meter.accuracy.source == GIVEN["accuracy_source"]
    assert meter.description()["settings"]["start"] == "go\n"
    assert (meter.due_ns, meter.request(5)) == (0, b"go\n")
    meter.on_request_sent(b"go\n", 5)
    assert meter.request(2_999_999_999) == b""
    assert meter.request(3_000_000_005) == b"go\n"
    assert meter.stop_command() == b"end\n"
    plain = a_meter(r"(?P<power_w>\d+)", arrival_delay_limit_s=0.02)
    assert (plain.timing, plain.due_ns, plain.request(5)) == ("index", None, b"")
    assert plain.arrival_delay_limit_s == 0.02


@pytest.mark.parametrize(("group", "per_s"), [("t_ms", 1_000), ("t_us", 1_000_000)])
def test_the_meters_time_is_unwrapped(group: str, per_s: int) -> None:
    tenth = per_s // 10
    first = (1 << 32) - 2 * tenth
    times = [(first + n * tenth) % (1 << 32) for n in range(6)]
    meter = a_meter(rf"(?P<{group}>\d+) (?P<power_w>\d+)")
    rows, faults = fed(meter, [b"%d 5" % t for t in times])
    assert not faults
    assert np.diff(rows.t_device_us).tolist() == [100_000] * 4
    assert rows.t_device_us[0] == (first + tenth) * 1_000_000 // per_s
    assert rows.window_s.tolist() == [0.1] * 5


def test_the_window_is_the_step_of_the_meters_time() -> None:
    meter = a_meter(r"(?P<t_ms>\d+) (?P<power_w>\d+)")
    rows, faults = fed(meter, [b"%d 5" % t for t in (0, 100, 214, 300, 600, 700)])
    assert rows.window_s.tolist() == [0.1, 0.114, 0.086, 0.1, 0.1]
    assert rows.flags.tolist() == [0, 0, 0, GAP, 0]
    assert kinds(faults) == ["gap"]


def test_restart_needs_a_second_line() -> None:
    meter = a_meter(r"(?P<t_ms>\d+) (?P<power_w>\d+) (?P<energy_j>\d+)")
    lines = [b"9000 5 70", b"9100 5 71", b"10 5 0", b"110 5 1", b"210 5 2"]
    rows, faults = fed(meter, lines)
    assert kinds(faults) == ["inconsistent", "restart"]
    assert rows.flags.tolist() == [0, GAP | RESTART, 0]
    assert rows.t_device_us.tolist() == [9_100_000, 110_000, 210_000]
    assert rows.energy_j is not None
    assert rows.energy_j[:, 0].tolist() == [71, 72, 73]


@pytest.mark.parametrize("wrong", [b"9900 5 72", b"920 5 72", b"9200 5 27", b"59200 5 72"])
def test_a_line_that_jumps_is_a_fault(wrong: bytes) -> None:
    meter = a_meter(r"(?P<t_ms>\d+) (?P<power_w>\d+) (?P<energy_j>\d+)")
    good = [b"%d 5 %d" % (9000 + 100 * n, 70 + n) for n in range(8)]
    rows, faults = fed(meter, [*good[:2], wrong, *good[3:]])
    assert "inconsistent" in kinds(faults)
    assert rows.energy_j is not None
    assert rows.energy_j[-1, 0] == 77
    assert rows.t_device_us[-1] == 9_700_000
    assert rows.t_device_us.max() < 10_000_000


def test_two_different_jumps_are_both_faults() -> None:
    meter = a_meter(r"(?P<t_ms>\d+) (?P<power_w>\d+)")
    rows, faults = fed(meter, [b"%d 5" % t for t in (9000, 9100, 7000, 5000, 9400)])
    assert kinds(faults) == ["inconsistent", "inconsistent", "gap"]
    assert rows.t_device_us.tolist() == [9_100_000, 9_400_000]


def test_each_line_has_the_arrival_of_its_first_byte() -> None:
    meter = a_meter(r"(?P<power_w>\d+)")
    pieces = [b"rest\n1\n", b"2\n3", b"3\n", b"4\n5\n"]
    rows = feed_pieces(meter, pieces, 10).rows
    assert rows.power_w[:, 0].tolist() == [1, 2, 33, 4, 5]
    assert rows.t_mono_ns.tolist() == [0, 10, 10, 30, 30]


@pytest.mark.parametrize("steps", [r"[^z]*a" * 5, r"(?:a+)+", r"(?:a|aa)+"])
def test_a_pattern_ends_on_any_line(steps: str) -> None:
    meter = a_meter(rf"(?P<power_w>\d+),{steps}z", max_line_bytes=1024)
    _, faults = fed(meter, [b"1," + b"a" * 1000])
    assert kinds(faults) == ["framing"]


def test_pattern_is_for_the_whole_line() -> None:
    rows, faults = fed(a_meter(r"(?P<power_w>\d+) W"), [b"5 W?", b"55 W"])
    assert kinds(faults) == ["framing"]
    assert rows.power_w.tolist() == [[55.0]]


def test_counter_that_jumps_up_and_back_is_not_added() -> None:
    meter = a_meter(r"(?P<power_w>\d+) (?P<energy_j>\d+)")
    rows, faults = fed(meter, [b"5 %d" % joules for joules in (70, 71, 972, 73, 74, 75)])
    assert kinds(faults)[0] == "inconsistent"
    assert rows.energy_j is not None
    assert rows.energy_j[:, 0].tolist() == [70, 71, 972, 74, 75]


def test_without_the_meters_time_a_late_line_is_a_gap() -> None:
    meter = a_meter(r"(?P<power_w>\d+)")
    meter.feed(b"\n", 0)
    output = join_results([meter.feed(b"5\n", t * TENTH_NS) for t in (1, 2, 3, 6, 7)])
    assert output.rows.flags.tolist() == [0, 0, 0, GAP, 0]
    assert [fault.detail for fault in output.faults] == ["lines of 0.2 s are missing"]


@pytest.mark.parametrize("line", [b"1.2.3", b".", b"1e999", b"", b"-", b"nan", b"1_0", b"abc"])
def test_an_invalid_number_is_a_fault(line: bytes) -> None:
    rows, faults = fed(a_meter(r"p=(?P<power_w>.*)"), [b"p=" + line, b"p=1"])
    assert kinds(faults) == ["framing"]
    assert rows.power_w.tolist() == [[1.0]]


def test_an_unmatched_group_is_a_fault() -> None:
    rows, faults = fed(a_meter(r"(?P<power_w>\d+)?W"), [b"W", b"4W"])
    assert kinds(faults) == ["framing"]
    assert rows.power_w.tolist() == [[4.0]]


def test_the_first_line_after_opening_is_not_used() -> None:
    meter = a_meter(r"(?P<power_w>\d+)")
    assert not len(meter.feed(b"345\r\n", 0).rows)
    assert meter.feed(b"12345\r\n", TENTH_NS).rows.power_w.tolist() == [[12345.0]]


@pytest.mark.parametrize("together", [True, False])
def test_a_line_that_is_too_long_is_one_fault(together: bool) -> None:
    meter = a_meter(r"(?P<power_w>\d+)", max_line_bytes=8)
    data = b"\n" + b"7" * 30 + b"\n5\n"
    pieces = [data] if together else [data[n : n + 1] for n in range(len(data))]
    output = feed_pieces(meter, pieces)
    assert kinds(output) == ["framing"]
    assert output.rows.power_w.tolist() == [[5.0]]


@given(st.text(max_size=40))
def test_any_pattern_is_refused_or_reads_lines(pattern: str) -> None:
    try:
        meter = a_meter(pattern)
    except MeterError:
        return
    fed(meter, [b"1.0", b"7"])
