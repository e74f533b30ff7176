"""The SmartPower3's line and its time, from vectors and from the maker's own format."""

from __future__ import annotations

from pathlib import Path

import pytest

from instrumentation.meters.base import MeterError
from instrumentation.meters.smartpower3 import SmartPower3
from instrumentation.simulators.smartpower3 import encode_line
from instrumentation.trace import Fault, Record

# A line of the maker's documentation.
VECTOR = b"0000815169,15296,0036,00550,0,00000,0000,00000,0,00,00000,0000,00000,0,00,14,12\r\n"


def fed(lines: list[bytes], channels: dict[str, str] | None = None) -> list[Record | Fault]:
    meter = SmartPower3(channels or {"0": "system"})
    meter.opened()
    return [item for n, line in enumerate(lines) for item in meter.feed(line, n)]


def records(items: list[Record | Fault]) -> list[Record]:
    return [item for item in items if isinstance(item, Record)]


def kinds(items: list[Record | Fault]) -> list[str]:
    return [item.kind for item in items if isinstance(item, Fault)]


def test_documented_line_is_read() -> None:
    before = encode_line(815159, (0, 0))
    channels = {"input": "supply", "0": "system", "1": "drive"}
    items = fed([before, VECTOR], channels)
    assert not kinds(items)
    assert [(r.channel, r.power_w, r.flags) for r in records(items)] == [
        ("supply", 0.55, ""),
        ("system", 0.0, "off"),
        ("drive", 0.0, "off"),
    ]
    assert {(r.t_device_ms, r.window_s) for r in records(items)} == {(815169, 0.01)}


def test_simulator_sends_the_documented_line() -> None:
    line = encode_line(
        815169, (0, 0), input_mw=550, input_mv=15296, voltage_mv=(0, 0), on=(False, False)
    )
    assert line == VECTOR


@pytest.mark.parametrize("at", range(79))
def test_no_changed_byte_passes(at: int) -> None:
    before = encode_line(815159, (0, 0))
    for changed in (b"0", b"7", b",", b"\x00"):
        line = VECTOR[:at] + changed + VECTOR[at + 1 :]
        if line != VECTOR:
            assert not records(fed([before, line]))


def test_device_time_is_unwrapped() -> None:
    first = (1 << 32) - 20
    items = fed([encode_line(first + n * 10, (1000, 0)) for n in range(5)])
    assert [r.t_device_ms for r in records(items)] == [first + n * 10 for n in range(1, 5)]
    assert not kinds(items)


@pytest.mark.parametrize("interval_ms", [5, 10, 50, 100, 500, 1000])
def test_missing_lines_are_a_gap_never_a_longer_window(interval_ms: int) -> None:
    times = [n * interval_ms for n in (0, 1, 2, 3, 6, 7)]
    items = fed([encode_line(t, (1000, 0)) for t in times])
    assert [(r.window_s, r.flags) for r in records(items)] == [
        (interval_ms / 1000, "gap" if n == 3 else "") for n in range(5)
    ]
    (fault,) = [item for item in items if isinstance(item, Fault)]
    assert (fault.kind, fault.detail) == ("gap", f"records of {2 * interval_ms} ms are missing")


def test_uneven_device_time_is_no_gap() -> None:
    times = [0, 10, 21, 30, 44, 50, 60]
    items = fed([encode_line(t, (1000, 0)) for t in times])
    assert not kinds(items)
    assert sum(r.window_s for r in records(items)) == pytest.approx(0.06)


def test_changed_interval_is_taken_up() -> None:
    times = [0, 10, 20, 30, 130, 230, 330, 430]
    items = fed([encode_line(t, (1000, 0)) for t in times])
    assert [r.window_s for r in records(items)][-1] == 0.1


def test_restarted_meter_is_said_and_not_bridged() -> None:
    items = fed([encode_line(t, (1000, 0)) for t in (90_000, 90_010, 90_020, 10, 20)])
    assert kinds(items) == ["restart"]
    assert [(r.t_device_ms, r.flags) for r in records(items)] == [
        (90_010, ""),
        (90_020, ""),
        (10, "restart"),
        (20, ""),
    ]


def test_nothing_is_bridged_over_a_reopening() -> None:
    meter = SmartPower3({"0": "system"})
    meter.opened()
    meter.feed(encode_line(0, (1000, 0)) + encode_line(10, (1000, 0)), 1)
    meter.opened()
    assert meter.feed(encode_line(60_000, (1000, 0)), 2) == []
    (record,) = meter.feed(encode_line(60_010, (1000, 0)), 3)
    assert isinstance(record, Record)
    assert (record.epoch, record.seq, record.window_s) == (2, 1, 0.01)


def test_each_line_has_the_time_of_its_own_first_byte() -> None:
    meter = SmartPower3({"0": "system"})
    meter.opened()
    lines = [encode_line(n * 10, (1000, 0)) for n in range(4)]
    meter.feed(lines[0], 100)
    got = meter.feed(lines[1] + lines[2][:1], 200)
    got += meter.feed(lines[2][1:40], 300)
    got += meter.feed(lines[2][40:] + lines[3], 400)
    assert [r.t_mono_ns for r in records(got)] == [200, 200, 400]


def test_port_opened_in_mid_line_is_no_fault() -> None:
    lines = [encode_line(n * 10, (1000, 0)) for n in range(3)]
    assert not kinds(fed([lines[0][50:], lines[1], lines[2]]))


def test_tripped_protection_is_flagged() -> None:
    line = encode_line(10, (1000, 0))
    changed = line.replace(b",1,00,", b",1,20,", 1)
    total = -sum(changed[:74]) & 0xFF
    parity = 0
    for byte in changed[:74]:
        parity ^= byte
    changed = changed[:74] + f"{total:02x},{parity:02x}\r\n".encode()
    (record,) = records(fed([encode_line(0, (0, 0)), changed]))
    assert record.flags == "irq-20"


@pytest.mark.parametrize(
    "channels",
    [{}, {"2": "system"}, {"0": "system", "1": "system"}],
    ids=["none", "foreign", "twice"],
)
def test_wrong_channels_are_refused(channels: dict[str, str]) -> None:
    with pytest.raises(MeterError):
        SmartPower3(channels)


def test_registry_names_the_nearest(tmp_path: Path) -> None:
    from instrumentation.choose import UnknownNameError
    from instrumentation.meters import registry

    with pytest.raises(UnknownNameError, match="Did you mean smartpower3"):
        registry.load("smartpower")
    assert not list(tmp_path.iterdir())
