from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.energy.counter_check import CounterCheck
from analysis.energy.curve import Curve, Edge, Piece
from analysis.energy.integrate import NEAR, integrate
from analysis.energy.metered import Metered
from analysis.energy.uncertainty import Resolution
from analysis.energy.windows import Windows
from analysis.suite import samples
from analysis.tests.known import known
from analysis.tests.test_align import table

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


def test_a_window_counts_with_its_share_inside() -> None:
    energies = curve(windows((0, 1, 10), (1, 2, 20), (2, 3, 40)), edges(0.5, 2.25))
    assert energies.energy_j[0] == pytest.approx(0.5 * 10 + 20 + 0.25 * 40)
    assert energies.covered_s[0] == pytest.approx(1.75)
    assert (energies.split_j > 0).all()


def test_a_step_at_the_mark_is_found_though_a_window_straddles_it() -> None:
    """20 W up to 3.3 s and 50 W after: the window from 3 to 4 s says 41 W."""
    energies = curve(grid([20, 20, 20, 41, 50, 50, 50]), edges(0, 3.3, 7))
    assert energies.energy_j == pytest.approx([66, 185])
    assert energies.split_j[1] == pytest.approx(0, abs=1e-9)


def test_what_a_step_at_the_mark_leaves_of_a_window_may_lie_on_either_side() -> None:
    """35 W instead of 41 W: 6 J that came after the mark, or before it, by its share."""
    energies = curve(grid([20, 20, 20, 35, 50, 50, 50]), edges(0, 3.3, 7))
    assert energies.split_j[1] == pytest.approx(6 * np.sqrt(0.3 * 0.7))


def test_a_rest_shorter_than_a_window_leaves_the_loads_beside_it_their_power() -> None:
    """60 W but for 10 W from 2.3 to 2.8 s: the window from 2 to 3 s says 35 W."""
    energies = curve(grid([60, 60, 35, 60, 60]), edges(0, 2.3, 2.8, 5))
    assert energies.energy_j == pytest.approx([138, 5, 132])
    share_j = np.array([0.3 * 35, -0.2 * 35]) - np.array([18, -12])
    assert (energies.split_j[1:3] > abs(share_j) / np.sqrt(3)).all()  # its share is not excluded


def test_what_lies_between_two_edges_of_a_window_is_never_below_nothing() -> None:
    """60 W and 20 W would leave −1 J for the tenth between: so they meet there."""
    energies = curve(grid([60, 60, 35, 20, 20]), edges(0, 2.45, 2.55, 5))
    assert energies.energy_j[1] == pytest.approx(3.5)


def test_by_one_neighbour_the_other_side_has_at_most_twice_the_windows_power() -> None:
    """10 W before the mark would leave 100 W for the tenth behind it; the next window is cut."""
    energies = curve(grid([10, 10, 19, 30, 40, 40]), edges(0, 2.9, 3.5, 6))
    assert energies.energy_j[0] == pytest.approx(20 + 19 - 0.1 * 2 * 19)


def test_between_two_other_cuts_only_the_share_is_left() -> None:
    energies = curve(grid([20, 20, 41, 50, 50, 50]), edges(0, 1.5, 2.3, 3.5, 6))
    assert energies.energy_j[1] == pytest.approx(0.5 * 20 + 0.3 * 41)
    assert energies.split_j[2] == pytest.approx(30 * 0.3 * 0.7 / np.sqrt(3))


def test_rest_beside_an_edge_tells_what_a_cut_window_held() -> None:
    """20 W of rest up to 4.3 s, then bursts: no neighbour tells what the window holds after it."""
    powers = [20.0, 20, 20, 20, 62, 35, 90, 70, 24, 20, 20, 20]
    at = [Edge(0), Edge(round(4.3 * S), "before", 4 * S), Edge(round(8.1 * S), "after", 3 * S)]
    energies = curve(grid(powers), [*at, Edge(12 * S)])
    assert energies.energy_j[1] == pytest.approx(62 - 0.3 * 20 + 35 + 90 + 70 + 24 - 0.9 * 20)
    assert energies.energy_j.sum() == pytest.approx(sum(powers))
    assert energies.slope_w[1:3] == pytest.approx([20, 20])
    assert energies.split_j[1:3] == pytest.approx([0, 0], abs=1e-9)


def test_rest_is_reckoned_from_windows_that_are_at_rest_even_if_displaced() -> None:
    """Windows up to 0.2 s late: the one that ends 0.1 s before the edge may hold load."""
    powers = [20.0, 20, 20, 26, 50, 50]
    at = [Edge(0), Edge(round(4.1 * S), "before", 4 * S), Edge(6 * S)]
    energies = curve(grid(powers), at, late_s=0.2)
    assert energies.energy_j[1] == pytest.approx(26 + 50 + 50 - 1.1 * 20)


def test_too_little_rest_is_none() -> None:
    at = [Edge(0), Edge(round(2.5 * S), "before", round(1.6 * S)), Edge(5 * S)]
    assert curve(grid([20, 20, 35, 50, 50]), at).window[1] == 2


def test_a_gap_is_filled_from_both_sides_and_told() -> None:
    energies = curve(windows((0, 1, 10), (1, 2, 12), (4, 5, 30), (5, 6, 32)), edges(0, 6))
    assert energies.covered_s[0] == pytest.approx(4)
    assert energies.energy_j[0] == pytest.approx(84 + 2 * 21)
    assert (energies.by_plateau[0], energies.by_counter[0], energies.void[0]) == (
        True,
        False,
        False,
    )
    assert energies.filled_j[0] > 2 * (32 - 10) / np.sqrt(12) * 0.99


def test_a_gap_over_an_edge_is_filled_on_each_side_by_its_own() -> None:
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
    gap = windows((0, 1, 10), (1, 2, 10), (4, 5, 30), (5, 6, 30), counter=[10, 20, 120, 150])
    energies = curve(gap, edges(0, 6), Resolution(0, 0, 0.01))
    assert energies.energy_j[0] == pytest.approx(150)
    assert (energies.by_plateau[0], energies.by_counter[0]) == (False, True)
    assert energies.filled_j[0] == pytest.approx(0.01 / np.sqrt(6))
    coarse = curve(gap, edges(0, 6), Resolution(0, 0, 360))
    assert (coarse.by_plateau[0], coarse.by_counter[0]) == (True, False)


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


def test_one_reading_far_above_the_counter_does_not_excuse_itself() -> None:
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
            piece = Piece.of(at_once, begin, min(begin + size, 18))
            check.take(piece, power_w, counter)
        assert (check.counted_j, check.measured_j) == pytest.approx((12 * counted_w, 1200))
        assert (check.agrees(0.01), check.contradicts(0.01)) == (counted_w == 100, counted_w == 600)


def test_a_counter_that_was_never_seen_beside_its_power_fills_no_gap() -> None:
    gap = windows((0, 1, 10), (4, 5, 30), (8, 9, 30), counter=[10, 100, 200])
    alone = curve(gap, edges(0, 9), Resolution(0, 0, 0.01))
    assert (alone.by_plateau[0], alone.counter_contradicted) == (True, False)


def test_a_counter_does_not_tell_how_a_gap_over_an_edge_is_shared() -> None:
    gap = windows((0, 1, 10), (1, 2, 10), (4, 5, 30), (5, 6, 30), counter=[10, 20, 120, 150])
    assert curve(gap, edges(0, 3, 6), Resolution(0, 0, 0.01)).by_plateau.all()


def test_behind_a_gap_only_the_window_that_follows_tells_of_a_step() -> None:
    powers = windows((0, 1, 30), (1, 2, 30), (5, 6, 41), (6, 7, 50), (7, 8, 50))
    energies = curve(powers, edges(0, 5.3, 8))
    assert energies.energy_j[1] == pytest.approx(0.7 * 50 + 100)


def test_a_counter_that_fell_or_was_reset_fills_nothing() -> None:
    gap = windows((0, 1, 10), (4, 5, 30), counter=[500, 30])
    assert curve(gap, edges(0, 5), Resolution(0, 0, 0.01)).by_plateau[0]


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
def test_stretches_add_up_to_the_whole_whatever_the_edges_assume(
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
def test_pieces_give_what_the_whole_gives(case: tuple[list[Windows], list[Edge]]) -> None:
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


def test_a_microjoule_is_kept_behind_ten_million_megajoules() -> None:
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


def test_an_edge_at_the_end_of_a_window_may_stand_where_two_pieces_meet() -> None:
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


def metered(powers: list[float], edge_s: list[float], kind: str = "poll") -> Metered:
    frame = table([k + 1.0 for k in range(len(powers))], window_s=1.0)
    fine = 0.001 * (np.arange(len(powers)) % 3)  # a last digit that counts for nothing
    frame = frame.with_columns(power_w_system=np.array(powers) + fine)
    return Metered.of(samples.of_table(frame), kind, 0.0, ["system"], set(edges(*edge_s)))


def test_a_counter_that_contradicts_its_power_is_flagged_on_every_stretch() -> None:
    frame = table([k + 1.0 for k in range(30)], window_s=1.0)
    power_w = np.full(30, 50.0) + 0.001 * (np.arange(30) % 3)
    frame = frame.with_columns(power_w_system=power_w)
    for counted_w, flags in ((50.0, ()), (150.0, ("counter-contradicted",))):
        counted = frame.with_columns(energy_j_system=counted_w * (np.arange(30) + 1.0))
        energies = Metered.of(
            samples.of_table(counted), "poll", 0.0, ["system"], set(edges(5.0, 20.0))
        )
        assert energies.energy("system", [(5 * S, 20 * S)]).flags == flags


def test_phases_and_pauses_are_the_run_and_no_phase_counts_a_cut_twice() -> None:
    powers = [20, 20, 20, 40, 60, 60, 60, 35, 20, 20, 49, 60, 60, 60, 60, 29, 20, 20, 20]
    energies = metered([float(p) for p in powers], [3.4, 7.5, 10.2, 15.15])
    a, b, c, d = (round(t * S) for t in (3.4, 7.5, 10.2, 15.15))
    parts = [energies.energy("system", [pair]).energy_j for pair in ((a, b), (b, c), (c, d))]
    run_energy = energies.energy("system", [(a, d)])
    assert None not in parts
    assert sum(p or 0 for p in parts) == pytest.approx(run_energy.energy_j, abs=1e-9)
    cuts = energies.curves["system"].split_j
    assert run_energy.statistical_j == pytest.approx(float(np.hypot(cuts[0], cuts[3])), rel=0.1)
    both = energies.energy("system", [(a, b), (b, c)])
    once = energies.energy("system", [(a, c)])
    assert both.energy_j == pytest.approx(once.energy_j, abs=1e-9)
    assert both.statistical_j == pytest.approx(once.statistical_j, rel=0.05)


def test_two_phases_that_meet_within_a_window_share_its_doubt() -> None:
    """What one phase was given too much of the window, the next one was given too little."""
    powers = [20.0, 20, 20, 40, 60, 60, 60, 35, 20, 20, 49, 60, 60, 60, 60, 29, 20, 20, 20]
    energies = metered(powers, [3.4, 7.5, 7.501, 15.15])
    a, b, c, d = (round(t * S) for t in (3.4, 7.5, 7.501, 15.15))
    apart = [energies.energy("system", [pair]).statistical_j or 0 for pair in ((a, b), (c, d))]
    together = known(energies.energy("system", [(a, b), (c, d)]).statistical_j)
    assert together == pytest.approx(energies.energy("system", [(a, d)]).statistical_j, rel=0.02)
    assert together < 0.8 * float(np.hypot(apart[0], apart[1]))


def test_of_edges_at_one_instant_the_one_that_knows_of_a_rest_is_taken() -> None:
    frame = table([k + 1.0 for k in range(9)], window_s=1.0)
    rest = Edge(3 * S, "before", 2 * S)
    every = {Edge(0), Edge(3 * S), rest, Edge(9 * S)}
    energies = Metered.of(samples.of_table(frame), "poll", 0.0, ["system"], every)
    assert energies.edges == (Edge(0), rest, Edge(9 * S))
