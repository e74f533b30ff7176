"""The benchmarks of faults and of re-plugging, in small; and that they see what is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from instrumentation.meters import registry
from instrumentation.meters.base import Meter
from instrumentation.meters.rows import ParseResult
from instrumentation.meters.smartpower3 import SmartPower3
from instrumentation.trace import Pieces
from validation.metrology import faults, replug

CHANNELS = {"0": "ch_0", "1": "ch_1"}


def test_every_meter_has_its_figures() -> None:
    figures = {figure.figure: figure for figure in faults.measure(quick=True)}
    for kind in registry.kinds():
        assert figures[f"corrupted records, {kind}"].meets
        assert figures[f"crashes by them, {kind}"].meets
        assert any(name.startswith(f"injected faults noticed, {kind}") for name in figures)
    assert figures["injected faults noticed, smartpower3"].meets


def hushed(fed: ParseResult) -> ParseResult:
    return ParseResult(replace(fed.rows, flags=np.zeros_like(fed.rows.flags)))


class Deaf(SmartPower3):
    """A driver that reports no fault."""

    def feed(self, data: bytes, t_ns: int) -> ParseResult:
        return hushed(super().feed(data, t_ns))

    def feed_all(self, pieces: Pieces) -> ParseResult:
        return hushed(super().feed_all(pieces))


class Slow(SmartPower3):
    """A driver that drops four records after a fault."""

    _doubt = 0

    def feed(self, data: bytes, t_ns: int) -> ParseResult:
        fed = super().feed(data, t_ns)
        self._doubt = 4 if fed.faults else max(0, self._doubt - len(fed.rows))
        columns = ("t_mono_ns", "t_device_us", "window_s", "power_w", "flags")
        none = replace(fed.rows, **{name: getattr(fed.rows, name)[:0] for name in columns})
        return ParseResult(none, fed.faults) if self._doubt else fed


class Brittle(SmartPower3):
    """A driver that raises for bytes that are not ASCII."""

    def feed(self, data: bytes, t_ns: int) -> ParseResult:
        data.decode("ascii")
        return super().feed(data, t_ns)


def use(driver: type[Meter], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "driver_of", lambda _: driver(CHANNELS, {}))
    faults.clean_frames.cache_clear()


def test_a_silent_driver_misses_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    use(Deaf, monkeypatch)
    noticed = faults.notice("smartpower3", 4)
    assert noticed.missed["lose"] == noticed.missed["corrupt"] == 4
    assert noticed.missed["stall"] == 0  # harmless: every line came
    assert noticed.worst_limits == float("inf")
    faults.clean_frames.cache_clear()


def test_a_slow_driver_loses_records(monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults.survive("smartpower3", 300, 400).lost_in_a_row <= 1
    use(Slow, monkeypatch)
    assert faults.survive("smartpower3", 300, 400).lost_in_a_row >= 3


def test_a_crash_of_a_driver_is_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(Brittle, monkeypatch)
    assert faults.survive("smartpower3", 300, 400).crashes > 0
    assert "UnicodeDecodeError" in capsys.readouterr().err


def test_plugged_in_again_it_is_recorded_each_time(tmp_path: Path) -> None:
    delays, numbers = replug.delays_s(tmp_path, cycles=5)
    assert len(delays) == 5
    assert numbers >= 2
    assert all(0 < delay < float("inf") for delay in delays)
