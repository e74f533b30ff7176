"""Joules between edges from windows, gaps and the rests beside them."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.energy.curve import LASTING_S, Curve, Edge, Piece, lasting, level_part, level_w
from analysis.energy.energy import run_edges
from analysis.energy.integrate import NEAR, integrate
from analysis.energy.metered import Metered
from analysis.energy.plausibility import CounterCheck
from analysis.energy.uncertainty import Resolution
from analysis.energy.windows import Windows
from analysis.suite import samples
from analysis.suite.clocks import TargetClock
from analysis.suite.records import Phase, Run
from analysis.tests.known import known, metered_of, plan_of, run_of
from analysis.tests.test_windows import table
from contract import schema
from contract.plan import SuitePlan
from instrumentation.clock import ClockReading

S = 1_000_000_000
FINE = Resolution()


def windows(*each: tuple[float, float, float], counter: list[float] | None = None) -> Windows:
    start, end, power = (np.array(values) for values in zip(*each, strict=True))
    return Windows(
        np.rint(start * S).astype(np.int64),
        np.rint(end * S).astype(np.int64),
        np.ones(len(start), np.int64),
        {"system": power.astype(float)},
        {} if counter is None else {"system": np.array(counter)},
    )


def edges(*t_s: float) -> list[Edge]:
    return [Edge(round(t * S)) for t in t_s]


def curve(
    stream: Windows, at: list[Edge], resolution: Resolution = FINE, late_s: float = 0
) -> Curve:
    return integrate([stream], at, {"system": resolution}, late_s * 1e9)["system"]


def grid(powers: list[float], width_s: float = 1.0) -> Windows:
    return windows(*((k * width_s, (k + 1) * width_s, p) for k, p in enumerate(powers)))


@pytest.mark.parametrize(
    ("powers", "at_s", "joules", "split_j"),
    [
        # 20 W up to 3.3 s and 50 W after: the window from 3 to 4 s says 41 W.
        ([20, 20, 20, 41, 50, 50, 50], (0, 3.3, 7), {0: 66, 1: 185}, {1: 0}),
        # 35 W instead: 6 J that came after the mark, or before it, by its share.
        ([20, 20, 20, 35, 50, 50, 50], (0, 3.3, 7), {}, {1: 6 * np.sqrt(0.3 * 0.7)}),
        # 60 W but for 10 W from 2.3 to 2.8 s: a rest shorter than its window, which says 35 W.
        ([60, 60, 35, 60, 60], (0, 2.3, 2.8, 5), {0: 138, 1: 5, 2: 132}, {}),
        # 60 W and 20 W would leave −1 J for the tenth between: so they meet there.
        ([60, 60, 35, 20, 20], (0, 2.45, 2.55, 5), {1: 3.5}, {}),
        # 10 W before the mark would leave 100 W behind it; the next window is cut: at most twice.
        ([10, 10, 19, 30, 40, 40], (0, 2.9, 3.5, 6), {0: 20 + 19 - 0.1 * 2 * 19}, {}),
        # Between two other cuts only the share is left.
        (
            [20, 20, 41, 50, 50, 50],
            (0, 1.5, 2.3, 3.5, 6),
            {1: 0.5 * 20 + 0.3 * 41},
            {2: 30 * 0.3 * 0.7 / np.sqrt(3)},
        ),
    ],
)
def test_a_cut_window_is_split_by_its_neighbours_power(
    powers: list[float],
    at_s: tuple[float, ...],
    joules: dict[int, float],
    split_j: dict[int, float],
) -> None:
    energies = curve(grid(powers), edges(*at_s))
    for k, energy_j in joules.items():
        assert energies.energy_j[k] == pytest.approx(energy_j)
    for k, doubt_j in split_j.items():
        assert energies.split_j[k] == pytest.approx(doubt_j, abs=1e-9)


def test_a_window_counts_with_its_share_inside() -> None:
    energies = curve(windows((0, 1, 10), (1, 2, 20), (2, 3, 40)), edges(0.5, 2.25))
    assert energies.energy_j[0] == pytest.approx(0.5 * 10 + 20 + 0.25 * 40)
    assert energies.covered_s[0] == pytest.approx(1.75)
    assert (energies.split_j > 0).all()


def test_the_share_of_a_rest_within_a_window_is_not_excluded() -> None:
    energies = curve(grid([60, 60, 35, 60, 60]), edges(0, 2.3, 2.8, 5))
    share_j = np.array([0.3 * 35, -0.2 * 35]) - np.array([18, -12])
    assert (energies.split_j[1:3] > abs(share_j) / np.sqrt(3)).all()


def test_a_rest_gives_the_energy_of_a_cut_window() -> None:
    """20 W of rest up to 4.3 s, then bursts: no neighbour tells what the window holds after it."""
    powers = [20.0, 20, 20, 20, 62, 35, 90, 70, 24, 20, 20, 20]
    at = [Edge(0), Edge(round(4.3 * S), "before", 4 * S), Edge(round(8.1 * S), "after", 3 * S)]
    energies = curve(grid(powers), [*at, Edge(12 * S)])
    assert energies.energy_j[1] == pytest.approx(62 - 0.3 * 20 + 35 + 90 + 70 + 24 - 0.9 * 20)
    assert energies.energy_j.sum() == pytest.approx(sum(powers))
    assert energies.slope_w[1:3] == pytest.approx([20, 20])
    assert energies.split_j[1:3] == pytest.approx([0, 0], abs=1e-9)


def test_only_windows_at_rest_even_if_displaced_give_the_rest() -> None:
    """Windows up to 0.2 s late: the one that ends 0.1 s before the edge may hold load."""
    powers = [20.0, 20, 20, 26, 50, 50]
    at = [Edge(0), Edge(round(4.1 * S), "before", 4 * S), Edge(6 * S)]
    energies = curve(grid(powers), at, late_s=0.2)
    assert energies.energy_j[1] == pytest.approx(26 + 50 + 50 - 1.1 * 20)


def test_too_short_a_rest_does_not_count() -> None:
    at = [Edge(0), Edge(round(2.5 * S), "before", round(1.6 * S)), Edge(5 * S)]
    assert curve(grid([20, 20, 35, 50, 50]), at).window[1] == 2


def test_a_gap_is_filled_from_both_sides_and_flagged() -> None:
    energies = curve(windows((0, 1, 10), (1, 2, 12), (4, 5, 30), (5, 6, 32)), edges(0, 6))
    assert energies.covered_s[0] == pytest.approx(4)
    assert energies.energy_j[0] == pytest.approx(84 + 2 * 21)
    assert (energies.by_plateau[0], energies.by_counter[0], energies.void[0]) == (
        True,
        False,
        False,
    )
    assert energies.filled_j[0] > 2 * (32 - 10) / np.sqrt(12) * 0.99


def test_a_gap_over_an_edge_is_filled_from_each_side() -> None:
    energies = curve(windows((0, 1, 10), (1, 2, 10), (4, 5, 30), (5, 6, 30)), edges(0, 3, 6))
    assert energies.energy_j == pytest.approx([30, 90])
    assert energies.by_plateau.all()


def test_a_stretch_without_any_window_is_void_and_its_neighbours_are_not() -> None:
    energies = curve(windows((0, 1, 10), (5, 6, 30)), edges(0, 1, 2, 4, 5, 6))
    assert energies.void.tolist() == [False, True, True, True, False]
    outside = curve(windows((0, 1, 10)), edges(-2, -1, 0.5, 3, 4))
    assert outside.void.tolist() == [True, False, False, True]
    assert outside.energy_j[1:3] == pytest.approx([15, 25])


def test_no_windows_at_all_are_void() -> None:
    assert integrate([], edges(0, 1, 2), {"system": FINE})["system"].void.all()


def test_the_meters_own_counter_fills_a_gap() -> None:
    gap = windows((0, 1, 10), (1, 2, 10), (4, 5, 30), (5, 6, 30), counter=[10, 20, 100, 130])
    energies = curve(gap, edges(0, 6), Resolution(0, 0, 0.01))
    assert energies.energy_j[0] == pytest.approx(130)
    assert (energies.by_plateau[0], energies.by_counter[0]) == (False, True)
    assert energies.filled_j[0] == pytest.approx(0.01 / np.sqrt(6))
    coarse = curve(gap, edges(0, 6), Resolution(0, 0, 360))
    assert (coarse.by_plateau[0], coarse.by_counter[0]) == (True, False)


@pytest.mark.parametrize(
    ("jump_j", "is_open"),
    [(0, False), (60, False), (200, True), (14_400, True), (43.2e9, True), (-300, True)],
)
def test_a_counter_beyond_the_power_on_both_sides_leaves_the_gap_open(
    jump_j: float, is_open: bool
) -> None:
    """58 and 62 W in turn; the counter agrees except in a gap of 8 s."""
    ends = [*range(1, 7), *range(15, 21)]
    counts = [60.0 * t + (jump_j if t > 6 else 0) for t in ends]
    gap = windows(*((t - 1.0, float(t), 58.0 + 4 * (t % 2)) for t in ends), counter=counts)
    energies = curve(gap, edges(0, 20), Resolution(0, 0, 0.01))
    assert (energies.gap_open[0], energies.by_counter[0]) == (is_open, not is_open)
    assert energies.energy_j[0] == pytest.approx(1200 + (0 if is_open else jump_j), abs=5)


@pytest.mark.parametrize(
    ("meanwhile_w", "is_open"), [(20, True), (60, False), (130, False), (200, False), (330, True)]
)
def test_a_counter_fills_a_gap_up_to_the_higher_of_two_powers(
    meanwhile_w: float, is_open: bool
) -> None:
    """60 W before a gap of 8 s, 200 W after it."""
    ends = [*range(1, 7), *range(15, 21)]
    powers = [60.0] * 6 + [200.0] * 6
    counts = [60.0 * t if t < 7 else 360 + 8 * meanwhile_w + 200 * (t - 14) for t in ends]
    each = [(t - 1.0, float(t), p) for t, p in zip(ends, powers, strict=True)]
    energies = curve(windows(*each, counter=counts), edges(0, 20), Resolution(0, 0, 0.01))
    assert (energies.gap_open[0], energies.by_counter[0]) == (is_open, not is_open)


def gapped(counted_w: float, power_w: float = 100.0, noise_w: float = 8.0) -> Windows:
    """9 windows of 1 s, 10 s of a gap, 9 more; the counter moves by another power."""
    ends = [*range(1, 10), *range(20, 29)]
    powers = power_w + np.random.default_rng(1).normal(0, noise_w, len(ends))
    each = [(t - 1.0, float(t), p) for t, p in zip(ends, powers, strict=True)]
    return windows(*each, counter=[counted_w * t for t in ends])


def test_a_counter_that_contradicts_the_power_fills_no_gap_and_is_flagged() -> None:
    """As that of a plug whose counter is the sum of two sockets, 100 W and 500 W."""
    fine = Resolution(0, 0, 0.01)
    for counted_w, is_used, is_contradicted in [
        (100.0, True, False),
        (104.0, True, False),
        (200.0, False, True),
        (600.0, False, True),
        (0.1, False, True),
        (100_000.0, False, True),
    ]:
        energies = curve(gapped(counted_w), edges(0, 28), fine)
        assert (energies.by_counter[0], energies.by_plateau[0]) == (is_used, not is_used)
        assert energies.counter_contradicted == is_contradicted
        assert energies.energy_j[0] == pytest.approx(2800, rel=0.05)


def test_one_high_reading_still_contradicts_the_counter() -> None:
    gap = gapped(100.0)
    gap.power_w["system"][4] = 6553.5
    assert curve(gap, edges(0, 28), Resolution(0, 0, 0.01)).counter_contradicted


@pytest.mark.parametrize("size", [1, 2, 3, 5, 18])
def test_a_counter_is_compared_alike_in_pieces_of_any_size(size: int) -> None:
    """Windows that come in pieces, and a counter that is known in one of three alone."""
    for counted_w in (100.0, 600.0):
        at_once = gapped(counted_w, noise_w=0.0)
        counter = np.array(at_once.energy_j["system"])
        counter[np.arange(len(counter)) % 3 != 2] = np.nan
        check, power_w = CounterCheck(), at_once.power_w["system"]
        for begin in range(0, 18, size):
            piece = Piece.cut(at_once, begin, min(begin + size, 18))
            check.take(piece, power_w, counter)
        assert (check.counted_j, check.measured_j) == pytest.approx((12 * counted_w, 1200))
        assert (check.agrees(0.01), check.contradicts(0.01)) == (counted_w == 100, counted_w == 600)


def test_behind_a_gap_only_the_next_window_gives_the_step() -> None:
    powers = windows((0, 1, 30), (1, 2, 30), (5, 6, 41), (6, 7, 50), (7, 8, 50))
    energies = curve(powers, edges(0, 5.3, 8))
    assert energies.energy_j[1] == pytest.approx(0.7 * 50 + 100)


@pytest.mark.parametrize(
    ("records", "counter", "at_s"),
    [
        # It was never compared with its power.
        (((0, 1, 10), (4, 5, 30), (8, 9, 30)), [10, 100, 200], (0, 9)),
        # It does not show on which side of an edge the energy of a gap is.
        (((0, 1, 10), (1, 2, 10), (4, 5, 30), (5, 6, 30)), [10, 20, 120, 150], (0, 3, 6)),
        # It fell or was reset.
        (((0, 1, 10), (1, 2, 10), (4, 5, 30), (5, 6, 30)), [10, 20, 5, 35], (0, 6)),
    ],
)
def test_a_counter_that_cannot_give_a_gaps_energy_fills_none(
    records: tuple[tuple[float, float, float], ...], counter: list[float], at_s: tuple[float, ...]
) -> None:
    gap = windows(*records, counter=counter)
    energies = curve(gap, edges(*at_s), Resolution(0, 0, 0.01))
    assert energies.by_plateau.all() and not energies.counter_contradicted


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[Windows], list[Edge]]:
    """Windows with gaps, in pieces of any size, and edges with or without rest."""
    count = draw(st.integers(4, 400))
    seed = draw(st.integers(0, 2**32 - 1))
    generator = np.random.default_rng(seed)
    width = generator.integers(5_000_000, 15_000_000, count)
    gap = np.where(generator.uniform(size=count) < 0.05, generator.integers(0, 10**8, count), 0)
    end = np.cumsum(width + gap) + draw(st.integers(0, 10**15))
    power = generator.uniform(1, 100, count)
    pieces = np.split(np.arange(count), sorted(generator.integers(1, count, 3)))
    stream = [
        Windows(
            (end - width)[p],
            end[p],
            np.ones(len(p), np.int64),
            {"a": power[p], "b": 100 - power[p]},
        )
        for p in pieces
        if len(p)
    ]
    times = sorted(set(generator.integers(end[0], end[-1] + 1, draw(st.integers(2, 20))).tolist()))
    sides = generator.choice(["", "before", "after"], len(times))
    at = [Edge(t, side or None, 10**8, 10**6) for t, side in zip(times, sides, strict=True)]
    return stream, [Edge(int(end[0] - width[0])), *at, Edge(int(end[-1]) + 1)]


@settings(max_examples=150)
@given(streams())
def test_stretches_add_up_to_their_total_with_any_edges(
    case: tuple[list[Windows], list[Edge]],
) -> None:
    stream, at = case
    fine = {"a": FINE, "b": FINE}
    parts = integrate(stream, at, fine)
    for name in fine:
        measured = (
            sum(float((w.power_w[name] * (w.end_ns - w.start_ns)).sum()) for w in stream) * 1e-9
        )
        bare = integrate(stream, [at[0], at[-1]], fine)[name]
        gaps_j = float(bare.energy_j[0]) - measured
        assert gaps_j >= -1e-9
        # What was filled in depends on the stretch it lies in; all else must be what was measured.
        plain = integrate(stream, [Edge(e.t_ns) for e in at], fine)[name]
        ours, theirs = parts[name], plain
        assert abs(float(ours.energy_j.sum()) - float(theirs.energy_j.sum())) < 1e-6
        assert abs(float(ours.covered_s.sum()) - float(bare.covered_s[0])) < 1e-9
        if not plain.by_plateau.any():
            assert abs(float(theirs.energy_j.sum()) - measured) < 1e-6


@settings(max_examples=60)
@given(streams())
def test_pieces_give_the_same_result_as_one(case: tuple[list[Windows], list[Edge]]) -> None:
    stream, at = case
    names = ("a", "b")
    at_once = Windows(
        np.concatenate([w.start_ns for w in stream]),
        np.concatenate([w.end_ns for w in stream]),
        np.concatenate([w.epoch for w in stream]),
        {name: np.concatenate([w.power_w[name] for w in stream]) for name in names},
    )
    fine = dict.fromkeys(names, FINE)
    ours, theirs = integrate(stream, at, fine), integrate([at_once], at, fine)
    for name in names:
        assert ours[name].energy_j == pytest.approx(theirs[name].energy_j, abs=1e-9)
        assert ours[name].split_j == pytest.approx(theirs[name].split_j, abs=1e-9)
        assert ours[name].filled_j == pytest.approx(theirs[name].filled_j, abs=1e-9)
        assert ours[name].count.tolist() == theirs[name].count.tolist()
        assert ours[name].window.tolist() == theirs[name].window.tolist()
        assert ours[name].void.tolist() == theirs[name].void.tolist()


def test_a_microjoule_is_resolved_after_ten_million_megajoules() -> None:
    """Where the total's last bit is worth 2 mJ, a phase of a joule is still exact."""
    count, far = 40_000, 500
    power = np.full(count, 3e8)
    power[-far:] = 0.123456
    end = np.arange(1, count + 1) * S
    stream = [
        Windows(end[p] - S, end[p], np.ones(len(p), np.int64), {"system": power[p]})
        for p in np.split(np.arange(count), [9_000, 22_000, 39_700])
    ]
    at = [Edge(0), *(Edge(int(t)) for t in end[-101::10])]
    energies = integrate(stream, at, {"system": FINE})["system"]
    assert np.abs(energies.energy_j[1:] - 1.23456).max() < 1e-9


def test_an_edge_may_be_where_two_pieces_meet() -> None:
    end = np.arange(1, 1_001) * S
    power = np.arange(1_000.0)
    ones = np.ones(1_000, np.int64)
    at = [Edge(0), *(Edge(int(t)) for t in end[9::10])]
    starts = [
        integrate(
            [Windows(end[p] - S, end[p], ones[p], {"system": power[p]}) for p in pieces],
            at,
            {"system": FINE},
        )["system"]
        for pieces in (np.split(np.arange(1_000), range(NEAR + 9, 1_000, 10)), [np.arange(1_000)])
    ]
    for energies in starts:
        assert set(energies.count) == {10}
        assert energies.steps_w2 == pytest.approx(np.full(100, 9.0))


def metered(powers: list[float], edge_s: list[float]) -> Metered:
    fine = 0.001 * (np.arange(len(powers)) % 3)  # a last digit that counts for nothing
    return metered_of(np.array(powers) + fine, edges(*edge_s))


def test_a_counter_that_contradicts_its_power_is_flagged_on_every_stretch() -> None:
    frame = table([k + 1.0 for k in range(30)], window_s=1.0)
    power_w = np.full(30, 50.0) + 0.001 * (np.arange(30) % 3)
    frame = frame.with_columns(power_w_system=power_w)
    for counted_w, flags in ((50.0, ()), (150.0, ("counter-contradicted",))):
        counted = frame.with_columns(energy_j_system=counted_w * (np.arange(30) + 1.0))
        energies = Metered.from_samples(
            samples.of_table(counted), "poll", 0.0, ["system"], set(edges(5.0, 20.0))
        )
        assert energies.energy("system", [(5 * S, 20 * S)]).flags == flags


@pytest.mark.parametrize(
    ("lost", "counter", "flags"),
    [
        ((8, 13), False, ("gap-filled",)),
        ((8, 17), False, ("no-samples",)),
        ((8, 17), True, ("gap-filled",)),  # the counter agrees, and the power is finer
    ],
)
def test_a_time_of_which_most_is_missing_has_joules_only_by_a_counter(
    lost: tuple[int, int], counter: bool, flags: tuple[str, ...]
) -> None:
    frame = table([k + 1.0 for k in range(30)], window_s=1.0)
    frame = frame.with_columns(power_w_system=np.full(30, 50.0) + 0.001 * (np.arange(30) % 3))
    if counter:
        frame = frame.with_columns(energy_j_system=50.0 * (np.arange(30) + 1.0))
    kept = frame.filter(~pl.int_range(pl.len()).is_between(*lost))
    meter = samples.of_table(kept), "poll", 0.0, ["system"], set(edges(5.0, 20.0))
    energy = Metered.from_samples(*meter).energy("system", [(5 * S, 20 * S)])
    assert energy.flags == flags
    assert (energy.energy_j is None) == (flags == ("no-samples",))


def test_phases_and_pauses_add_up_and_count_each_cut_once() -> None:
    powers = [20, 20, 20, 40, 60, 60, 60, 35, 20, 20, 49, 60, 60, 60, 60, 29, 20, 20, 20]
    energies = metered([float(p) for p in powers], [3.4, 7.5, 10.2, 15.15])
    a, b, c, d = (round(t * S) for t in (3.4, 7.5, 10.2, 15.15))
    parts = [energies.energy("system", [pair]).energy_j for pair in ((a, b), (b, c), (c, d))]
    run_energy = energies.energy("system", [(a, d)])
    assert None not in parts
    assert sum(p or 0 for p in parts) == pytest.approx(run_energy.energy_j, abs=1e-9)
    cuts = energies.curves["system"].split_j
    assert run_energy.statistical_j == pytest.approx(float(np.hypot(cuts[0], cuts[3])), rel=0.1)
    together = energies.energy("system", [(a, b), (b, c)])
    once = energies.energy("system", [(a, c)])
    assert together.energy_j == pytest.approx(once.energy_j, abs=1e-9)
    assert together.statistical_j == pytest.approx(once.statistical_j, rel=0.05)


def test_two_phases_within_a_window_share_its_uncertainty() -> None:
    """What one phase was given too much of the window, the next one was given too little."""
    powers = [20.0, 20, 20, 40, 60, 60, 60, 35, 20, 20, 49, 60, 60, 60, 60, 29, 20, 20, 20]
    energies = metered(powers, [3.4, 7.5, 7.501, 15.15])
    a, b, c, d = (round(t * S) for t in (3.4, 7.5, 7.501, 15.15))
    apart = [energies.energy("system", [pair]).statistical_j or 0 for pair in ((a, b), (c, d))]
    together = known(energies.energy("system", [(a, b), (c, d)]).statistical_j)
    assert together == pytest.approx(energies.energy("system", [(a, d)]).statistical_j, rel=0.02)
    assert together < 0.8 * float(np.hypot(apart[0], apart[1]))


def test_of_edges_at_one_instant_the_one_with_a_rest_counts() -> None:
    with_rest = Edge(3 * S, "before", 2 * S)
    every = {Edge(0), Edge(3 * S), with_rest, Edge(9 * S)}
    energies = metered_of([10.0] * 9, every)
    assert energies.edges == (Edge(0), with_rest, Edge(9 * S))


def test_a_rest_begins_where_its_windows_are_at_its_level() -> None:
    steady = np.array([20.1, 20.0, 20.2, 20.1, 20.0])
    assert level_part(steady, 0.1) == (0, 5)
    assert level_part(np.array([35.0, *steady]), 0.1) == (1, 6)
    assert level_part(np.array([12.0, *steady]), 0.1) == (1, 6)
    assert level_part(np.array([90.0, 50.0, 25.0, *steady, 31.0]), 0.1) == (3, 8)
    assert level_part(np.array([90.0, 80.0, 70.0, 60.0, *steady, *steady]), 0.1) == (14, 14)


def test_few_windows_or_the_last_digit_leave_a_rest_level() -> None:
    assert level_part(np.array([35.0, 20.0, 20.1]), 0.1) == (0, 3)
    assert level_part(np.array([20.1, 20.0, 20.0, 20.0, 20.0]), 0.1) == (0, 5)


def test_a_rest_that_cools_has_the_power_of_its_edge_there() -> None:
    noise_w = np.random.default_rng(1).normal(0, 0.1, 12)
    assert level_w(20 + noise_w)[0] == pytest.approx(20 + noise_w.mean())
    sloped_w, variance_w2 = level_w(26 - 0.5 * (np.arange(12) + 0.5) + noise_w)
    assert sloped_w == pytest.approx(26, abs=0.2)
    assert 0.1**2 < variance_w2 < 4 * 0.2**2


@pytest.mark.parametrize("late_s", [0.0, 0.08])
def test_a_late_meter_widens_the_interval_by_its_delay(late_s: float) -> None:
    """Sixteen loads of 40 W for 3.07 s, with rests of 2 s between, in windows of 0.1 s."""
    generator = np.random.default_rng(3)
    starts_s = 2.0 + 5.03 * np.arange(16) + 0.015
    edges_s = np.column_stack([starts_s, starts_s + 3.07]).ravel()
    end_s = 0.1 * np.arange(1, 850)
    load_s = np.interp(end_s - late_s, edges_s, np.cumsum(np.tile([0.0, 3.07], 16)))
    power_w = 20 + 40 * np.diff(load_s, prepend=0.0) / 0.1
    readings_w = np.rint((power_w + generator.normal(0, 0.05, 849)) * 1e3) / 1e3
    ends_ns = np.rint(edges_s * 1e9).astype(np.int64).tolist()
    edges = {Edge(t, "before", 1_900_000_000, 1000) for t in ends_ns[::2]}
    edges |= {Edge(t, "after", 1_900_000_000, 1000) for t in ends_ns[1::2]}
    energies = metered_of(readings_w, edges, window_s=0.1, limit_s=1e-6)
    energy = energies.energy("system", [(ends_ns[6], ends_ns[7])])
    assert energy.statistical_j is not None
    apart_s = energy.statistical_j / 40 / np.sqrt(2)
    assert apart_s == pytest.approx(late_s, abs=0.01 if late_s == 0 else 0.06)


def test_the_excess_of_a_cut_window_may_be_lasting_load() -> None:
    """60 W, then rest at 20 W from half of a window of 0.1 s: 40 W is its mean, and no more."""
    assert lasting(np.array([60.0, 40.0]), 0.1, 0.05, 20.0) == pytest.approx(0, abs=1e-12)
    assert lasting(np.array([60.0, 44.0]), 0.1, 0.05, 20.0) == pytest.approx(0.4 / np.sqrt(6))
    assert lasting(np.array([60.0, 36.0]), 0.1, 0.05, 20.0) == 0
    most_j = 40 * LASTING_S
    assert lasting(np.array([60.0, 60.0]), 0.1, 0.05, 20.0) == pytest.approx(most_j / np.sqrt(6))


def test_rests_limit_the_noise() -> None:
    resolution = Resolution(quantum_w=0.001, noise_w=5.0)
    quieter = resolution.with_rests(100 * 0.3**2, 100)
    assert 0.3 < quieter.noise_w < 0.36
    assert 0.3 < resolution.with_rests(3 * 0.3**2, 3).noise_w < 2  # few say less
    assert resolution.with_rests(0.0, 0) == resolution
    assert Resolution(0.001, 0.01).with_rests(9.0, 100).noise_w == 0.01


def rested(powers_w: list[float], rest_ns: int = 6 * S) -> Metered:
    """Windows of a second; after 4.5 s the machine is said to rest for so long."""
    return metered_of(powers_w, [Edge(0), Edge(9 * S // 2, "after", rest_ns)])


def measured(powers_w: list[float]) -> tuple[float, float]:
    """Energy from 0 to 4.5 s and its doubt."""
    energy = rested(powers_w).energy("system", [(0, 9 * S // 2)])
    assert energy.energy_j is not None and energy.statistical_j is not None
    return energy.energy_j, energy.statistical_j


def test_load_beyond_its_mark_does_not_count_for_the_phase() -> None:
    rest_w = [20.0, 20.1, 20.0, 20.1, 20.0, 20.1]
    held, _ = measured([60.0] * 4 + [40.0, *rest_w])
    assert held == pytest.approx(4 * 60 + 30, abs=0.2)
    # The whole of the cut window and half of the next is work: 30 J of it are the phase's, not 48.
    outlasting, _ = measured([60.0] * 4 + [60.0, 40.0, *rest_w])
    assert outlasting == pytest.approx(4 * 60 + 30, abs=9)


def test_a_burst_at_the_end_widens_the_uncertainty() -> None:
    rest_w = [20.0, 20.1, 20.0, 20.1, 20.0, 20.1]
    _, calm = measured([60.0] * 4 + [40.0, *rest_w])
    _, burst = measured([60.0] * 4 + [45.0, *rest_w])
    assert burst > calm + 0.2


def test_a_short_rest_gives_the_noise() -> None:
    work = [60.0, 30.0, 55.0, 35.0]
    energies = rested([*work, 40.0, 20.0, 20.1, 20.0, *work, *work], 7 * S // 2)
    assert energies.resolutions["system"].noise_w < 0.3


CLOCK = TargetClock.fit(
    [ClockReading(t_send_ns=0, t_target_ns=500, t_receive_ns=1_000, boot_id="boot")]
)


def run(*phases: tuple[str, float, float], start_s: float) -> Run:
    return run_of(
        t_start_ns=round(start_s * S),
        t_end_ns=round(phases[-1][2] * S),
        phases=tuple(Phase(n, round(a * S), round(b * S), (), {}) for n, a, b in phases),
    )


def sides(run: Run, plan: dict[str, float]) -> dict[float, tuple[str | None, float]]:
    edges: dict[int, Edge] = run_edges(run, plan_of(**plan), CLOCK)
    return {t / S: (edge.rest, edge.rest_ns / S) for t, edge in edges.items()}


NO_REST = (None, 0)


@pytest.mark.parametrize(
    ("phases", "plan", "rests"),
    [
        (
            [("load", 10.001, 12), ("query", 12.0001, 15), ("tail", 15.001, 17)],
            {"settle_s": 5},
            {10.001: ("before", 5)},
        ),
        # What a workload does before its first phase is not rest.
        ([("load", 10.5, 12), ("tail", 12.0001, 13)], {"settle_s": 5}, {}),
        (
            [("load", 10.5, 12), ("tail", 12.0001, 13)],
            {"settle_s": 5, "pad_s": 3},
            {12: NO_REST, 10.5: NO_REST},
        ),
        # From 20 to 24 s there is something between two paddings; before the tail there is one.
        (
            [("a", 13.001, 15), ("b", 18.002, 20), ("c", 27.0, 29), ("tail", 32.001, 34)],
            {"settle_s": 5, "pad_s": 3},
            {
                13.001: ("before", 8),
                15: ("after", 3),
                18.002: ("before", 3),
                20: ("after", 3),
                27: ("before", 3),
                29: ("after", 3),
                32.001: ("before", 3),
            },
        ),
        # A phase that begins long after the padding has no rest before it.
        (
            [("a", 13, 15), ("b", 20, 22), ("tail", 25, 26)],
            {"pad_s": 3},
            {13: ("before", 3), 15: ("after", 3), 22: ("after", 3), 25: ("before", 3)},
        ),
    ],
)
def test_rests_next_to_the_edges_of_phases(
    phases: list[tuple[str, float, float]],
    plan: dict[str, float],
    rests: dict[float, tuple[str | None, float]],
) -> None:
    times = {t for _, start, end in phases for t in (start, end)}
    assert sides(run(*phases, start_s=10), plan) == dict.fromkeys(times, NO_REST) | rests


def test_edges_have_the_clocks_bound_and_none_on_an_unknown_boot() -> None:
    finished = run(("a", 13, 15), start_s=10)
    assert all(edge.bound_ns > 0 for edge in run_edges(finished, plan_of(), CLOCK).values())
    assert run_edges(finished, plan_of(), TargetClock({})) == {}


@pytest.mark.parametrize("seconds", [math.nan, math.inf, 1e300, 10**400, -1, "5", None])
@pytest.mark.parametrize("key", ["settle_s", "pad_s"])
def test_a_rest_of_impossible_length_is_refused(key: str, seconds: object) -> None:
    names = {"format": "fde-plan/3", "origin": "modelled", "sha256": ""}
    plan = {**names, **dict.fromkeys(("suite_id", "suite", "host"), "s"), key: seconds}
    with pytest.raises((ValueError, OverflowError)):
        schema.read(SuitePlan, plan)
