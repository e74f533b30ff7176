"""Test the ranges that a recording of a simulated meter suggests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.tests.refusal import refuses
from instrumentation import ranging
from instrumentation.meters import registry
from instrumentation.meters.wt310 import WT310
from instrumentation.meters.yokogawa_ranges import Extremes
from instrumentation.ranging import report, smallest_range
from instrumentation.tests.simulators import registry as simulators
from instrumentation.trace import StreamWriter
from validation.metrology.conversation import conversation

RANGES = (0.5, 1.0, 2.0, 5.0)


@pytest.mark.parametrize(
    ("peak", "crest", "range_"),
    [
        (0.45, 3.0, 0.5),
        (0.5, 3.0, 1.0),  # something to spare
        (0.4, 1.4, 0.5),  # low crests need no more than the rms value
        (0.4, 6.0, 1.0),  # peaks of 2.4 A need a range that takes 3 A
        (1.7, 4.0, 5.0),
        (0.0, 3.0, 0.5),
    ],
)
def test_smallest_range_that_holds_it(peak: float, crest: float, range_: float) -> None:
    assert smallest_range(RANGES, peak, crest) == range_


def test_load_beyond_the_largest_range_is_refused() -> None:
    with refuses("ranges-too-small"):
        smallest_range(RANGES, 4.9, 3.0)


def test_extremes_do_not_depend_on_the_order() -> None:
    extremes = Extremes()
    for volts, amperes, watts in ((230.0, 0.2, 40.0), (229.0, 0.9, 190.0), (231.0, -0.1, -5.0)):
        extremes = extremes.with_reading(volts, amperes, watts, 1.0)
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


@pytest.mark.parametrize(("range_a", "over_range"), [(1.0, 0), (5.0, 3)])
def test_advice_has_ranges_and_error_and_mentions_clipping(range_a: float, over_range: int) -> None:
    extremes = Extremes(240, 231.0, 0.84, 187.3, range_a, over_range)
    text = report("meter0", meter_that_saw(extremes))
    settings = json.loads(next(line for line in text.splitlines() if "{" in line).split(": ", 1)[1])
    assert settings == {"voltage_range_v": 300.0, "current_range_a": 2.0}
    assert f"±{0.001 * 187.3 + 0.0005 * 600:.3g} W" in text
    assert ("3 readings were beyond the range" in text) == bool(over_range)
    assert ("went up to 5 A" in text) == (range_a > 2.0)


def test_a_recording_without_readings_is_refused() -> None:
    with refuses("no-reading"):
        report("meter0", meter_that_saw(Extremes()))


def recorded(folder: Path, kind: str, seconds: int = 10, **settings: Any) -> Path:
    """Write a recording of a meter in the ranges of its simulator."""
    simulator = simulators.load(kind)(**settings)
    channels = {key: f"ch_{n}" for n, key in enumerate(simulator.channels)}
    count = round(seconds / simulator.period_s)
    energy_j = np.outer(np.arange(1, count + 1), [187.0 * simulator.period_s] * len(channels))
    writer = StreamWriter(folder / "stream.raw")
    for frame in conversation(registry.load(kind)(channels, {}), simulator, energy_j):
        writer.append(frame.t_mono_ns, frame.data, sent=frame.sent)
    writer.close()
    described = {"kind": kind, "channels": channels, "settings": {}}
    (folder / "meter.json").write_text(json.dumps(described), encoding="utf-8")
    return folder


@pytest.mark.parametrize("kind", [kind for kind in registry.kinds() if kind.startswith("wt")])
def test_a_recording_has_the_ranges(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = recorded(tmp_path, kind, voltage_range_v=None, current_range_a=None)
    assert ranging.main([str(folder)]) == 0
    message = capsys.readouterr().out
    assert "230 V, 0.813 A, 187 W" in message
    assert '"voltage_range_v": 300.0, "current_range_a": 2.0' in message


def test_a_meter_without_ranges_has_nothing_to_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ranging.main([str(recorded(tmp_path, "smartpower3", 1))]) == 0
    assert "there is nothing to set" in capsys.readouterr().out


def test_a_folder_without_a_recording_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ranging.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("fde: ")
