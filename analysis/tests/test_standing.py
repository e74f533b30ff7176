"""Suites in which a zone or a channel stands still: which, when, and for how long."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from analysis.energy.energy import energy_table, of_references, standing_components
from analysis.energy.gain_steps import STEP_FLAG
from analysis.energy.implausible import Constant
from analysis.energy.metered import Energy
from analysis.energy.standing import still_zones
from analysis.energy.windows import Windows
from analysis.report import build
from analysis.stats.results import Results, stood_still
from analysis.suite.records import Counter, Phase, Run, Suite
from analysis.suite.samples import of_table
from analysis.tests.known import summarise
from instrumentation.sources.standing import BELOW_PART, STANDS_STILL
from validation.synthetic.folder import Power
from validation.synthetic.suite import Options, write_suite

S = 1_000_000_000
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
    rows = summarise(suite, of_references(suite, energy)).filter(pl.col("verdict") != "")
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


def test_a_sound_suite_has_none(derived: Results) -> None:
    assert len(standing_components(derived.all_energy)) == 0
    assert not derived.all_energy["flags"].str.contains(STANDS_STILL).any()


def test_one_run_that_stood_still_is_left_out_alone(derived: Results) -> None:
    """Of many: the verdict is that of the others."""
    still_now = next(r for r in derived.suite.runs if r.workload == "kernel_tree")
    rest = [run for run in derived.suite.runs if run.run_id != still_now.run_id]
    still = replace(derived.suite, runs=(still_now,))
    still_run = with_zone_still(still, "dram", (0.0, 1.0)).runs[0]
    suite = replace(
        derived.suite, runs=tuple(sorted([*rest, still_run], key=lambda r: r.t_start_ns))
    )
    energy = energy_table(suite, derived.clock).filter(component="dram", phase="all")
    lost = set(energy.filter(pl.col("energy_j").is_null())["run_id"])
    runs = [run.run_id for run in suite.runs]
    place = runs.index(still_now.run_id)
    assert lost == set(runs[max(0, place - 1) : place + 2])  # it may have begun in a neighbour
    assert len(standing_components(energy)) == 0


def test_a_zone_that_stops_within_a_phase_is_told_by_its_samples(derived: Results) -> None:
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
        return pl.DataFrame(columns).with_columns(run_id=pl.lit(run_id), zone=pl.lit("dram"))

    near = {run.run_id for run in suite.runs[19:22]}
    tables = [samples(run.run_id) for run in suite.runs]
    assert still_zones(suite.runs, zones, tables) == {(run_id, "dram") for run_id in near}


def test_a_meter_that_sees_less_than_the_processor_is_not_the_whole(derived: Results) -> None:
    (meter,) = derived.suite.meters
    table = pl.concat(meter.samples.tables(meter.samples.columns))
    # One of two supplies, and a load on the other.
    table = table.with_columns(pl.col("power_w_system") * 0.25)
    suite = replace(derived.suite, meters=(replace(meter, samples=of_table(table)),))
    energy = energy_table(suite, derived.clock)
    assert list(standing_components(energy).iter_rows()) == [("meter0", "system")]
    flags = energy.filter(component="system")["flags"]
    assert flags.str.contains(BELOW_PART).all()


def constant(*parts: list[float]) -> tuple[list[tuple[float, float]], float | None]:
    """Stretches in s of a 10 Hz recording that passes in these parts, and its only value."""
    watched, begin = Constant("drive"), 0
    for part in parts:
        end_ns = (begin + 1 + np.arange(len(part))) * S // 10
        epoch = np.ones(len(part), np.int64)
        held = Windows(end_ns - S // 10, end_ns, epoch, {"drive": np.array(part)})
        assert list(watched.watched([held])) == [held]
        begin += len(part)
    return [(a / S, b / S) for a, b in watched.stretches()], watched.only_w


def test_constant_stretches_of_a_channel() -> None:
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


@pytest.mark.parametrize("still", [{"system": 0.0}, {"system": 25.0, "drive": 2.0}])
def test_the_pages_of_a_meter_that_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, still: Mapping[str, float]
) -> None:
    real = Power.all_at

    def stopped(power: Power, name: str, at_s: Any) -> Any:
        """Return a meter's stream, which is long; the truth stays as it is."""
        if name in still and np.size(at_s) > 100:
            return still[name] * np.asarray(at_s)
        return real(power, name, at_s)

    monkeypatch.setattr(Power, "all_at", stopped)
    write_suite(tmp_path / "suite", Options(blocks=2, configurations=("plain", "opal")))
    built = build.build(tmp_path / "suite")
    assert built.results is not None
    assert {("meter0", name) for name in still} == set(
        standing_components(built.results.all_energy).iter_rows()
    )
    assert not set(built.results.summary["component"]) & set(still)
    assert "stood still" in built.page.read_text(encoding="utf-8")
