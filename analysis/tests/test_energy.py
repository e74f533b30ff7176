"""Joules of counters and meters in the energy table, and the readers of RAPL compared."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from analysis.energy.energy import _zone_energies, counter_energy, run_edges
from analysis.energy.metered import Metered
from analysis.report import tables
from analysis.report.trust_section import readers_row
from analysis.stats.results import Results, results
from analysis.suite import readers
from analysis.suite.clocks import TargetClock
from analysis.suite.records import Counter, Phase, Suite
from analysis.suite.suite_folder import rapl_table
from analysis.tests.known import run_of
from contract import schema
from contract.counts import Edge
from contract.documents import OtherSource
from contract.files import write_json
from instrumentation.sources.counter import Reading
from validation.synthetic.folder import RANGE_UJ
from validation.synthetic.suite import Options, Truth, write_suite
from validation.synthetic.tables import suite_of

S = 1_000_000_000


def counter(start_uj: int, end_uj: int, seconds: float = 10, top: int = RANGE_UJ) -> Counter:
    end_ns = round(seconds * S)
    return Counter(
        "powercap",
        "package-0",
        Reading(0, 10, start_uj),
        Reading(end_ns, end_ns + 10, end_uj),
        top,
        (),
    )


def test_one_wrap_is_corrected() -> None:
    energy = counter_energy(counter(RANGE_UJ - 2_000_000, 3_000_000))
    assert energy.energy_j == pytest.approx(5.0, abs=1e-4)  # how a wrap counts is the counter's
    assert "wrap-corrected" in energy.flags


def test_samples_count_the_wraps_of_a_counter() -> None:
    top = 999_999_999  # 1000 J: at 400 W a wrap each 2.5 s
    edges = counter(0, 0, seconds=10, top=top)
    alone = counter_energy(edges)
    assert "possible-double-wrap" in alone.flags
    readings = [Reading(k * S, k * S + 5, k * 400_000_000 % (top + 1)) for k in range(1, 10)]
    energy = counter_energy(edges, readings)
    assert energy.energy_j == pytest.approx(4000)
    assert "possible-double-wrap" not in energy.flags


def test_a_failed_read_has_no_figure() -> None:
    broken = Counter("powercap", "dram", None, Reading(1, 2, 3), RANGE_UJ, ("read-failed",))
    energy = counter_energy(broken)
    assert (energy.energy_j, energy.flags) == (None, ("read-failed",))


@pytest.mark.parametrize(("long_s", "whole_j"), [(1.0, 10.2), (0.02, None)])
def test_a_phase_too_short_for_its_counter_counts_within_a_longer_run(
    long_s: float, whole_j: float | None
) -> None:
    """The counter moves each 20 ms: a phase of 12 ms has no joules of its own, a run of 1 s has."""

    def phase(name: str, start_s: float, end_s: float, joules: float) -> Phase:
        start_ns, end_ns = round(start_s * S), round(end_s * S)
        first, last = Reading(start_ns - 10, start_ns, 0), Reading(end_ns, end_ns + 10, 1)
        last = replace(last, energy_uj=round(joules * 1e6))
        energy = Counter("rapl", "package-0", first, last, RANGE_UJ, (), 20_000_000)
        return Phase(name, start_ns, end_ns, (energy,))

    phases = (phase("long", 1, 1 + long_s, 10), phase("short", 3, 3.012, 0.2))
    run = run_of(t_end_ns=4 * S, phases=phases)
    energy = _zone_energies(dict, run, "package-0")
    assert energy["short"][1].energy_j is None
    run_energy = energy["all"][1]
    assert run_energy.energy_j == (None if whole_j is None else pytest.approx(whole_j))
    assert "shorter-than-window" in run_energy.flags
    if run_energy.statistical_j is not None:  # 20 ms at 16.7 W, at both edges, and more
        assert run_energy.statistical_j > 0.2 / 0.012 * 0.02 / 3


def errors(energy: pl.DataFrame, truth: Truth, component: str, phase: str | None) -> list[float]:
    rows = energy.filter(pl.col("phase") != "between", component=component)
    return [
        abs(row["energy_j"] / truth.energy_j[row["run_id"], row["phase"], component] - 1)
        for row in rows.iter_rows(named=True)
        if phase is None or row["phase"] == phase
    ]


def test_known_joules_are_recovered_across_three_clocks(tmp_path: Path) -> None:
    """Late bunches, skewed clocks, a counter near its wrap: 10 ms windows, phases from 0.2 s on."""
    o = Options(
        blocks=1,
        workloads=("kernel_tree", "sql"),
        interval_ms=10,
        counter_start_uj=RANGE_UJ - 20_000_000,
    )
    truth = write_suite(tmp_path / "s", o)
    energy = results(tmp_path / "s").energy
    assert max(errors(energy, truth, "package-0", None)) < 1e-5
    assert "wrap-corrected" in " ".join(energy["flags"])
    for component in ("system", "drive"):
        assert max(errors(energy, truth, component, "all")) < 4e-3
        assert float(np.median(errors(energy, truth, component, None))) < 4e-3


def test_all_is_the_sum_of_the_phases_without_the_tail(derived: Results) -> None:
    energy = derived.energy
    keys = ["run_id", "source", "component"]
    parts = (
        energy.filter(~pl.col("phase").is_in(["all", "tail", "between"]))
        .group_by(keys)
        .agg(pl.col("energy_j").sum().alias("sum_j"), pl.col("duration_s").sum().alias("sum_s"))
    )
    joined = energy.filter(phase="all").join(parts, on=keys, validate="1:1")
    assert len(joined) == 72 * 4
    assert (joined["energy_j"] - joined["sum_j"]).abs().max() == pytest.approx(0, abs=1e-9)
    assert (joined["duration_s"] - joined["sum_s"]).abs().max() == pytest.approx(0, abs=1e-9)


def test_phases_pauses_and_tail_add_up_to_the_run(
    derived: Results, whole_suite: tuple[Path, Truth]
) -> None:
    """To 1 µJ: the counters against their own first and last count, the meter against the truth."""
    folder, truth = whole_suite
    energy = derived.energy
    parts = (
        energy.filter(pl.col("phase") != "all")
        .group_by("run_id", "component")
        .agg(pl.col("energy_j").sum(), pl.col("duration_s").sum())
    )
    by_run = {(r, c): (e, s) for r, c, e, s in parts.iter_rows()}
    for path in (folder / "runs").iterdir():
        document = json.loads((path / "run.json").read_text())
        first, last = document["phases"][0], document["phases"][-1]
        for k, zone in enumerate(("package-0", "dram")):
            counted_uj = (
                last["counters"][k]["end"]["energy_uj"] - first["counters"][k]["start"]["energy_uj"]
            )
            energy_j, duration_s = by_run[path.name, zone]
            assert energy_j == pytest.approx(counted_uj / 1e6, abs=1e-6)
            assert duration_s == pytest.approx(
                (last["t_end_ns"] - first["t_start_ns"]) / 1e9, abs=1e-9
            )
        start_s, end_s = truth.runs[path.name]
        length_s = end_s - start_s
        assert by_run[path.name, "system"][1] == pytest.approx(length_s, rel=2e-5)


def test_a_meters_phases_and_pauses_add_up_to_one_stretch(derived: Results) -> None:
    """The rows of a run add up to one stretch calculated with none of the inner edges."""
    suite = derived.suite
    clock = TargetClock.fit(suite.clock)
    meter = suite.meters[0]
    run = suite.runs[5]
    edges = set(run_edges(run, suite.plan, clock).values())
    ends = {min(edges, key=lambda e: e.t_ns), max(edges, key=lambda e: e.t_ns)}
    limit_s = meter.arrival_delay_limit_s
    metered = Metered.from_samples(meter.samples, meter.timing, limit_s, meter.channels, ends)
    stretch = sorted(edge.t_ns for edge in ends)
    rows = derived.energy.filter(pl.col("phase") != "all", run_id=run.run_id)
    for channel in meter.channels:
        energy = metered.energy(channel, [(stretch[0], stretch[1])])
        parts = rows.filter(component=channel)
        assert float(parts["energy_j"].sum()) == pytest.approx(energy.energy_j, abs=1e-6)


def test_every_joule_has_both_parts_of_its_uncertainty(derived: Results) -> None:
    energy = derived.energy
    assert energy["energy_statistical_j"].null_count() == 0
    assert (energy["energy_statistical_j"] > 0).all()
    metered = energy.filter(source="meter0")
    widest = metered["energy_type_b_j"] * 3**0.5
    assert (metered["energy_u95_j"] > 0.94 * widest).all()
    assert (metered["energy_u95_j"] < 1.01 * widest + 1.96 * metered["energy_statistical_j"]).all()
    rapl = energy.filter(source="rapl")
    assert rapl["energy_type_b_j"].null_count() == len(rapl)
    assert rapl["energy_u95_j"].null_count() == len(rapl)


@pytest.mark.parametrize("reopen", [True, False])
def test_a_gap_is_flagged_only_in_its_phases(tmp_path: Path, reopen: bool) -> None:
    o = Options(
        blocks=1,
        workloads=("kernel_tree",),
        interval_ms=10,
        lost_windows=(5.0, 5.6),
        reopen_after_loss=reopen,
    )
    truth = write_suite(tmp_path / "s", o)
    energy = results(tmp_path / "s").energy.filter(component="system")
    hit = {
        key for key, (a, b) in truth.phases_s.items() if a < 5.59 and b > 5.01
    }  # a first window after reopening is lost as well, hence the 10 ms
    flagged = energy.filter(pl.col("flags").str.contains("gap-filled|no-samples"))
    named = {(r["run_id"], r["phase"]) for r in flagged.iter_rows(named=True)}
    assert {key for key in named if key[1] not in {"all", "between"}} == hit
    assert (energy.filter(flags="")["coverage"] == 1).all()
    assert (flagged["coverage"] < 1).all()
    gaps = flagged.filter(pl.col("coverage") < 1, phase="all")
    assert len(gaps) >= 1


def test_a_phase_on_an_unknown_boot_has_no_meter_figure(tmp_path: Path) -> None:
    write_suite(tmp_path / "s", Options(blocks=1, workloads=("idle",)))
    path = next((tmp_path / "s" / "runs").iterdir()) / "run.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "boot_id": "another"}))
    energy = results(tmp_path / "s").energy.filter(run_id=path.parent.name)
    metered = energy.filter(source="meter0")
    assert metered["energy_j"].null_count() == len(metered)
    assert set(" ".join(metered["flags"]).split()) == {"no-clock", "incomplete"}
    assert energy.filter(source="rapl")["energy_j"].null_count() == 0


def test_a_sum_that_lacks_a_phase_has_no_figure(tmp_path: Path) -> None:
    write_suite(tmp_path / "s", Options(blocks=1, configurations=("plain",), workloads=("sql",)))
    path = next((tmp_path / "s" / "runs").iterdir()) / "run.json"
    document = json.loads(path.read_text())
    document["phases"][1]["counters"][1]["start"] = None
    path.write_text(json.dumps(document))
    energy = results(tmp_path / "s").energy
    rows = energy.filter(component="dram")
    by = {r["phase"]: (r["energy_j"] is None, r["flags"]) for r in rows.iter_rows(named=True)}
    assert by["load"] == (True, "read-failed")
    assert by["all"] == (True, "read-failed incomplete")
    assert by["between"] == (True, "read-failed incomplete")
    assert by["query"] == (False, "")
    package = energy.filter(component="package-0")
    assert package["energy_j"].null_count() == 0


def _with_pyrapl(phase: dict[str, Any], wrapped: bool) -> None:
    """As the agent writes it beside its own counters; its figure is 1 % less, to be told apart."""
    for name in list(phase["counters"]):
        used_uj = round((name["end"]["energy_uj"] - name["start"]["energy_uj"]) * 0.99)
        lost = wrapped and name["zone"] == "package-0"
        phase["counters"].append(
            {
                **name,
                "source": "pyrapl",
                "start": None if lost else {**name["start"], "energy_uj": 0},
                "end": None if lost else {**name["end"], "energy_uj": used_uj},
                "max_range_uj": None,
                "flags": ["pyrapl-wrapped"] if lost else [],
            }
        )


@pytest.fixture(scope="module")
def pyrapl(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("suite") / "s"
    write_suite(folder, Options(blocks=2, workloads=("sql",), counter_start_uj=0))
    for path in sorted(folder.glob("runs/*/run.json")):
        document = json.loads(path.read_text())
        for number, phase in enumerate(document["phases"]):
            wrapped = document["configuration"] == "opal" and number == 0
            _with_pyrapl(phase, wrapped)
        write_json(path, document)
    return results(folder)


def test_pyrapl_joules_have_separate_components(pyrapl: Results) -> None:
    energy = pyrapl.energy.filter(configuration="plain")
    counted = energy.filter(pl.col("phase") != "between", source="rapl")
    by_pyrapl = energy.filter(source="pyrapl")
    assert set(by_pyrapl["component"]) == {"pyrapl-package-0", "pyrapl-dram"}
    pairs = counted.with_columns((pl.lit("pyrapl-") + pl.col("component")).alias("component")).join(
        by_pyrapl, on=["run_id", "phase", "component"], validate="1:1"
    )
    assert len(pairs) == len(by_pyrapl) == len(counted)
    ratios = pairs["energy_j_right"] / pairs["energy_j"]
    assert ratios.to_list() == pytest.approx([0.99] * len(pairs), rel=1e-4)


def test_a_pyrapl_phase_that_wrapped_voids_the_runs_sum(pyrapl: Results) -> None:
    rows = pyrapl.energy.filter(configuration="opal", component="pyrapl-package-0")
    lost = rows.filter(pl.col("energy_j").is_null())
    assert set(lost["phase"]) == {"create", "all"}
    assert all("pyrapl-wrapped" in flags for flags in lost["flags"])
    counted = pyrapl.energy.filter(configuration="opal", component="package-0")
    assert counted["energy_j"].null_count() == 0


def test_pyrapls_zones_are_the_last_columns(pyrapl: Results) -> None:
    assert tables.columns(pyrapl.summary)[-2:] == ("pyrapl-package-0", "pyrapl-dram")


def test_a_meters_further_channels_have_columns(pyrapl: Results) -> None:
    named = {"system": "system", "drive": "usb"}
    rows = pyrapl.energy.filter(~pl.col("source").is_in(["rapl", "pyrapl"]))
    energy = rows.with_columns(pl.col("component").replace(named))
    renamed = Results(pyrapl.suite, pyrapl.clock, energy, ())
    shown = tables.columns(renamed.summary)
    assert shown[-1] == "usb" and "drive" in shown


RUN_S = 100
OWN_UJ = 2_000_000_000  # 20 W


def zone(other_uj: float | None, apart_ns: int | None = 500_000, **ours: Any) -> Any:
    end = Edge(RUN_S * 10**9, RUN_S * 10**9 + 2000, 5000 + OWN_UJ)
    readings = {"own_start": Edge(0, 2000, 5000), "own_end": end, **ours}
    edges = {
        name: None if reading is None else asdict(reading) for name, reading in readings.items()
    }
    return {"zone": "package-0", "energy_uj": other_uj, "apart_ns": apart_ns, **edges}


def suite(*records: Any, folder: Path = Path()) -> Suite:
    """Return runs with what pyRAPL, perf_event and a source of another package read."""
    counter = Counter("rapl", "package-0", None, None, RANGE_UJ, ())
    runs = [
        run_of(
            run_id=f"{n:04d}",
            workload="idle",
            t_end_ns=RUN_S * 10**9,
            phases=(Phase("work", 0, 10**9, (counter,), {}),),
            other_sources={
                name: schema.read(OtherSource, readings)
                for name, readings in zip(("pyrapl", "perf", "battery"), sources, strict=False)
                if readings
            },
        )
        for n, sources in enumerate(records)
    ]
    return replace(suite_of({}, ()), folder=folder, runs=tuple(runs))


def source(other_uj: float | None, **fields: Any) -> Any:
    return {"zones": [zone(other_uj, **fields)]}


def rows_of(*records: Any) -> list[tuple[str, str]]:
    return [readers_row(agreement) for agreement in readers.agreements(suite(*records))]


START_WRAPPED = {"own_start": Edge(0, 2000, RANGE_UJ - 1000)}
WRAPPED = {**START_WRAPPED, "own_end": Edge(RUN_S * 10**9, RUN_S * 10**9 + 2000, OWN_UJ - 1000)}


@pytest.mark.parametrize(
    ("records", "reader", "counts"),
    [
        # 20 W for 0.5 ms and an update at each edge: 50 mJ.
        ([(source(OWN_UJ - 49_000),)], "pyRAPL", (1, 0, 0, 49_000)),
        ([(source(OWN_UJ - 51_000),)], "pyRAPL", (1, 0, 1, 51_000)),
        ([(source(OWN_UJ - 51_000),), (source(OWN_UJ),)], "pyRAPL", (2, 0, 1, 51_000)),
        # The kernel's rounding of perf's count: 2.6 ppm of 2 kJ at 2^-14 J, 5.1 mJ more.
        ([(source(OWN_UJ + 54_000),)], "pyRAPL", (1, 0, 1, 54_000)),
        ([(None, source(OWN_UJ + 54_000))], "perf_event", (1, 0, 0, 54_000)),
        # perf follows a wrap; runs in which pyRAPL or another package may not are left out.
        ([(source(-RANGE_UJ, **WRAPPED),)], "pyRAPL", (0, 1, 0, None)),
        ([(None, source(OWN_UJ, **WRAPPED))], "perf_event", (1, 0, 0, 61)),
        ([(None, None, source(OWN_UJ - 49_000))], "battery", (1, 0, 0, 49_000)),
        ([(None, None, source(OWN_UJ, **START_WRAPPED))], "battery", (0, 1, 0, None)),
    ],
)
def test_readers_agree_within_rounding_and_the_time_between_reads(
    records: list[tuple[Any, ...]], reader: str, counts: tuple[int | None, ...]
) -> None:
    (agreement,) = (a for a in readers.agreements(suite(*records)) if a.reader == reader)
    a = agreement
    assert (a.compared, a.wrapped, a.unexplained, a.worst_uj) == counts


def test_an_explained_difference_agrees_and_a_larger_one_does_not() -> None:
    (agreement,) = readers.agreements(suite((source(OWN_UJ - 49_000), None)))
    assert agreement.worst_share == pytest.approx(24.5e-6)
    assert [rows_of((source(OWN_UJ - 51_000),))[0][1]] == ["disagrees"]
    assert rows_of((source(OWN_UJ - 49_000), None)) == [
        (
            "at most 0.0490 J (0.00245 %) apart over 1 figures of whole runs; read at most "
            "0.500 ms apart, which explains it",
            "agrees",
        )
    ]


def test_the_highest_sampled_power_bounds_the_difference(tmp_path: Path) -> None:
    """80 W for a second of the run: four times the mean, so up to 196 mJ between the reads."""
    samples = [(0, 0), (1, 20_000_000), (2, 100_000_000), (3, 50_000_000)]
    lines = [
        {"zone": "package-0", "t_before_ns": s * 10**9, "t_after_ns": s * 10**9, "energy_uj": uj}
        for s, uj in samples
    ]
    folder = tmp_path / "runs" / "0000"
    folder.mkdir(parents=True)
    (folder / "rapl.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for apart_uj, unexplained in ((199_000, 0), (201_000, 1)):
        (agreement,) = readers.agreements(suite((source(OWN_UJ - apart_uj), None), folder=tmp_path))
        assert agreement.unexplained == unexplained


@pytest.mark.parametrize("field", ["t_before_ns", "t_after_ns", "energy_uj"])
def test_a_sample_beyond_64_bits_is_left_out(field: str, tmp_path: Path) -> None:
    sample = {"zone": "package-0", "t_before_ns": 1, "t_after_ns": 2, "energy_uj": 3}
    folder = tmp_path / "runs" / "0000"
    folder.mkdir(parents=True)
    lines = [sample, *({**sample, field: beyond} for beyond in (2**63, -(2**63) - 1))]
    (folder / "rapl.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = rapl_table(suite((None,), folder=tmp_path), "0000")
    assert table.rows(named=True) == [sample]


@pytest.mark.parametrize("field", ["t_start_ns", "t_end_ns"])
def test_a_phase_begins_and_ends_within_64_bits(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        schema.read(Phase, {"name": "x", "t_start_ns": 0, "t_end_ns": 1, field: 2**63})


def test_only_readers_with_figures_are_compared() -> None:
    assert len(rows_of((source(OWN_UJ), None))) == 1
    assert len(rows_of((source(OWN_UJ), source(OWN_UJ)))) == 2


def test_failures_and_their_reasons() -> None:
    (agreement,) = readers.agreements(
        suite(
            ({"error": "pyRAPL failed (KeyError): 3."}, None),
            ({"error": "pyRAPL failed (KeyError): 3."}, None),
            (source(None), None),
            (source(OWN_UJ, own_end=None), None),
        )
    )
    assert (agreement.compared, agreement.failed, agreement.wrapped) == (0, 3, 1)
    assert agreement.reasons == ("pyRAPL failed (KeyError): 3.",)
    assert readers_row(agreement) == (
        "nothing to compare; 1 more wrapped or unread; 3 times no figure: "
        "pyRAPL failed (KeyError): 3.",
        "cannot tell",
    )


def test_runs_without_the_time_between_reads_are_not_explained() -> None:
    text, _ = rows_of((source(OWN_UJ - 51_000, apart_ns=None), None))[0]
    assert text.endswith("over 1 figures of whole runs")


def test_a_source_of_another_quantity_is_not_compared() -> None:
    record = source(7.0, own_start=None, own_end=None)
    agreements = readers.agreements(suite((source(OWN_UJ), None, record)))
    assert [agreement.reader for agreement in agreements] == ["pyRAPL"]
