"""Contrasts of configurations, and of unequal work."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from analysis.energy.energy import ALL, ENERGY_SCHEMA
from analysis.library import Suite
from analysis.money import costs
from analysis.published.claims import decide_claims
from analysis.report import first_page
from analysis.report.sections import Report
from analysis.report.texts import say
from analysis.report.words import name_of
from analysis.stats import contrasts
from analysis.stats.compare import compare_all
from analysis.stats.contrasts import comparisons
from analysis.stats.family import judge
from analysis.stats.results import Results, results, results_of
from analysis.stats.same_work import UNEQUAL_WORK, for_same_work, unequal_work
from analysis.stats.summary import per_unit
from analysis.tests.known import known, replanned, run_of, summarise
from analysis.tests.pages import text_of
from contract.documents import Check, Phase
from contract.plan import DeclaredComparison, Side
from validation.synthetic.suite import PHASES, Options, write_suite
from validation.synthetic.tables import energy_of, suite_of

KINDS = {"bare": "plain", "sed": "opal", "soft": "dmcrypt", "true": "tcrypt"}
WORK = ("write", "sql", "idle")
EFFECTS = {"bare": 0.0, "sed": 0.004, "soft": 0.08, "true": 0.12}


def rows(blocks: int = 5, seed: int = 1) -> Iterator[dict[str, Any]]:
    generator = np.random.default_rng(seed)
    for block, name, workload in itertools.product(range(blocks), KINDS, WORK):
        scatter = float(generator.normal(0, 0.003))
        log = math.log({"write": 900, "sql": 120, "idle": 30}[workload]) + block * 0.01 + scatter
        yield {
            "workload": workload,
            "configuration": name,
            "block": block,
            "energy_j": math.exp(log + EFFECTS[name] * (workload != "idle")),
        }


def contrasts_of(
    runs: Iterable[Mapping[str, Any]], declared: Iterable[tuple[str, str]] = ()
) -> list[contrasts.Contrast]:
    return contrasts.contrasts(suite_of(KINDS, WORK, declared), energy_of(runs))


def test_declared_contrasts_come_first_and_each_pair_once() -> None:
    pairs = contrasts_of(
        rows(), [("soft", "sed"), ("sed", "bare"), ("sed", "soft"), ("true", "true")]
    )
    assert [(c.base, c.other, c.declared) for c in pairs] == [
        ("soft", "sed", True),
        ("sed", "bare", True),
        ("bare", "soft", False),
        ("bare", "true", False),
    ]
    suite = suite_of({"sed": "opal", "bare": "plain"}, WORK)  # the baseline is not the first
    pairs = contrasts.contrasts(suite, energy_of(rows()))
    assert [(c.base, c.other) for c in pairs] == [("bare", "sed")]


def test_a_contrast_is_the_t_test_of_working_workloads_by_block() -> None:
    runs = list(rows())
    logs = {(r["workload"], r["configuration"], r["block"]): math.log(r["energy_j"]) for r in runs}
    per_block = [
        np.mean([logs[w, "soft", b] - logs[w, "bare", b] for w in ("write", "sql")])
        for b in range(5)
    ]
    test = stats.ttest_1samp(per_block, 0)
    contrast = next(c for c in contrasts_of(runs) if c.other == "soft")
    assert contrast.workloads == ("write", "sql")
    assert known(contrast.comparison).ratio == pytest.approx(
        math.exp(np.mean(per_block)), rel=1e-12
    )
    assert known(contrast.comparison).low == pytest.approx(
        math.exp(test.confidence_interval().low), rel=1e-12
    )
    assert known(contrast.comparison).verdict == "differs"


def test_a_page_is_one_family_of_contrasts_and_judged_rows() -> None:
    """Three contrasts and nine rows of the system; the drive has intervals alone."""
    with_drive = [
        *rows(),
        *({**r, "component": "drive", "energy_j": r["energy_j"] / 9} for r in rows()),
    ]
    suite = suite_of(KINDS, WORK)
    family, alone = judge(suite, energy_of(with_drive)), judge(suite, energy_of(rows()))
    assert (family.component, family.tested) == ("system", 12) == (alone.component, alone.tested)
    open_levels = [c.level for c in family.versus.values() if c.verdict == "inconclusive"]
    answer_levels = [known(c.comparison).level for c in family.contrasts]
    assert min(answer_levels) >= 0.04 / 3 > max(open_levels[:1]) >= 0.01 / 9
    summary = summarise(suite, energy_of(with_drive))
    drive = summary.filter(pl.col("configuration") != "bare", component="drive")
    assert set(drive["verdict"]) == {""} and drive["level"].to_list() == [
        known(row).level
        for row in (
            next(c for k, c in family.versus.items() if k[:2] == key and k[3] == "system")
            for key in drive["workload", "configuration"].iter_rows()
        )
    ]
    assert not drive["ratio_low"].is_null().any()
    by_name = {
        (r["workload"], r["configuration"]): r["verdict"]
        for r in summary.filter(component="system").iter_rows(named=True)
    }
    assert by_name["write", "soft"] == "differs" and by_name["write", "bare"] == ""
    assert set(summary["origin"]) == {"synthetic"}


def test_a_missing_run_removes_its_block_from_its_comparisons() -> None:
    runs = [
        {**r, "energy_j": None}
        if (r["workload"], r["configuration"], r["block"]) == ("sql", "soft", 2)
        else r
        for r in rows()
    ]
    complete, lacking = (
        {c.other: known(c.comparison) for c in contrasts_of(g)} for g in (rows(), runs)
    )
    assert lacking["true"] == complete["true"]
    assert (lacking["soft"].n, lacking["soft"].df) == (complete["soft"].n - 1, 3.0)
    assert lacking["soft"].ratio == pytest.approx(complete["soft"].ratio, rel=0.003)
    assert lacking["soft"].ratio != complete["soft"].ratio


def test_contrasts_without_values_are_none() -> None:
    runs = [r for r in rows() if r["configuration"] != "soft"]
    runs += [{**r, "energy_j": 0.0} for r in rows() if r["configuration"] == "soft"]
    runs = [r for r in runs if r["configuration"] != "true"]
    by_configuration = {c.other: c for c in contrasts_of(runs, [("bare", "never-planned")])}
    for name in ("soft", "true", "never-planned"):
        assert by_configuration[name].comparison is None
        assert by_configuration[name].workloads == ()
    assert by_configuration["sed"].comparison is not None


def test_without_a_baseline_only_declared_contrasts_remain() -> None:
    kinds = {"sed": "opal", "soft": "dmcrypt"}
    suite = suite_of(kinds, WORK, [("sed", "soft")])
    runs = energy_of(r for r in rows() if r["configuration"] in kinds)
    pairs = contrasts.contrasts(suite, runs)
    assert [(c.base, c.other) for c in pairs] == [("sed", "soft")]
    summary = summarise(suite, runs)
    assert set(summary["verdict"]) == {""}
    assert summary["ratio"].is_null().all()


def test_an_empty_table_has_no_contrasts() -> None:
    empty = energy_of([])
    assert all(c.comparison is None for c in contrasts.contrasts(suite_of(KINDS, WORK), empty))
    assert contrasts.contrasts(suite_of({}, ()), empty) == []
    assert len(summarise(suite_of(KINDS, WORK), empty)) == 0


def test_summary_takes_the_worse_origin_of_both_sides() -> None:
    runs = [
        {**r, "origin": "modelled" if r["configuration"] == "bare" else "measured"} for r in rows()
    ]
    summary = summarise(suite_of(KINDS, WORK), energy_of(runs))
    assert set(summary["origin"]) == {"modelled"}


SAME = dict.fromkeys(("plain", "opal", "dmcrypt-aes128", "dmcrypt-aes256"), 1.0)
SLOW, FIFTH = "dmcrypt-aes256", 5.0
TIMED = Options(
    blocks=6,
    configurations=("plain", "opal", SLOW),
    workloads=("file_io",),
    interval_ms=100,
    slower=SAME,
    work_share={SLOW: 1 / FIFTH},
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a suite with a fifth of the work on one configuration, and one with half of it all."""
    root = tmp_path_factory.mktemp("timed")
    write_suite(root / "a", TIMED)
    later = {name: 0.5 * TIMED.work_share.get(name, 1.0) for name in TIMED.configurations}
    write_suite(root / "b", replace(TIMED, host="later", seed=8, work_share=later))
    return root / "a", root / "b"


@pytest.fixture(scope="module")
def timed(folders: tuple[Path, Path]) -> Results:
    return results(folders[0])


def test_every_verdict_is_per_unit_of_work(timed: Results, folders: tuple[Path, Path]) -> None:
    contrast = next(c for c in timed.contrasts if c.other == SLOW)
    versus = known(known(contrast.comparison))
    summary = timed.summary.filter(component="system", configuration=SLOW)
    claims = [
        ratio
        for claim in decide_claims(timed.suite, timed.energy, timed.family.events)
        for ratio in claim.ratios
        if (ratio.configuration, ratio.against) == (SLOW, "plain")
        and ratio.claimed.quantity in ("energy", "time")
    ]
    assert claims
    ratios = [versus.ratio, summary["ratio"][0]]
    ratios += [ratio.comparison.ratio for ratio in claims]
    assert ratios == pytest.approx([FIFTH] * len(ratios), rel=0.02)
    assert (versus.verdict, summary["verdict"][0]) == ("differs", "differs")
    cost = next(
        line
        for line in first_page.lines(timed, timed.suite.folder)
        if line.question == "cost" and line.facts.get("configuration") == SLOW
    )
    assert (cost.code, cost.facts["ratio"]) == ("more", versus.ratio)
    paid = next(p for p in costs.paybacks(timed.suite, timed.energy) if p.against == SLOW)
    means = dict(timed.summary.filter(component="system")["configuration", "mean_j"].iter_rows())
    assert paid.saves
    assert paid.saving_j.mean == pytest.approx(means[SLOW] - means["opal"], rel=0.1)
    assert means["plain"] == pytest.approx(
        timed.all_energy.filter(component="system", phase=ALL, configuration="plain")[
            "energy_j"
        ].mean()
    )
    # All of the second night did half the work in the same time; then that is what it costs.
    nights = {(r.workload, r.configuration): r.ratio for r in compare_all(folders)[0].joules}
    assert list(nights.values()) == pytest.approx([2.0] * len(nights), rel=0.02)


def test_unequal_work_is_noted_on_the_page(timed: Results, folders: tuple[Path, Path]) -> None:
    (note,) = timed.work_notes
    assert note.code == UNEQUAL_WORK
    assert note.facts["phases"] == tuple(PHASES["file_io"])
    assert (note.facts["unit"], note.facts["configuration"]) == ("bytes", SLOW)
    assert note.facts["share"] == pytest.approx(1 / FIFTH)
    shown = Report(timed)
    assert note.sentence in text_of(shown.workloads())
    assert say("matrix.same-work", workloads=name_of("file_io")) in text_of(shown.head())
    suite = Suite.open(folders[0])
    assert suite.energy.equals(timed.measured_energy)
    assert suite.compared_energy.equals(timed.energy)


def test_fixed_work_stays_as_it_was_measured(derived: Results) -> None:
    assert derived.energy is derived.measured_energy
    assert not derived.unequal_work
    assert not derived.work_notes


def test_a_comparison_of_timed_phases_is_per_unit(timed: Results) -> None:
    sides = [Side(workload="file_io", phase=name) for name in ("read-small", "write-small")]
    asked = [
        DeclaredComparison(name=str(per), first=sides[0], second=sides[1], per=per)
        for per in (None, "bytes")
    ]
    suite = replanned(
        timed.suite, analysis=replace(timed.suite.plan.analysis, comparisons=tuple(asked))
    )
    answers = comparisons(suite, timed.energy, timed.unequal_work)
    first, second = ([a for a in answers if a.question.name == q.name] for q in asked)
    assert [a.comparison for a in first] == [a.comparison for a in second] != []
    assert {a.question.per for a in answers} == {"bytes"}


Rows = list[dict[str, Any]]


def rows_of(phase: str, amounts: dict[str, list[float]], **columns: Any) -> Rows:
    """Make rows of a phase, a run a block, 10 W for 10 s; `amounts` by configuration."""
    return [
        {"workload": "w", "configuration": c, "block": block, "phase": phase, "energy_j": 100.0}
        | {"bytes": amount, **columns}
        for c, values in amounts.items()
        for block, amount in enumerate(values)
    ]


def scaled_rows(rows: Rows, **planned: float) -> tuple[dict[Any, Any], pl.DataFrame]:
    phases = (Phase("timed", 0, 10, (), planned=planned),) if planned else ()
    runs = [run_of(workload="w", phases=phases, t_end_ns=10)]
    suite = suite_of({"plain": "plain", "dm": "dmcrypt"}, ["w"], runs=runs)
    energy = energy_of(rows)
    cells = unequal_work([suite], [energy])
    return cells, for_same_work(energy, cells)


def test_joules_seconds_and_counts_are_scaled_to_the_baselines_mean_amount() -> None:
    amounts = {"plain": [90.0, 110.0], "dm": [50.0, 25.0]}
    rows = rows_of("timed", amounts, cpu_busy_s=4.0, energy_u95_j=1.0, disk_read_bytes=10.0)
    rows += rows_of("fixed", {c: [7.0, 7.0] for c in amounts}, cpu_busy_s=2.0)
    rows += rows_of("tail", {c: [None, None] for c in amounts})  # type: ignore[list-item]
    rows += [
        {**row, "phase": ALL, "energy_j": 200.0, "duration_s": 20.0, "bytes": row["bytes"] + 7.0}
        | {"cpu_busy_s": 6.0, "energy_u95_j": 2.0}
        for row in rows[:4]
    ]
    cells, same = scaled_rows(rows)
    assert {cell: (w.unit, w.amount, dict(w.shares)) for cell, w in cells.items()} == {
        ("w", "timed"): ("bytes", 100.0, {"plain": 1.0, "dm": 0.375})
    }
    columns = ["energy_j", "duration_s", "bytes", "cpu_busy_s", "energy_u95_j", "power_w"]
    by = {
        key: [row[c] for c in columns]
        for row in same.iter_rows(named=True)
        for key in [(row["phase"], row["configuration"], row["block"])]
    }
    assert by["timed", "dm", 1] == pytest.approx([400, 40, 100, 16, 4, 10])
    assert by[ALL, "dm", 1] == pytest.approx([500, 50, 107, 18, 5, 10])
    assert by[ALL, "plain", 0] == pytest.approx(
        [100 + 1000 / 9, 10 + 100 / 9, 107, 2 + 40 / 9, 1 + 10 / 9, 10]
    )
    assert (by["fixed", "dm", 1][0], by["tail", "dm", 1][0]) == (100.0, 100.0)
    assert same.schema == pl.Schema(ENERGY_SCHEMA)


@pytest.mark.parametrize(
    ("amounts", "more", "planned", "unit"),
    [
        ([100.0, 50.0], {}, {}, "bytes"),
        ([100.0, 99.5], {}, {}, "bytes"),  # it may have ended by time
        ([100.0, 99.5], {}, {"bytes": 100.0}, None),
        ([100.0, 98.0], {}, {"bytes": 100.0}, "bytes"),
        ([100.0, 100.0], {}, {}, None),
        ([100.0, 50.0], {"idle_s": 10.0}, {}, None),
        ([100.0, 50.0], {"video_s": 10.0}, {}, None),
        ([100.0, None], {"transactions": 3.0}, {}, None),  # the first that all runs have
        ([0.0, 0.0], {}, {}, None),
    ],
)
def test_unequal_work_by_amounts_and_plan(
    amounts: list[float], more: dict[str, float], planned: dict[str, float], unit: str | None
) -> None:
    rows = rows_of("timed", dict(zip(("plain", "dm"), ([a] for a in amounts), strict=True)), **more)
    cells, _ = scaled_rows(rows, **planned)
    assert [work.unit for work in cells.values()] == [unit] * (unit is not None)


def test_a_run_without_work_has_no_figure_and_a_short_phase_takes_its_runs_power() -> None:
    amounts = {"plain": [100.0, 100.0], "dm": [0.0, 50.0]}
    rows = rows_of("timed", amounts)
    rows += [{**row, "phase": ALL} for row in rows]
    cells, same = scaled_rows(rows)
    assert same.filter(configuration="dm", block=0)["energy_j"].to_list() == [None, None]
    short = energy_of([row | ({"energy_j": None} if row["phase"] != ALL else {}) for row in rows])
    same = for_same_work(short, cells)
    assert same.filter(configuration="dm", block=1)["energy_j"].to_list() == [None, 200.0]


@pytest.mark.usefixtures("no_svg")
def test_the_account_of_work_is_listed_and_shown(derived: Results) -> None:
    check = Check("work", False, "work-counted", {"phase": "query", "unit": "transactions"}, "…")
    runs = [
        run_of(run_id=f"r{i}", block=i, phases=(phase,), t_end_ns=10, checks=(check,) * i)
        for i, amount in enumerate((100.0, 97.0))
        for phase in [
            Phase(
                *("query", 0, 10, ()),
                planned={"transactions": 100.0},
                reported={"transactions": 99.0},
                work={"transactions": amount},
                disk_read_bytes=5.0 * 2**20,
                disk_discarded_bytes=7.0,
            )
        ]
    ]
    accounted = results_of(replace(derived.suite, runs=tuple(runs)), derived.all_energy)
    (work,) = accounted.works
    assert (work.workload, work.phase, work.configuration) == ("sql", "query", "plain")
    assert (work.unit, work.runs) == ("transactions", 2)
    assert (work.planned, work.reported, work.counted) == (100.0, 99.0, 98.5)
    assert (work.disk_read_bytes, work.disk_discarded_bytes) == (5.0 * 2**20, 7.0)
    assert (work.disk_written_bytes, work.mapping_read_bytes) == (None, None)
    assert work.codes == ("work-counted",)
    # Runs of before have no account.
    assert derived.works == []


def test_disk_reads_and_writes_are_per_byte_of_work() -> None:
    traffic = {"disk_read_bytes": 2.0, "disk_written_bytes": 1.0}
    rows = [*rows_of("timed", {"plain": [4.0]}), *rows_of(ALL, {"plain": [4.0]}, **traffic)]
    suite = suite_of({"plain": "plain"}, ["w"])
    (row,) = per_unit(suite, energy_of(rows), "w", "system")
    assert (known(row.disk_reads).mean, known(row.disk_writes).mean) == (0.5, 0.25)
