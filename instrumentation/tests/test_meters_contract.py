"""Test the contract of drivers with the simulator of every registered meter."""

from __future__ import annotations

import functools
import random
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from contract.tests.refusal import refuses
from instrumentation.accuracy import UNITS
from instrumentation.decode import Decoded
from instrumentation.meters import registry
from instrumentation.tests.simulators import registry as simulators
from instrumentation.trace import Frame
from validation.metrology.conversation import Wire, conversation, decode_frames, faultless
from validation.metrology.faults import a_load, driver_of, periods_of_a_record
from validation.metrology.faulty_meters import FaultyWire, WireFaults

KINDS = registry.kinds()
every_meter = pytest.mark.parametrize("kind", KINDS)
FAULTS = ("drop", "double", "corrupt", "lose")


def a_stream(
    kind: str, seed: int, periods: int, wire: Wire = faultless
) -> tuple[list[Frame], NDArray[np.float64]]:
    simulator = simulators.load(kind)()
    energy_j = a_load(simulator, seed, periods)
    return list(conversation(driver_of(kind), simulator, energy_j, wire=wire)), energy_j


def decoded(kind: str, frames: list[Frame]) -> Decoded:
    return decode_frames(driver_of(kind), frames)


@functools.cache
def a_short_stream(kind: str, seed: int) -> tuple[list[Frame], Decoded]:
    """Return a short stream and its decoded recording, cached for properties."""
    frames, _ = a_stream(kind, seed, periods=60)
    return frames, decoded(kind, frames)


def powers(samples: pl.DataFrame) -> NDArray[np.float64]:
    return samples.select(pl.col("^power_w_.*$")).to_numpy()


def periods_of(kind: str, samples: pl.DataFrame) -> list[int]:
    """Return over how many of the simulator's periods each record is averaged."""
    widths = samples["window_s"].to_numpy() / simulators.load(kind)().period_s
    assert np.allclose(widths, np.rint(widths))
    return [round(width) for width in widths.tolist()]


def errors_w(kind: str, samples: pl.DataFrame, energy_j: NDArray[np.float64]) -> float:
    """Return the largest error of any record at the best alignment of the windows."""
    simulator = simulators.load(kind)()
    widths = periods_of(kind, samples)
    ends = np.cumsum([0, *widths])
    best = np.inf
    known_j = np.vstack([np.zeros_like(energy_j[:1]), energy_j])  # it starts with nothing used
    for start in range(len(known_j) - int(ends[-1])):
        edges_j = known_j[start + ends]
        seconds = np.array(widths)[:, None] * simulator.period_s
        true_w = np.diff(edges_j, axis=0) / seconds
        best = min(best, float(np.abs(true_w - powers(samples)).max()))
    return best


@every_meter
def test_every_driver_has_sound_attributes(kind: str) -> None:
    meter = driver_of(kind)
    assert meter.kind == kind
    terms = meter.accuracy.terms
    assert terms[0].name == "gain" and all(term.source for term in terms)
    assert len({term.name for term in terms} & {*UNITS}) == len(terms)
    assert meter.accuracy.relative_limit * 40 + meter.accuracy.absolute_limit_w > 0
    assert meter.timing in ("device", "index", "poll")
    assert meter.period_s > 0
    assert 0 < meter.arrival_delay_limit_s < 60
    assert len(set(meter.flag_words)) == len(meter.flag_words) <= 16
    assert all(len(usb_id) == 9 and usb_id[4] == ":" for usb_id in meter.usb_ids)


@every_meter
def test_unknown_channels_and_settings_are_refused(kind: str) -> None:
    simulator = simulators.load(kind)()
    driver = registry.load(kind)
    key = simulator.channels[0]
    with refuses("unknown-channel", channel="nonsense"):
        driver({"nonsense": "system"}, simulator.settings)
    with refuses("no-channel"):
        driver({}, simulator.settings)
    with refuses("invalid-channel-name"):
        driver({key: "A B"}, simulator.settings)
    if len(simulator.channels) > 1:
        with refuses("channel-twice"):
            driver(dict.fromkeys(simulator.channels, "system"), simulator.settings)
    with refuses("unknown-setting", name="nonsense"):
        driver({key: "system"}, {**simulator.settings, "nonsense": 1})


@every_meter
def test_every_record_is_the_mean_over_its_window(kind: str) -> None:
    frames, energy_j = a_stream(kind, seed=1, periods=400)
    recording = decoded(kind, frames)
    assert not recording.faults
    width = periods_of(kind, recording.samples)[0]
    assert recording.samples.height * width >= 400 - 4 * width
    assert errors_w(kind, recording.samples, energy_j) <= simulators.load(kind)().resolution_w
    assert not recording.samples["flags"].str.contains("gap").any()


@every_meter
def test_an_energy_counter_agrees_with_the_power(kind: str) -> None:
    frames, _ = a_stream(kind, seed=4, periods=400)
    samples = decoded(kind, frames).samples
    counters = samples.select(pl.col("^energy_j_.*$")).to_numpy()
    assert bool(counters.size) == driver_of(kind).has_energy
    joules = (powers(samples) * samples["window_s"].to_numpy()[:, None])[1:].sum(axis=0)
    for counter, of_power_j in zip(counters.T, joules, strict=False):
        assert np.all(np.diff(counter) >= 0)
        assert counter[-1] - counter[0] == pytest.approx(of_power_j, rel=0.01)


@every_meter
def test_an_unnamed_channel_has_no_column(kind: str) -> None:
    simulator = simulators.load(kind)()
    frames, _ = a_stream(kind, seed=2, periods=60)
    last = len(simulator.channels) - 1
    driver = registry.load(kind)({simulator.channels[last]: "drive"}, simulator.settings)
    alone = decode_frames(driver, frames).samples
    assert alone["power_w_drive"].equals(
        decoded(kind, frames).samples[f"power_w_ch_{last}"], check_names=False
    )


@every_meter
@given(cuts=st.lists(st.floats(0, 1), max_size=40), seed=st.integers(0, 9))
def test_any_cutting_of_the_bytes_gives_the_same_records(
    kind: str, cuts: list[float], seed: int
) -> None:
    frames, whole_frames = a_short_stream(kind, seed)
    pieces: list[Frame] = []
    for frame in frames:
        bounds = sorted({0, len(frame.data), *(int(cut * len(frame.data)) for cut in cuts)})
        if frame.sent or not frame.data:
            pieces.append(frame)
            continue
        pieces += [Frame(frame.t_mono_ns, frame.data[a:b]) for a, b in pairwise(bounds)]
    recording = decoded(kind, pieces)
    assert recording.samples.equals(whole_frames.samples)
    assert not recording.faults


@every_meter
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_on_the_wire_are_reported_and_cost_few_records(kind: str, fault: str) -> None:
    wire = FaultyWire(7, WireFaults(**{fault: 0.02}))
    simulator = simulators.load(kind)()
    together = periods_of_a_record(kind)
    energy_j = a_load(simulator, 3, 2000 * together)
    frames = list(
        conversation(driver_of(kind), simulator, energy_j, wire=wire.carry, together=together)
    )
    recording = decoded(kind, frames)
    assert wire.hit > 20
    assert recording.faults
    meter = registry.load(kind)
    assert recording.samples.height >= 2000 - meter.most_lost_records * (wire.hit + 2)
    if meter.detects_damage:
        clean = decoded(
            kind, list(conversation(driver_of(kind), simulators.load(kind)(), energy_j))
        )
        assert set(powers(recording.samples).ravel()) <= set(powers(clean.samples).ravel())
    # No fault without a trace: whatever is missing has a gap or a fault in its place.
    reported = sum(f.kind != "restart" for f in recording.faults)
    assert reported >= 0.9 * wire.hit or fault == "lose"


@every_meter
@given(junk=st.binary(max_size=600), seed=st.integers(0, 9))
def test_foreign_bytes_cost_few_records(kind: str, junk: bytes, seed: int) -> None:
    clean, of_clean = a_short_stream(kind, seed)
    middle = random.Random(seed).randrange(len(clean) // 2, len(clean))
    frames = [*clean[:middle], Frame(clean[middle].t_mono_ns, junk), *clean[middle:]]
    recording = decoded(kind, [frame for frame in frames if frame.data or frame is clean[0]])
    assert recording.samples.height >= of_clean.samples.height - 2 - len(junk) // 16


@every_meter
def test_random_answers_give_no_records(kind: str) -> None:
    """Requests before the first record get random answers, too."""
    chance = random.Random(3)
    meter = driver_of(kind)
    for second in range(1000):
        if second % 50 == 0:
            meter.opened()
        if request := meter.request(second * 10**9):
            assert meter.request(second * 10**9) == request, "to ask what is due changes nothing"
            meter.on_request_sent(request, second * 10**9)
        junk = chance.randbytes(chance.randrange(90)) + b"\r\n" * chance.randrange(2)
        assert not len(meter.feed(junk, second * 10**9).rows)


@every_meter
def test_a_reopened_port_starts_a_new_epoch(kind: str) -> None:
    first, _ = a_stream(kind, seed=5, periods=80)
    again, _ = a_stream(kind, seed=6, periods=80)
    samples = decoded(kind, [*first[:-1], *again]).samples
    assert sorted(samples["epoch"].unique().to_list()) == [1, 2]
    alone = decoded(kind, again).samples
    assert powers(samples.filter(pl.col("epoch") == 2)).tolist() == powers(alone).tolist()


def test_simulators_and_drivers_have_the_same_kinds() -> None:
    assert set(simulators.kinds()) == set(KINDS)
