"""A suite with all five papers' workloads: entries, repeats, extra blocks, what is missing."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from analysis.energy.energy import WORK
from analysis.energy.run_checks import own_shares
from analysis.report import first_page, provenance, questions_section, summary_text, tables
from analysis.report.sections import Report
from analysis.report.texts import say
from analysis.stats.contrasts import comparisons, configurations_of, contrasts
from analysis.stats.results import Results, results
from analysis.stats.summary import MB, block_values, per_unit
from analysis.suite.incidents import incident_log
from analysis.suite.records import Suite
from analysis.suite.suite_folder import read
from analysis.tests.known import known
from analysis.tests.pages import UNWANTED, text_of
from contract import schema
from contract.plan import SuitePlan
from validation.synthetic.papers import BLOCKS, COMPARISONS, EXTRA_BLOCKS, NO_CASCADES
from validation.synthetic.suite import Truth


@pytest.fixture(scope="module")
def derived(papers: Results) -> Results:
    return papers


def planned(suite: Suite, change: Callable[[dict[str, Any]], None]) -> Suite:
    """Return the suite with another plan."""
    plan = json.loads((suite.folder / "plan.json").read_text(encoding="utf-8"))
    change(plan)
    return replace(suite, plan=schema.read(SuitePlan, plan))


def test_repeats_are_averaged_within_their_block(derived: Results) -> None:
    tree = derived.energy.filter(workload="kernel_tree", configuration="plain", component="system")
    runs = tree.filter(phase="all")
    assert len(runs) == 2 * BLOCKS
    row = derived.summary.filter(workload="kernel_tree", configuration="plain", component="system")
    assert row["n"].to_list() == [BLOCKS]
    by_hand = runs.group_by("block").agg(pl.col("energy_j").mean())["energy_j"]
    assert row["mean_j"][0] == pytest.approx(by_hand.mean())
    half = (row["ci_high_j"][0] - row["ci_low_j"][0]) / 2  # the meter's own error is in it, too
    deviation = float(np.std(by_hand.to_numpy(), ddof=1))
    alone = 4.30265 * deviation / math.sqrt(3)
    assert alone < half < alone + 0.03 * row["mean_j"][0]


def test_extra_blocks_count_for_their_runs(derived: Results, papers_page: str) -> None:
    n = {
        row["configuration"]: row["n"]
        for row in derived.summary.filter(workload="kernel_tree", component="system").iter_rows(
            named=True
        )
    }
    assert n["plain"] == BLOCKS
    assert n["dmcrypt-aes128"] == BLOCKS + EXTRA_BLOCKS
    assert derived.suite.planned_blocks == BLOCKS + EXTRA_BLOCKS
    assert f"{BLOCKS + EXTRA_BLOCKS} blocks" in papers_page
    assert f"{BLOCKS + EXTRA_BLOCKS} of {BLOCKS} blocks" not in papers_page


def test_a_contrast_in_one_workload_has_its_extra_blocks(derived: Results) -> None:
    pair = ("dmcrypt-aes128", "dmcrypt-aes256")
    (contrast,) = (c for c in derived.contrasts if (c.base, c.other) == pair)
    tree, grep = contrast.by_workload["kernel_tree"], contrast.by_workload["kernel_grep"]
    assert (tree.n, grep.n) == (BLOCKS + EXTRA_BLOCKS, BLOCKS)
    assert tree.ratio == pytest.approx(1.25 / 1.2, rel=0.02)
    over_all = known(next(c for c in derived.contrasts if c.base == "dmcrypt-aes128").comparison)
    assert over_all.n == BLOCKS


def test_work_of_all_units_has_its_column(derived: Results) -> None:
    energy = derived.energy
    play = energy.filter(workload="video", phase="play", component="system")
    assert play["video_s"].unique().to_list() == [60.0]
    assert play["bytes"].null_count() == len(play)
    runs = energy.filter(workload="kernel_grep", phase="all", component="system")
    assert runs["bytes"].unique().to_list() == [2 * 900.0 * MB]
    assert all(name in energy.columns for name in WORK)
    assert energy.columns.index("queries") < energy.columns.index("rows")  # added behind


def test_joules_per_unit_are_joules_over_work_by_blocks(derived: Results) -> None:
    rows = per_unit(derived.suite, derived.energy, "kernel_grep", "system")
    row = next(row for row in rows if row.configuration == "dmcrypt-aes256")
    joules, seconds = (
        block_values(derived.energy, "kernel_grep", "dmcrypt-aes256", "system", column=column)
        for column in ("energy_j", "duration_s")
    )
    megabytes = 2 * 900.0
    assert (row.unit.work, known(row.energy_j).n) == ("bytes", BLOCKS)
    assert known(row.energy_j).mean == pytest.approx(np.mean(list(joules.values())) / megabytes)
    assert known(row.rate).mean == pytest.approx(np.mean([megabytes / s for s in seconds.values()]))
    assert known(row.energy_j).low is not None
    assert known(row.cpu_share).mean == pytest.approx(0.6, rel=0.5)


def test_runs_whose_phases_count_other_work_have_no_figure_per_unit(derived: Results) -> None:
    phases = derived.energy.filter(workload="block_sizes", component="system")
    assert phases.filter(phase="burst.read")["bytes"].min()
    assert phases.filter(phase="access.read")["operations"].min()
    assert per_unit(derived.suite, derived.energy, "block_sizes", "system") == []


def test_declared_questions_are_answered_on_every_configuration(derived: Results) -> None:
    by = {(a.question.name, a.configuration): a for a in derived.answers}
    assert len([name for name, _ in by if name == "caching"]) == 4  # where both sides are planned
    assert [c for name, c in by if name == "sql-size"] == ["plain", "dmcrypt-aes256"]
    cold = known(by["caching", "plain"].comparison)
    assert cold.ratio == pytest.approx(2.0, rel=0.1)  # first over second
    assert cold.n == BLOCKS
    assert cold.verdict == "differs"
    assert cold.level < 0.05  # one family with the others
    assert by["delayed-writes", "plain"].comparison is not None


def test_joules_per_unit_do_not_depend_on_the_amount(derived: Results) -> None:
    """Twice the joules for twice the bytes are the same joules per byte."""
    double = pl.when(pl.col("workload") == "file_io-warm").then(2.0).otherwise(1.0)
    energy = derived.energy.with_columns(
        pl.col("energy_j") * double, pl.col("bytes") * double, pl.col("files") * double
    )
    before = next(a for a in derived.answers if a.question.name == "caching").comparison
    after = next(a for a in comparisons(derived.suite, energy)).comparison
    assert before is not None
    assert after is not None
    assert after.ratio == pytest.approx(before.ratio)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"first": {"workload": "nobody", "phase": "all"}}, "The plan has no workload nobody."),
        ({"per": "parsecs"}, "parsecs is not a unit of work"),
        ({"configurations": ["nowhere"]}, "It names no configuration of the plan"),
        ({"first": {"workload": "file_io", "phase": "none"}}, "no block has the system's energy"),
        ({"first": {"workload": "cascades", "phase": "all"}}, "cascades was skipped"),
    ],
)
def test_an_unanswerable_question_states_the_reason(
    derived: Results, change: dict[str, object], reason: str
) -> None:
    def ask(plan: dict[str, object]) -> None:
        question = {**COMPARISONS[0], "configurations": ["plain"], **change}
        plan["analysis"] = {"comparisons": [question]}

    other = Results(planned(derived.suite, ask), derived.clock, derived.energy, ())
    assert reason in questions_section.sentences(other)[0]
    assert not UNWANTED.search(text_of(questions_section.questions_section(other)))


def test_a_question_without_configurations_applies_where_both_sides_are_planned(
    derived: Results,
) -> None:
    first = derived.suite.plan.analysis.comparisons[0]
    asked = configurations_of(derived.suite, replace(first, configurations=None))
    assert asked == ["plain", "opal", "dmcrypt-aes128", "dmcrypt-aes256"]


def test_own_share_is_of_busy_time_or_of_the_time_at_rest(derived: Results) -> None:
    shares = {share[:2]: share for share in own_shares(derived.suite)}
    share = shares["file_io", "read-small"]
    runs = [r for r in derived.suite.runs if r.workload == "file_io"]
    phases = [p for r in runs for p in r.phases if p.name == share.phase]
    assert share.share == pytest.approx(0.01 * len(phases) / sum(p.cpu_busy_s or 0 for p in phases))
    assert not share.at_rest
    play = shares["video", "play"]
    took_s = sum(p.duration_s for r in derived.suite.runs for p in r.phases if p.name == "play")
    count = sum(r.workload == "video" for r in derived.suite.runs)
    assert play.at_rest and play.share == pytest.approx(0.01 * count / took_s)


def test_our_own_cpu_time_at_rest_is_not_busy_time(derived: Results) -> None:
    alone = [
        replace(r, phases=tuple(replace(p, own_cpu_s=0.1, cpu_busy_s=0.1) for p in r.phases))
        for r in derived.suite.runs
    ]
    assert all(share.at_rest for share in own_shares(replace(derived.suite, runs=tuple(alone))))


def test_older_runs_have_no_cpu_shares(whole_suite: tuple[Path, Truth]) -> None:
    old = results(whole_suite[0])
    assert own_shares(old.suite) == []
    assert text_of(questions_section.questions_section(old)) == ""
    assert provenance.missing_sentence(old.suite) == ""
    assert old.suite.runs[0].program == ""
    assert old.suite.runs[0].cpus is None


def test_skipped_runs_are_not_void_and_are_reported(derived: Results, papers_page: str) -> None:
    suite = derived.suite
    assert {run.workload for run in suite.skipped} == {"cascades"}
    assert len(suite.skipped) == BLOCKS
    assert suite.void == ()
    assert suite.skipped[0].reason == NO_CASCADES
    log = incident_log(suite)
    assert (log.never, log.tries_void, log.void_to_end) == (0, 0, ())
    assert (
        provenance.missing_sentence(suite)
        == "skipped: cascades; left out: 1 part of The kernel's ciphers"
    )
    lines = summary_text.summary(suite.folder).lines
    assert any(line.startswith("skipped: cascades; left out") for line in lines)
    for text in (NO_CASCADES, "camellia-xts-256", "This kernel has no camellia"):
        assert text in papers_page
    assert "Not measured:" in papers_page
    rows = [row for row in tables.headline(derived).rows if row[0] == "cascades"]
    assert [row[-1] for row in rows] == ["skipped"]


def test_an_entry_outside_the_overall_figure_is_left_out(derived: Results) -> None:
    def aside(plan: dict[str, Any]) -> None:
        for entry in plan["workloads"]:
            entry["overall"] = entry["name"] not in ("file_io-warm", "sql-large")

    suite = planned(derived.suite, aside)
    complete, some = (contrasts(s, derived.energy)[0].workloads for s in (derived.suite, suite))
    assert set(complete) - set(some) == {"file_io-warm", "sql-large"}
    other = Results(suite, derived.clock, derived.energy, ())
    text = text_of(Report(other).page())
    assert "Main workloads" in text
    assert say("contrasts.aside", workloads="File write and read (warm) and SQL (large)") in text
    assert "Main workloads" not in text_of(Report(derived).page())


def test_an_unplanned_pair_has_no_row(derived: Results) -> None:
    rows = {(row[0], row[1]) for row in tables.headline(derived).rows}
    assert ("Key derivation", "plain") in rows
    assert ("Key derivation", "Opal drive") not in rows


def test_a_single_configuration_is_not_compared(derived: Results) -> None:
    def alone(plan: dict[str, object]) -> None:
        configurations = plan["configurations"]
        assert isinstance(configurations, list)
        plan["configurations"] = configurations[:1]

    suite = planned(derived.suite, alone)
    energy = derived.energy.filter(configuration="plain")
    other = Results(suite, derived.clock, energy, ())
    cost, most, payback, *_ = first_page.lines(other, suite.folder)
    assert (cost.code, most.code, payback.code) == ("nothing-compared", "joules", "unknown")
    rows = other.summary.filter(component="system")
    assert most.facts["mean_j"] == rows["mean_j"].max()
    assert not UNWANTED.search(text_of(Report(other).head()))


@pytest.mark.parametrize(
    "broken", [{"left_out": [{"what": "x"}]}, {"left_out": 7}, {"cpus": "many"}, {"kept": 7}]
)
def test_a_broken_record_makes_its_run_void(
    small_suite: Path, tmp_path: Path, broken: object
) -> None:
    copy = shutil.copytree(small_suite, tmp_path / "suite")
    path = next((copy / "runs").glob("*-sql/run.json"))
    assert isinstance(broken, dict)
    document = {**json.loads(path.read_text(encoding="utf-8")), **broken}
    path.write_text(json.dumps(document), encoding="utf-8")
    suite = read(copy)
    assert [run.run_id for run in suite.void] == [path.parent.name]
    assert "run.json is not complete" in suite.void[0].reason


def test_planned_blocks_of_a_suite_without_extra_blocks(small_suite: Path) -> None:
    suite = read(small_suite)
    assert suite.planned_blocks == 2
    assert planned(suite, lambda plan: plan.pop("blocks")).planned_blocks is None
