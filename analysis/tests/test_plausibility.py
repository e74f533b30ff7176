"""Readings that cannot be, change by one factor, or stand still."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import polars as pl
import pytest

from analysis.energy.curve import Edge
from analysis.energy.energy import energy_table, reference_rows, standing_components
from analysis.energy.metered import ONLY_RISES_FLAG, Energy, Metered
from analysis.energy.plausibility import (
    NEGATIVE_FLAG,
    STEP_FLAG,
    ZERO_FLAG,
    Constant,
    Odd,
    Power,
    Stuck,
    is_stepped,
)
from analysis.energy.standing import still_zones
from analysis.energy.windows import Windows, meets, missed_records
from analysis.stats.results import Results, stood_still
from analysis.suite.records import Counter, Phase, Run, Suite
from analysis.suite.samples import of_table
from analysis.tests.known import frame_of, metered_of, summarise, windows_of
from instrumentation.sources.counter import LONE_FLAG
from instrumentation.sources.standing import (
    ABOVE_TOTAL,
    BELOW_PART,
    STANDS_STILL,
    TOO_LITTLE,
    TOO_MUCH,
)

S = 1_000_000_000


def stuck_s(*parts: Sequence[float], begun_s: float = math.inf) -> list[tuple[float, float]]:
    """Return the stuck stretches in s of a 10 Hz recording that passes in these parts."""
    stuck = Stuck(np.array([begun_s * S] if begun_s < math.inf else [], np.int64))
    for piece in windows_of(parts, "system", S // 10):
        stuck.take(piece)
    return [(a / S, b / S) for a, b in zip(*stuck.stretches(), strict=True)]


@pytest.mark.parametrize(("channel", "flagged"), [("system", True), ("drive", False)])
def test_zero_power_of_the_machine_is_flagged(channel: str, flagged: bool) -> None:
    """A plug shows 0 W below 5 W: the whole machine takes some, a disk may take none."""
    power_w = np.array([40.0, 41, 40, 42, 0, 0, 0, 40, 41, 43, 40, 41])
    samples = of_table(frame_of(power_w, 1.0).rename({"power_w_system": f"power_w_{channel}"}))
    edges_ns = [0, 3 * S, 6 * S, 9 * S, 12 * S]
    metered = Metered.from_samples(
        samples, "poll", 0.0, [channel], {Edge(t_ns) for t_ns in edges_ns}
    )
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
def test_an_impossible_power_is_flagged(
    odd_w: dict[int, float], flag: str | None, figure: bool, size: int
) -> None:
    power_w = np.array([40.0, 41, 40, 42, 40, 41, 40, 40, 41, 43, 40, 41])
    power_w[list(odd_w)] = list(odd_w.values())
    odd = Odd("system")
    for piece in windows_of([power_w[k : k + size] for k in range(0, 12, size)], "system", S):
        odd.take(piece)
    odd.finish()
    assert odd.flags(float(power_w.sum()), [(0, 12 * S)]) == ({flag} if flag else set())
    assert not odd.flags(80.0, [(0, 2 * S)]) - ({flag} if not figure else set())
    energy = metered_of(power_w, [Edge(0), Edge(12 * S)]).energy("system", [(0, 12 * S)])
    assert (energy.energy_j is not None) == figure
    assert (flag in energy.flags) == (flag is not None)


@pytest.mark.parametrize(
    ("power_w", "is_power"),
    [
        ([12_345.0 + 60 * n for n in range(40)], False),  # a counter of joules
        ([12_345.0 + n // 2 for n in range(40)], False),
        ([12_345.0 + n // 4 for n in range(40)], True),  # too few rises
        ([60.0 + 0.1 * n for n in range(20)] + [60.0] * 20, True),
        ([60.0] * 40, True),
    ],
)
def test_readings_that_only_rise_are_no_power(power_w: list[float], is_power: bool) -> None:
    energy = metered_of(power_w, [Edge(0), Edge(40 * S)]).energy("system", [(0, 40 * S)])
    assert (energy.energy_j is not None) == is_power
    assert (ONLY_RISES_FLAG in energy.flags) != is_power


def test_a_lone_peak_in_a_rest_is_flagged() -> None:
    power_w = np.array([40.0, 41, 6_553.5, 42, 40, 41, 40, 40, 41, 43, 40, 41])
    metered = metered_of(power_w, [Edge(5 * S, "before", 4 * S), Edge(9 * S)])
    assert LONE_FLAG in metered.energy("system", [(5 * S, 9 * S)]).flags


@pytest.mark.parametrize(("mean_s", "rest_s"), [(1, 2), (1, 6), (2, 2), (3, 2), (3, 6), (5, 4)])
def test_a_slow_meter_is_right_or_flagged(mean_s: int, rest_s: int) -> None:
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
    metered = metered_of(power_w, edges, limit_s=1.5)
    for begin in begins:
        energy = metered.energy("system", [(round(begin * S), round((begin + 6) * S))])
        right = energy.energy_j == pytest.approx(960, rel=0.02)
        assert right or energy.unsure
        assert not (energy.unsure and (mean_s, rest_s) == (1, 6))


def noisy(count: int, power_w: float, seed: int = 1, digit_w: float = 0.001) -> list[float]:
    read_w = power_w + np.random.default_rng(seed).normal(0, 0.05, count)
    return list(np.rint(read_w / digit_w) * digit_w)


def test_a_constant_value_amid_noise_is_stuck() -> None:
    power_w = noisy(2000, 40.0)
    power_w[700:750] = [power_w[700]] * 50
    assert stuck_s(power_w) == [(70.0, 75.0)]
    assert stuck_s(power_w[:1000], power_w[1000:]) == [(70.0, 75.0)]
    assert stuck_s(noisy(20_000, 40.0)) == []


@pytest.mark.parametrize(("count", "figure"), [(600, False), (50, True)])
def test_a_phase_of_stuck_readings_has_no_joules(*, count: int, figure: bool) -> None:
    """The last value of a meter that died, repeated while the machine takes more."""
    power_w = noisy(2000, 40.0)
    power_w[700 : 700 + count] = [power_w[700]] * count
    ends = 50 * S, 150 * S
    metered = metered_of(power_w, map(Edge, (0, *ends)), window_s=0.1)
    energy = metered.energy("system", [ends])
    assert "stuck" in energy.flags and (energy.energy_j is not None) == figure
    assert metered.energy("system", [(0, ends[0])]).energy_j is not None


def test_a_few_records_show_that_a_meter_died_before_the_work() -> None:
    rest_w = [60.0 + 0.3 * (n % 7) for n in range(12)]
    died = [rest_w[-1]] * 12
    assert stuck_s(rest_w, died, begun_s=1.5) == [(1.2, 2.4)]
    assert stuck_s(rest_w, died) == []  # whether it works is unknown
    assert stuck_s(rest_w, died, begun_s=1.0) == []  # it changed with the work, and then no more
    assert stuck_s(rest_w[-2:], died, begun_s=0.5) == []  # too few at rest
    assert stuck_s([60.0] * 12, died, begun_s=1.5) == []
    assert stuck_s([60.0, 60.0, 60.0, 61.0] * 4, [61.0] * 5, begun_s=1.7) == []


def test_a_coarse_reading_at_rest_is_not_stuck() -> None:
    """It shows 8.0 W for minutes, and hardly twice the same under load."""
    idle_w = [8.0] * 3000
    work = noisy(3000, 40.0, digit_w=0.1)
    assert stuck_s(idle_w, work, idle_w[:900], work, idle_w) == []
    assert stuck_s([8.0] * 500) == []


def test_one_constant_channel_is_not_stuck() -> None:
    stuck = Stuck()
    end_ns = np.arange(1, 1001) * S
    power_w = {"system": np.array(noisy(1000, 40.0)), "drive": np.full(1000, 2.0)}
    held = Windows(end_ns - S, end_ns, np.ones(1000, np.int64), power_w)
    stuck.take(held)
    assert len(stuck.stretches()[0]) == 0


@pytest.mark.parametrize("late_s", [0.0, 0.35])
def test_a_duplicate_record_counts_minus_one(late_s: float) -> None:
    generator = np.random.default_rng(2)
    arrival_s = 0.1 * np.arange(1, 501) + generator.uniform(0, 0.01, 500)
    arrival_s[300:304] += late_s
    arrival_s = np.sort(np.append(np.maximum.accumulate(arrival_s), arrival_s[199] + 2e-4))
    width_ns = np.full(500, S // 10)
    missing = missed_records(np.rint(arrival_s * 1e9).astype(np.int64), width_ns)
    assert np.flatnonzero(missing).tolist() == [199]
    assert missing[199] == -1


def test_meets_is_true_for_overlapping_spans() -> None:
    spans = np.array([10, 30]), np.array([20, 40])
    assert [meets(spans, a, b) for a, b in ((0, 10), (0, 11), (20, 30), (39, 50), (40, 50))] == [
        False,
        True,
        False,
        True,
        False,
    ]


IDLE_W, LOADS_W = 20.0, (27.0, 50.0)
Course = Callable[[float, float], float]  # by the share of the time that has passed and W


def powers(course: Course, scatter: float = 0.01, seed: int = 7, times: int = 10) -> list[Power]:
    """Rests and two loads in turn."""
    generator = np.random.default_rng(seed)
    kinds = [kind for load_w in LOADS_W for kind in (IDLE_W, load_w)] * times
    return [
        Power(n * S, true_w, course(n / len(kinds), true_w) * np.exp(generator.normal(0, scatter)))
        for n, true_w in enumerate(kinds)
    ]


@pytest.mark.parametrize("until", [0.7, 1.0])
@pytest.mark.parametrize(("factor", "scatter"), [(0.8, 0.01), (1.2, 0.01), (0.95, 0.002)])
def test_a_factor_is_detected_even_if_it_ends(factor: float, scatter: float, until: float) -> None:
    stepped = powers(lambda share, w: w * (factor if 0.4 < share <= until else 1), scatter=scatter)
    assert is_stepped(stepped)


@pytest.mark.parametrize(
    "course",
    [
        lambda _, w: w,
        lambda share, w: w + (5 if share > 0.4 else 0),
        lambda share, w: w * (1.2 if share > 0.4 and w > IDLE_W else 1),
        lambda share, w: IDLE_W + (w - IDLE_W) * (1.5 if share > 0.4 else 1),
        lambda share, w: w * (1 + 0.2 * share),
        lambda share, w: w - 4 * np.exp(-share / 0.1),
        lambda share, w: w * (1.02 if share > 0.4 else 1),
    ],
    ids=["none", "watts", "load", "swing", "drift", "warming", "small"],
)
def test_other_changes_are_not_steps(course: Course) -> None:
    assert not is_stepped(powers(course, 0.001)) and not is_stepped(powers(course))


def test_a_step_of_loads_without_rests_is_the_machines() -> None:
    generator = np.random.default_rng(7)
    kinds = [IDLE_W, 27.0, 30.0, 33.0, 36.0, 39.0, 42.0, 45.0] * 10
    powers = [
        Power(n, w, w * (1.2 if n > 32 and w > IDLE_W else 1) * np.exp(generator.normal(0, 0.01)))
        for n, w in enumerate(kinds)
    ]
    assert not is_stepped(powers)


def test_warming_up_and_noise_are_not_steps() -> None:
    for seed in range(12):
        warming = powers(lambda share, w: w * (1 - 0.2 * np.exp(-share / 0.2)), seed=seed, times=30)
        assert not is_stepped(warming)
        assert not is_stepped(powers(lambda _, w: w, 0.08, seed, 30))


def test_loads_of_one_power_show_no_factor() -> None:
    assert not is_stepped(
        [p for p in powers(lambda s, w: w * (1.2 if s > 0.4 else 1)) if p.kind == 20]
    )


def test_a_hidden_change_of_range_is_detected() -> None:
    generator = np.random.default_rng(3)
    power_w = np.tile(np.repeat([20.0, 32.0], 10), 12) + generator.normal(0, 0.05, 240)
    phases = [("load", round((20 * n + 10) * S), round((20 * n + 20) * S)) for n in range(11)]
    edges = {Edge(start, "before", 9 * S) for _, start, _ in phases}
    edges |= {Edge(end, "after", 9 * S) for _, _, end in phases}
    for factor in (1.0, 1.2):
        power_w[113:] *= factor
        metered = metered_of(power_w, edges)
        assert metered.is_stepped("system", phases) == (factor > 1)


# From which share of the recording to which.
WHEN = {
    "always": (0.0, 1.0),
    "from a third on": (1 / 3, 1.0),
    "the first third": (0.0, 1 / 3),
    "the second half": (0.5, 1.0),
    "in the middle": (0.4, 0.6),
}


def with_channels_still(
    suite: Suite, channels: Collection[str], when: tuple[float, float]
) -> Suite:
    """Channels of the meter that give the value of the moment in which they stopped."""
    (meter,) = suite.meters
    table = pl.concat(meter.samples.tables(meter.samples.columns))
    first, last = (round(share * (len(table) - 1)) for share in when)
    row = pl.int_range(pl.len())
    within = (row >= first) & (row <= last)
    columns = [f"power_w_{name}" for name in channels]
    table = table.with_columns(
        pl.when(within).then(pl.lit(table[name][first])).otherwise(pl.col(name)).alias(name)
        for name in columns
    )
    return replace(suite, meters=(replace(meter, samples=of_table(table)),))


def with_zone_still(suite: Suite, zone: str, when: tuple[float, float]) -> Suite:
    """Return a zone whose counter stops, and goes on at what it had counted meanwhile."""
    begin_ns, end_ns = suite.runs[0].t_start_ns, suite.runs[-1].t_end_ns
    stop_ns, go_ns = (begin_ns + share * (end_ns - begin_ns) for share in when)
    stopped_at = min(
        (c.start for r in suite.runs for p in r.phases for c in p.counters if c.zone == zone),
        key=lambda reading: abs(reading.t_before_ns - stop_ns) if reading else float("inf"),
    )
    assert stopped_at is not None

    def counter(record: Counter) -> Counter:
        edges = [
            replace(edge, energy_uj=stopped_at.energy_uj)
            if edge and stop_ns <= edge.t_before_ns <= go_ns
            else edge
            for edge in (record.start, record.end)
        ]
        return replace(record, start=edges[0], end=edges[1]) if record.zone == zone else record

    def phase(record: Phase) -> Phase:
        return replace(record, counters=tuple(map(counter, record.counters)))

    def run(record: Run) -> Run:
        return replace(record, phases=tuple(map(phase, record.phases)))

    return replace(suite, runs=tuple(map(run, suite.runs)))


def verdicts(suite: Suite, energy: pl.DataFrame) -> Mapping[tuple[str, str], set[str]]:
    """By source and component, the verdicts of the summary."""
    rows = summarise(suite, reference_rows(suite, energy)).filter(pl.col("verdict") != "")
    by_pair: dict[tuple[str, str], set[str]] = {}
    for source, component, verdict in rows.select("source", "component", "verdict").iter_rows():
        by_pair.setdefault((source, component), set()).add(verdict)
    return by_pair


@pytest.fixture(scope="module")
def sound(derived: Results) -> Mapping[tuple[str, str], set[str]]:
    return verdicts(derived.suite, derived.all_energy)


@pytest.mark.parametrize(
    ("channels", "when"), [*product((["system"], ["drive"]), WHEN), (["system", "drive"], "always")]
)
def test_no_verdict_comes_from_a_channel_that_stood_still(
    derived: Results, sound: Mapping[tuple[str, str], set[str]], channels: list[str], when: str
) -> None:
    suite = with_channels_still(derived.suite, channels, WHEN[when])
    energy = energy_table(suite, derived.clock)
    still = {("meter0", name) for name in channels}
    assert set(standing_components(energy).iter_rows()) == still
    words = verdicts(suite, energy)
    assert still.isdisjoint(words)
    assert len(words) == 1  # of one component: what is judged where the system is not known
    if ("meter0", "system") not in still:
        assert words == sound
    stood = list(stood_still(energy))
    assert len(stood) == len(channels)
    assert all(any(f"meter0 {name} " in sentence for sentence in stood) for name in channels)


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("zone", ["package-0", "dram"])
def test_no_verdict_comes_from_a_zone_that_stood_still(
    derived: Results, zone: str, when: str
) -> None:
    suite = with_zone_still(replace(derived.suite, meters=()), zone, WHEN[when])
    energy = energy_table(suite, derived.clock)
    still = set(standing_components(energy).iter_rows())
    assert still and {name.removeprefix("pyrapl-") for _, name in still} == {zone}
    assert still.isdisjoint(verdicts(suite, energy))


def test_a_step_of_all_readings_is_flagged_in_every_run(derived: Results) -> None:
    (meter,) = derived.suite.meters
    table = pl.concat(meter.samples.tables(meter.samples.columns))
    factor = pl.when(pl.int_range(pl.len()) < 0.4 * len(table)).then(1.0).otherwise(1.2)
    stepped = of_table(table.with_columns(pl.col("power_w_system") * factor))
    suite = replace(derived.suite, meters=(replace(meter, samples=stepped),))
    flagged = energy_table(suite, derived.clock).filter(pl.col("flags").str.contains(STEP_FLAG))
    assert set(flagged["run_id"]) == {run.run_id for run in suite.runs}
    assert set(flagged["component"]) == {"system"}
    assert not derived.all_energy["flags"].str.contains(STEP_FLAG).any()


def test_a_sound_suite_has_no_still_component(derived: Results) -> None:
    assert len(standing_components(derived.all_energy)) == 0
    assert not derived.all_energy["flags"].str.contains(STANDS_STILL).any()


def test_a_zone_still_in_one_run_loses_that_run_and_its_neighbours(derived: Results) -> None:
    """Of many: the verdict is that of the others."""
    still_now = next(r for r in derived.suite.runs if r.workload == "kernel_tree")
    others = [run for run in derived.suite.runs if run.run_id != still_now.run_id]
    still = replace(derived.suite, runs=(still_now,))
    still_run = with_zone_still(still, "dram", (0.0, 1.0)).runs[0]
    suite = replace(
        derived.suite, runs=tuple(sorted([*others, still_run], key=lambda r: r.t_start_ns))
    )
    energy = energy_table(suite, derived.clock).filter(component="dram", phase="all")
    lost = set(energy.filter(pl.col("energy_j").is_null())["run_id"])
    runs = [run.run_id for run in suite.runs]
    place = runs.index(still_now.run_id)
    assert lost == set(runs[max(0, place - 1) : place + 2])  # it may have begun in a neighbour
    assert len(standing_components(energy)) == 0


def test_samples_show_a_zone_that_stops_within_a_phase(derived: Results) -> None:
    suite = derived.suite
    zones = {
        run.run_id: {"dram": {"build": (30.0, Energy(9.0, 0.1, 1.0, ()))}} for run in suite.runs
    }
    stopped = suite.runs[20].run_id

    def samples(run_id: str) -> pl.DataFrame:
        at_s = np.arange(0, 30, 0.1)
        counted_s = np.where((at_s > 10) & (at_s < 14), 10, at_s) if run_id == stopped else at_s
        stamps = np.rint(at_s * 1e9).astype(np.int64)
        counts = np.rint(counted_s * 3e5).astype(np.int64)
        columns = {"t_before_ns": stamps, "t_after_ns": stamps + 10, "energy_uj": counts}
        return pl.DataFrame(columns).with_columns(zone=pl.lit("dram"))

    near = {run.run_id for run in suite.runs[19:22]}
    assert still_zones(suite.runs, zones, samples) == {(run_id, "dram") for run_id in near}


@pytest.mark.parametrize(("share", "until"), [(0.25, 1.0), (0.3, 0.97)])
def test_a_meter_and_the_processor_above_it_have_no_joules(
    derived: Results, share: float, until: float
) -> None:
    """Also if its last runs are not below it: a meter at the wall is a second late, not five."""
    (meter,) = derived.suite.meters
    table = pl.concat(meter.samples.tables(meter.samples.columns))
    # One of two supplies, and a load on the other.
    in_part = pl.int_range(pl.len()) < until * pl.len()
    table = table.with_columns(pl.col("power_w_system") * pl.when(in_part).then(share).otherwise(1))
    suite = replace(derived.suite, meters=(replace(meter, samples=of_table(table)),))
    energy = energy_table(suite, derived.clock)
    rapl = energy.filter(source="rapl")
    assert rapl["flags"].str.contains(ABOVE_TOTAL).all() and rapl.height
    flags = energy.filter(component="system")["flags"]
    assert flags.str.contains(BELOW_PART).all()
    standing = set(standing_components(energy).iter_rows())
    assert standing == {("meter0", "system"), *((("rapl", c)) for c in rapl["component"])}


@pytest.mark.parametrize(("factor", "code"), [(1e-3, TOO_LITTLE), (1e4, TOO_MUCH)])
def test_a_meter_in_another_unit_has_no_joules_of_the_machine(
    derived: Results, factor: float, code: str
) -> None:
    (meter,) = derived.suite.meters
    table = pl.concat(meter.samples.tables(meter.samples.columns))
    table = table.with_columns(pl.col("power_w_system") * factor)
    suite = replace(derived.suite, meters=(replace(meter, samples=of_table(table)),))
    energy = energy_table(suite, derived.clock)
    system = energy.filter(component="system")
    assert system["energy_j"].is_null().all() and system["flags"].str.contains(code).all()
    assert energy.filter(source="rapl")["energy_j"].is_not_null().any()


def test_a_meter_without_another_source_is_unconfirmed(derived: Results) -> None:
    runs = (
        replace(r, phases=tuple(replace(p, counters=()) for p in r.phases))
        for r in derived.suite.runs
    )
    alone = energy_table(replace(derived.suite, runs=tuple(runs)), derived.clock)
    for energy, unconfirmed in ((derived.energy, False), (alone, True)):
        flags = energy.filter(component="system", phase="all")["flags"]
        assert flags.str.contains("unconfirmed").all() == unconfirmed


@pytest.mark.parametrize(("share", "below"), [(0.5, True), (1.5, False)])
def test_a_platform_below_its_packages_has_no_joules(
    derived: Results, share: float, below: bool
) -> None:
    def platform(counter: Counter) -> Counter:
        edges = [
            replace(edge, energy_uj=round(edge.energy_uj * share)) if edge else None
            for edge in (counter.start, counter.end)
        ]
        return replace(counter, zone="psys", start=edges[0], end=edges[1])

    def phase(record: Phase) -> Phase:
        packages = (c for c in record.counters if c.zone == "package-0")
        return replace(record, counters=(*record.counters, *map(platform, packages)))

    runs = (replace(r, phases=tuple(map(phase, r.phases))) for r in derived.suite.runs)
    suite = replace(derived.suite, runs=tuple(runs), meters=())
    rows = energy_table(suite, derived.clock).filter(component="psys", phase="all")
    assert rows["energy_j"].is_null().all() == rows["flags"].str.contains(BELOW_PART).all() == below


def constant(
    *parts: list[float], stated_w: float = math.inf
) -> tuple[list[tuple[float, float]], float | None]:
    """Return the stretches in s of a 10 Hz recording in these parts, and its only value."""
    channel = Constant("drive", stated_w)
    for piece in windows_of(parts, "drive", S // 10):
        channel.take(piece)
    return [(a / S, b / S) for a, b in channel.stretches()], channel.only_w


def test_constant_stretches_are_those_within_the_last_digit() -> None:
    noise = list(np.random.default_rng(1).integers(1000, 9000, 100) / 1000)
    flat = [2.0, 2.001, 2.0, 2.0] * 10  # 4 s but for the last digit
    assert constant(noise, flat, noise) == ([(10.0, 14.0)], None)
    assert constant(noise + flat[:20], flat[20:], noise) == ([(10.0, 14.0)], None)
    assert constant(noise, flat[:8], noise) == ([], None)
    assert constant(flat, [3.0], flat)[0] == [(0.0, 4.0), (4.1, 8.1)]
    creeping = [2.0 + 0.001 * k for k in range(40)]
    assert constant(noise, creeping) == ([], None)
    stretches, only_w = constant(flat, flat)
    assert stretches == [(0.0, 8.0)] and only_w == pytest.approx(2.0005)
    assert constant([0.0] * 30)[1] == 0.0


def test_two_values_ten_stated_steps_apart_are_not_one() -> None:
    rest, work = [200.0] * 40, [300.0] * 40
    assert constant(rest + work)[1] == 250.0  # one digit could be 100 W
    stretches, only_w = constant(rest + work + rest, stated_w=10.0)
    assert stretches == [(0.0, 4.0), (4.0, 8.0), (8.0, 12.0)] and only_w is None
    assert constant([200.0, 210.0] * 40, stated_w=10.0)[1] == 205.0
    assert constant(rest, rest, stated_w=10.0)[1] == 200.0
