"""The ranging run: what it advises, and the run itself against a simulator on a pseudo-terminal."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.tests.refusal import refuses
from instrumentation import ranging
from instrumentation.meters.wt310 import WT310
from instrumentation.meters.yokogawa_ranges import Extremes
from instrumentation.ranging import Needs, advised, report, smallest
from instrumentation.recorder_port import MeterConfig
from instrumentation.simulators.play import Player
from instrumentation.simulators.smartpower3 import SmartPower3Simulator
from instrumentation.simulators.wt210 import WT210Simulator
from instrumentation.simulators.wt310 import WT310Simulator

RANGES = (0.5, 1.0, 2.0, 5.0)
AUTO: dict[str, Any] = {"voltage_range_v": None, "current_range_a": None}


def entry(port: Path, kind: str = "wt310", **settings: Any) -> dict[str, Any]:
    return {
        "name": "meter0",
        "kind": kind,
        "port": str(port),
        "origin": "modelled",
        "channels": {"0" if kind == "smartpower3" else "1": "system"},
        "settings": settings,
    }


@pytest.mark.parametrize(
    ("peak", "crest", "spare", "range_"),
    [
        (0.5, 3.0, 1.0, 0.5),
        (0.5, 3.0, 1.1, 1.0),  # something to spare
        (0.4, 1.4, 1.1, 0.5),  # low crests need no more than the rms value
        (0.4, 6.0, 1.0, 1.0),  # peaks of 2.4 A need a range that takes 3 A
        (1.7, 4.0, 1.1, 5.0),
        (0.0, 3.0, 1.1, 0.5),
    ],
)
def test_smallest_range_that_holds_it(
    peak: float, crest: float, spare: float, range_: float
) -> None:
    assert smallest(RANGES, peak, crest, 3.0, spare) == range_


def test_load_beyond_the_largest_range_is_refused() -> None:
    with refuses("ranges-too-small"):
        smallest(RANGES, 4.9, 3.0, 3.0, 1.1)


def test_extremes_are_kept_whatever_their_order() -> None:
    extremes = Extremes()
    for volts, amperes, watts in ((230.0, 0.2, 40.0), (229.0, 0.9, 190.0), (231.0, -0.1, -5.0)):
        extremes = extremes.including(volts, amperes, watts, (300.0, 1.0))
    assert (extremes.readings, extremes.voltage_v, extremes.current_a, extremes.power_w) == (
        3,
        231.0,
        0.9,
        190.0,
    )


def meter_that_saw(extremes: Extremes) -> WT310:
    meter = WT310({"1": "system"}, {"model": "WT310E"})
    meter.extremes = extremes
    return meter


def test_advice_names_the_ranges_and_the_error_there() -> None:
    extremes = Extremes(240, 231.0, 0.84, 187.3, 300.0, 1.0)
    config = MeterConfig.from_json(json.dumps(entry(Path("none"), model="WT310E", rate_s=0.5)))
    text = report(config, meter_that_saw(extremes), Needs())
    settings = json.loads(next(line for line in text.splitlines() if "{" in line).split(": ", 1)[1])
    assert settings == {
        "model": "WT310E",
        "rate_s": 0.5,
        "voltage_range_v": 300.0,
        "current_range_a": 2.0,
    }
    assert f"±{0.001 * 187.3 + 0.0005 * 600:.3g} W" in text
    assert "beyond the range" not in text
    assert "went up to" not in text


def test_advice_tells_of_clipped_readings_and_of_higher_ranges() -> None:
    extremes = Extremes(240, 231.0, 0.84, 187.3, 300.0, 5.0, over_range=3)
    config = MeterConfig.from_json(json.dumps(entry(Path("none"))))
    text = report(config, meter_that_saw(extremes), Needs())
    assert "3 readings were beyond the range" in text
    assert "went up to 5 A" in text


def test_nothing_is_advised_from_nothing() -> None:
    with refuses("no-reading"):
        advised(meter_that_saw(Extremes()), Extremes(), Needs())


@pytest.fixture
def playing(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Provide a meter on a pseudo-terminal, as it comes: in whatever ranges it chose."""
    link, stop = tmp_path / "port", threading.Event()
    meter = request.param()
    player = Player(meter, link, [187.0] * len(meter.channels))
    thread = threading.Thread(target=player.run, args=(stop.is_set,))
    thread.start()
    yield link
    stop.set()
    thread.join()
    player.close()


@pytest.mark.parametrize(
    ("playing", "kind"),
    [
        (lambda: WT310Simulator(**AUTO), "wt310"),
        (lambda: WT210Simulator(**AUTO), "wt210"),
    ],
    indirect=["playing"],
)
def test_run_finds_the_ranges(playing: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    # Whatever the inventory fixes so far is left to the meter during the run.
    meter = json.dumps(entry(playing, kind, voltage_range_v=300, current_range_a=0.5))
    assert ranging.main(["--meter", meter, "--seconds", "2.5"]) == 0
    message = capsys.readouterr()
    assert "230 V, 0.813 A, 187 W" in message.out
    assert '"voltage_range_v": 300.0, "current_range_a": 2.0' in message.out
    assert "Load the machine now" in message.err


def test_meter_without_ranges_has_nothing_to_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    meter = json.dumps(entry(tmp_path / "port", "smartpower3"))
    assert ranging.main(["--meter", meter]) == 0
    assert "there is nothing to set" in capsys.readouterr().out


class _Deaf(WT310Simulator):
    """Its baud rate is another one."""

    def receive(self, data: bytes) -> bytes:
        return data[:0]


@pytest.mark.parametrize(
    ("playing", "why"),
    [(SmartPower3Simulator, "sends no records of a wt310"), (_Deaf, "is silent")],
    indirect=["playing"],
)
def test_foreign_or_silent_meter_is_said(
    playing: Path, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ranging.main(["--meter", json.dumps(entry(playing)), "--seconds", "1"]) == 1
    message = capsys.readouterr().err
    assert f"fde: meter0 at {playing} {why}" in message


def test_missing_port_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    meter = json.dumps(entry(tmp_path / "port"))
    assert ranging.main(["--meter", meter, "--seconds", "1"]) == 1
    assert "is not there" in capsys.readouterr().err
