"""Readings that stick and records that come twice, and what only looks like it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from analysis.energy.curve import Edge
from analysis.energy.implausible import NEGATIVE_FLAG, ZERO_FLAG, Odd, Stuck
from analysis.energy.metered import Metered
from analysis.energy.windows import Windows, meets, missed_records
from analysis.suite.samples import of_table
from analysis.tests.test_lasting import frame_of
from instrumentation.sources.counter import LONE_FLAG

S = 1_000_000_000


def stuck_s(*parts: Sequence[float]) -> list[tuple[float, float]]:
    """Stuck stretches of a 10 Hz recording that passes in these parts, in s."""
    stuck, begin = Stuck(), 0
    for part in parts:
        end_ns = (begin + 1 + np.arange(len(part))) * S // 10
        epoch = np.ones(len(part), np.int64)
        held = Windows(end_ns - S // 10, end_ns, epoch, {"system": np.array(part)})
        assert list(stuck.watched([held])) == [held]
        begin += len(part)
    return [(a / S, b / S) for a, b in zip(*stuck.stretches(), strict=True)]


@pytest.mark.parametrize(("channel", "flagged"), [("system", True), ("drive", False)])
def test_a_machine_that_shows_no_power_is_flagged_where_it_does(
    channel: str, flagged: bool
) -> None:
    """A plug shows 0 W below 5 W: the whole machine takes some, a disk may take none."""
    power_w = np.array([40.0, 41, 40, 42, 0, 0, 0, 40, 41, 43, 40, 41])
    samples = of_table(frame_of(power_w, 1.0).rename({"power_w_system": f"power_w_{channel}"}))
    edges_ns = [0, 3 * S, 6 * S, 9 * S, 12 * S]
    metered = Metered.of(samples, "poll", 0.0, [channel], {Edge(t_ns) for t_ns in edges_ns})
    shown = [
        ZERO_FLAG in metered.energy(channel, [stretch]).flags for stretch in pairwise(edges_ns)
    ]
    assert shown == [False, flagged, flagged, False]


@pytest.mark.parametrize(
    ("odd_w", "flag", "figure"),
    [
        ({5: 65_535.0}, LONE_FLAG, True),
        ({4: 6_553.5, 7: 6_553.5}, LONE_FLAG, True),
        ({11: 6_553.5}, None, True),  # the last one: what follows is not known
        ({5: 600.0, 6: 600.0}, None, True),
        ({5: 500.0}, None, True),
        ({5: -1.0}, NEGATIVE_FLAG, True),
        (dict.fromkeys(range(12), -40.0), NEGATIVE_FLAG, False),
    ],
)
@pytest.mark.parametrize("size", [12, 5, 1])
def test_a_power_that_cannot_be_is_flagged(
    odd_w: dict[int, float], flag: str | None, figure: bool, size: int
) -> None:
    power_w = np.array([40.0, 41, 40, 42, 40, 41, 40, 40, 41, 43, 40, 41])
    power_w[list(odd_w)] = list(odd_w.values())
    odd = Odd("system")
    end_ns = np.arange(1, 13) * S
    parts = [slice(at, at + size) for at in range(0, 12, size)]
    every = (
        Windows(end_ns[part] - S, end_ns[part], end_ns[part] * 0, {"system": power_w[part]})
        for part in parts
    )
    assert len(list(odd.watched(every))) == len(parts)
    assert odd.flags(float(power_w.sum()), [(0, 12 * S)]) == ({flag} if flag else set())
    assert not odd.flags(80.0, [(0, 2 * S)]) - ({flag} if not figure else set())
    samples = of_table(frame_of(power_w, 1.0))
    metered = Metered.of(samples, "poll", 0.0, ["system"], {Edge(0), Edge(12 * S)})
    energy = metered.energy("system", [(0, 12 * S)])
    assert (energy.energy_j is not None) == figure
    assert (flag in energy.flags) == (flag is not None)


def test_a_lone_reading_in_the_rest_beside_an_edge_is_flagged() -> None:
    power_w = np.array([40.0, 41, 6_553.5, 42, 40, 41, 40, 40, 41, 43, 40, 41])
    metered = Metered.of(
        of_table(frame_of(power_w, 1.0)),
        "poll",
        0.0,
        ["system"],
        {Edge(5 * S, "before", 4 * S), Edge(9 * S)},
    )
    assert LONE_FLAG in metered.energy("system", [(5 * S, 9 * S)]).flags


@pytest.mark.parametrize(("mean_s", "rest_s"), [(1, 2), (1, 6), (2, 2), (3, 2), (3, 6), (5, 4)])
def test_a_slow_meter_is_flagged_where_its_readings_leave_the_figure_open(
    mean_s: int, rest_s: int
) -> None:
    """A plug at 1 Hz that shows the mean of some seconds; runs of 6 s, 160 W amid 60 W."""
    begins = [rest_s + 0.37 * n + n * (6 + rest_s) for n in range(6)]
    at_s = np.arange(0, begins[-1] + 6 + rest_s + 5, 0.02)
    load_w = 60 + 100 * np.any([(at_s >= b) & (at_s < b + 6) for b in begins], axis=0)
    sums = np.concatenate([[0], np.cumsum(load_w)])
    ends = np.arange(mean_s, int(at_s[-1])) * 50
    power_w = np.round((sums[ends] - sums[ends - 50 * mean_s]) / (50 * mean_s), 1)
    power_w = np.concatenate([np.full(mean_s - 1, 60.0), power_w])
    edges = {Edge(round(b * S), "before", rest_s * S) for b in begins}
    edges |= {Edge(round((b + 6) * S), "after", rest_s * S) for b in begins}
    metered = Metered.of(of_table(frame_of(power_w, 1.0)), "poll", 1.5, ["system"], edges)
    for begin in begins:
        energy = metered.energy("system", [(round(begin * S), round((begin + 6) * S))])
        right = energy.energy_j == pytest.approx(960, rel=0.02)
        assert right or energy.unsure
        assert not (energy.unsure and (mean_s, rest_s) == (1, 6))


def noisy(count: int, power_w: float, seed: int = 1, digit_w: float = 0.001) -> list[float]:
    read_w = power_w + np.random.default_rng(seed).normal(0, 0.05, count)
    return list(np.rint(read_w / digit_w) * digit_w)


def test_a_value_that_stands_still_amid_noise_is_stuck() -> None:
    power_w = noisy(2000, 40.0)
    power_w[700:750] = [power_w[700]] * 50
    assert stuck_s(power_w) == [(70.0, 75.0)]
    assert stuck_s(power_w[:1000], power_w[1000:]) == [(70.0, 75.0)]
    assert stuck_s(noisy(20_000, 40.0)) == []


def test_a_coarse_reading_of_a_resting_machine_is_not() -> None:
    """It shows 8.0 W for minutes, and hardly twice the same under load."""
    rest = [8.0] * 3000
    work = noisy(3000, 40.0, digit_w=0.1)
    assert stuck_s(rest, work, rest[:900], work, rest) == []
    assert stuck_s([8.0] * 500) == []


def test_the_same_in_one_channel_alone_is_not() -> None:
    stuck = Stuck()
    end_ns = np.arange(1, 1001) * S
    power_w = {"system": np.array(noisy(1000, 40.0)), "drive": np.full(1000, 2.0)}
    held = Windows(end_ns - S, end_ns, np.ones(1000, np.int64), power_w)
    list(stuck.watched([held]))
    assert len(stuck.stretches()[0]) == 0


@pytest.mark.parametrize("late_s", [0.0, 0.35])
def test_a_record_that_came_twice_is_no_time_gone_by(late_s: float) -> None:
    generator = np.random.default_rng(2)
    arrival_s = 0.1 * np.arange(1, 501) + generator.uniform(0, 0.01, 500)
    arrival_s[300:304] += late_s
    arrival_s = np.sort(np.append(np.maximum.accumulate(arrival_s), arrival_s[199] + 2e-4))
    width_ns = np.full(500, S // 10)
    missing = missed_records(np.rint(arrival_s * 1e9).astype(np.int64), width_ns)
    assert np.flatnonzero(missing).tolist() == [199]
    assert missing[199] == -1


def test_a_stretch_meets_what_reaches_into_it() -> None:
    spans = np.array([10, 30]), np.array([20, 40])
    assert [meets(spans, a, b) for a, b in ((0, 10), (0, 11), (20, 30), (39, 50), (40, 50))] == [
        False,
        True,
        False,
        True,
        False,
    ]
