"""Blocks that fit a night, from suites of known durations written by hand."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contract import plan as plans
from contract.journal import Entry
from contract.plan import FitBasis
from contract.tests.refusal import refuses
from controller.planning import past_durations, sizing
from controller.planning.compiler import Fitted
from controller.tests.examples import compiled, journal, plan, suite, suite_folder, target

# Seconds from running to finished by workload; every switch takes 4 s, every gap between runs 1 s.
RUN_S = {"idle": 10.0, "file_io": 30.0, "drift_check": 20.0}
SWITCH_S, GAP_S = 4.0, 1.0
# Three configurations, two workloads: 3 · (10 + 30) + 3 · 4 + 5 gaps within.
BLOCK_S = 3 * 40 + 3 * SWITCH_S + 5 * GAP_S


def walk(document: dict[str, Any], slower: Sequence[float] = (1, 1, 1, 1, 1)) -> list[Entry]:
    """Return the journal of a finished suite; block n takes `slower[n]` times as long."""
    lines: list[tuple[float, str, str]] = [(0, "suite-started", "")]
    time_s, before = 10.0, None
    for run in document["runs"]:
        times = slower[run["block"]]
        where = (run["block"], run["configuration"])
        if where != before:
            lines.append((time_s, "switching", run["run_id"]))
            time_s += SWITCH_S * times
        lines.append((time_s, "running", run["run_id"]))
        time_s += RUN_S.get(run["workload"], 10.0) * times
        lines.append((time_s, "finished", run["run_id"]))
        time_s, before = time_s + GAP_S, where
    return journal([*lines, (time_s + 9, "suite-finished", "")])


def keep(
    folder: Path, document: dict[str, Any], entries: Sequence[Entry], wall_s: float | None = None
) -> None:
    suite_dir = suite_folder(folder / f"{len(list(folder.iterdir()))}", document, entries)
    if wall_s:
        line = {"begun_ns": 1, "controller_boot_id": "b", "wall_s": wall_s}
        (suite_dir / "sessions.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")


def keep_past(folder: Path, wall_s: float | None = None) -> dict[str, Any]:
    """Keep a finished suite of one block, and return its plan."""
    past = plan(blocks=1)
    keep(folder, past, walk(past), wall_s)
    return past


def fit(folder: Path, document: dict[str, Any], hours: float) -> sizing.Fit:
    parsed = plans.parse(document)
    durations = past_durations.read_durations(folder, parsed.host, parsed.origin)
    return sizing.fit(parsed, durations, hours)


def test_blocks_are_fitted_to_earlier_durations(tmp_path: Path) -> None:
    """One block of 137 s seen: a tenth in reserve. Then 3 of them fit, or 2."""
    past = plan(blocks=1)
    entries = walk(past)
    span_s = (entries[-2].t_mono_ns - entries[1].t_mono_ns) / 1e9
    assert span_s == BLOCK_S
    keep(tmp_path, past, entries, wall_s=BLOCK_S + 60)
    parts_s = BLOCK_S - 5 * GAP_S
    bound_s = BLOCK_S + 0.1 * parts_s
    fitted = fit(tmp_path, past, (3 * bound_s + 60) / 3600 + 1e-6)
    assert fitted.blocks == 3
    assert fit(tmp_path, past, (3 * bound_s + 60) / 3600 - 1e-6).blocks == 2
    basis = fitted.basis
    assert basis.block_s == pytest.approx(BLOCK_S)
    assert basis.block_bound_s == pytest.approx(bound_s, abs=0.1)
    assert basis.ends_s == pytest.approx(60)
    assert basis.expected_s == pytest.approx(3 * BLOCK_S + 60)
    assert basis.suites == (past["suite_id"],)
    assert "2 min 17 s" in fitted.sentences[0] and fitted.sentences[0].startswith("3 blocks in ")


def test_the_reserve_is_the_prediction_bound_of_earlier_blocks(tmp_path: Path) -> None:
    """Five blocks, 0 and ±5 and ±10 % apart from their mean: 0.079 · t(95 %, 4) · √1.2 = 18 %."""
    past = plan(blocks=5)
    keep(tmp_path, past, walk(past, (1.0, 0.9, 1.1, 0.95, 1.05)))
    basis = fit(tmp_path, past, 9).basis
    assert basis.block_s == pytest.approx(BLOCK_S, rel=0.002)
    assert basis.block_bound_s / basis.block_s == pytest.approx(1.178, abs=0.01)
    assert "5 blocks" in basis.reserve


def test_rests_are_those_of_the_new_plan(tmp_path: Path) -> None:
    keep_past(tmp_path, BLOCK_S + 60)
    longer = plan(blocks=1, settle_s=3, tail_s=6)
    gaps = BLOCK_S / (BLOCK_S - 5 * GAP_S)
    expected = (BLOCK_S - 5 * GAP_S + 6 * 7) * gaps
    assert fit(tmp_path, longer, 9).basis.block_s == pytest.approx(expected, abs=0.1)


def test_drift_checks_are_part_of_the_ends_and_of_the_blocks(tmp_path: Path) -> None:
    past = plan(blocks=1, drift_check=True)
    keep(tmp_path, past, walk(past), wall_s=1000)
    durations = past_durations.read_durations(tmp_path, "target", "modelled")
    assert len(durations.blocks) == 1, "the drift check's place in a block does not break it"
    basis = sizing.fit(plans.parse(past), durations, 9).basis
    without = sizing.fit(compiled(suite(blocks=1)), durations, 9).basis
    assert basis.ends_s - without.ends_s == pytest.approx(2 * (20 + SWITCH_S))
    ratio = durations.ratios()[0]
    assert basis.block_s - without.block_s == pytest.approx((20 + SWITCH_S) * ratio, rel=0.01)


def test_an_unfinished_suite_gives_run_durations_but_no_block(tmp_path: Path) -> None:
    past = plan(blocks=1)
    entries = walk(past)
    keep(tmp_path, past, entries[:-2])
    (tmp_path / "0" / "journal.jsonl").open("a").write('{"seq": 99, "t_mo')  # a power cut's line
    durations = past_durations.read_durations(tmp_path, "target", "modelled")
    assert len(durations.runs_s) == 5 and durations.blocks == [] and durations.ends_s == []
    last = past["runs"][-1]
    others = {f: s for f, s in durations.runs_s.items() if f[0] == last["workload"]}
    fitted = fit(tmp_path, past, 9)
    assert len(others) == 2, "the configuration that was not reached is taken as slow as these"
    assert fitted.basis.block_s == pytest.approx(BLOCK_S - 5 * GAP_S)
    assert "none was seen yet" in fitted.sentences[1]


def test_preconditioning_time_is_not_counted_as_end(tmp_path: Path) -> None:
    past = plan(blocks=1)
    first, *later_entries = walk(past)
    keep(
        tmp_path, past, [first, replace(first, state="preconditioned"), *later_entries], wall_s=9999
    )
    durations = past_durations.read_durations(tmp_path, "target", "modelled")
    assert len(durations.runs_s) == 6 and durations.ends_s == []


def test_waiting_counts_for_the_block_but_not_the_run(tmp_path: Path) -> None:
    past = plan(blocks=1)
    entries = walk(past)
    at = next(i for i, entry in enumerate(entries) if entry.state == "finished")
    late = [
        *entries[:at],
        Entry(0, entries[at].t_mono_ns - 10**9, "b", "waiting", entries[at].run_id, "load"),
        Entry(0, entries[at].t_mono_ns + 49 * 10**9, "b", "running", entries[at].run_id, ""),
        *(Entry(e.seq, e.t_mono_ns + 50 * 10**9, "b", e.state, e.run_id, "") for e in entries[at:]),
    ]
    keep(tmp_path, past, late)
    durations = past_durations.read_durations(tmp_path, "target", "modelled")
    assert {costs[0] for costs in durations.runs_s.values()} == {8.0, 28.0}
    assert fit(tmp_path, past, 9).basis.block_s == pytest.approx(BLOCK_S + 50, abs=0.1)


def test_times_across_a_power_cut_are_ignored(tmp_path: Path) -> None:
    past = plan(blocks=1)
    entries = walk(past)
    at = next(i for i, entry in enumerate(entries) if entry.state == "finished")
    after = [Entry(e.seq, e.t_mono_ns, "c", e.state, e.run_id, "") for e in entries[at:]]
    keep(tmp_path, past, [*entries[:at], *after])
    durations = past_durations.read_durations(tmp_path, "target", "modelled")
    assert sum(len(costs) for costs in durations.runs_s.values()) == 5
    assert durations.blocks == []


@pytest.mark.parametrize("change", [{"host": "other"}, {"origin": "measured"}])
def test_suites_of_another_host_or_origin_are_ignored(
    tmp_path: Path, change: dict[str, str]
) -> None:
    past = plan(blocks=1)
    keep(tmp_path, plans.freeze({**past, **change}), walk(past))
    with refuses("duration-unknown"):
        fit(tmp_path, past, 9)


def test_unmeasured_sizes_are_refused_with_a_command_at_their_scale(tmp_path: Path) -> None:
    keep_past(tmp_path)
    loads = [{"name": "idle"}, {"name": "file_io", "parameters": {"large_mib": 1}}]
    facts = {"workload": "file_io", "block": "fde run --suite smoke --blocks 1"}
    with refuses("duration-unknown", **facts, host="target"):
        fit(tmp_path, plan(blocks=1, workloads=loads), 9)
    scaled = plan(blocks=1, workloads=loads, summary="lab: for tests")
    with refuses("duration-unknown"):
        fit(tmp_path, scaled, 9)


@pytest.mark.parametrize("hours", [0, -1, float("nan"), float("inf")])
def test_invalid_hours_are_refused(tmp_path: Path, hours: float) -> None:
    past = keep_past(tmp_path)
    with refuses("invalid-hours"):
        fit(tmp_path, past, hours)


def test_too_few_hours_are_refused_with_the_time_of_a_block(tmp_path: Path) -> None:
    past = keep_past(tmp_path, BLOCK_S + 60)
    bounds = {"hours": "1 min 48 s", "bound_s": "2 min 30 s", "needed_s": "3 min 30 s"}
    with refuses("no-block-fits", **bounds, needed_hours=0.06):
        fit(tmp_path, past, 0.03)
    assert fit(tmp_path, past, 0.06).blocks == 1


def test_damaged_suites_are_ignored(tmp_path: Path) -> None:
    for number, text in enumerate(("{", "[]", '{"host": "target", "origin": "modelled"}')):
        (tmp_path / f"damaged-{number}").mkdir()
        (tmp_path / f"damaged-{number}" / "plan.json").write_text(text, encoding="utf-8")
    past = keep_past(tmp_path, BLOCK_S + 60)
    (sessions,) = tmp_path.glob("*/sessions.jsonl")
    sessions.unlink()
    sessions.mkdir()
    assert fit(tmp_path, past, 9).blocks > 1


@pytest.mark.parametrize("damage", [{"drift_check": 2.5}, {"runs": [{"workload": "nonesuch"}]}])
def test_suites_with_damaged_plans_are_ignored(tmp_path: Path, damage: dict[str, Any]) -> None:
    past = plan(blocks=3)
    runs = damage.get("runs", past["runs"])
    past |= damage | {"runs": [{**past["runs"][0], **runs[0]}, *past["runs"][1:]]}
    keep(tmp_path, past, walk(past))
    assert past_durations.read_durations(tmp_path, past["host"], past["origin"]).suites == []


def test_the_plan_records_hours_and_basis() -> None:
    basis = FitBasis(suites=("s",), block_s=137.0)
    frozen = compiled(suite(), blocks=5, fitted=Fitted(9.0, basis))
    parsed = plans.parse(frozen.document())
    assert parsed.hours == 9.0 and parsed.basis == basis and parsed.blocks == 5
    assert plan()["hours"] is None and plan()["basis"] is None


def test_planning_uses_durations_from_its_output_folder(tmp_path: Path) -> None:
    (tmp_path / "target.json").write_text(json.dumps(target()), encoding="utf-8")

    def planned(*options: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "controller", "plan", "--suite", "micro"]
        argv += ["--target", str(tmp_path / "target.json"), "--out", str(tmp_path / "suites")]
        argv += ["-c", "plain,opal", *options]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    refused = planned("--hours", "1")
    assert refused.returncode == 1 and "fde run --suite micro --blocks 1" in refused.stderr
    first = Path(planned("--blocks", "1").stdout.strip())
    document = json.loads((first / "plan.json").read_text(encoding="utf-8"))
    suite_folder(first, document, walk(document))
    time.sleep(1)  # suites are named by the second
    result = planned("--hours", "1")
    assert result.returncode == 0 and " blocks in 1 h 00 min: a block takes " in result.stdout
    fitted = json.loads((Path(result.stdout.split()[-1]) / "plan.json").read_text(encoding="utf-8"))
    assert fitted["hours"] == 1.0 and fitted["basis"]["suites"] == [document["suite_id"]]
    assert fitted["blocks"] == fitted["runs"][-1]["block"] + 1 > 1
    conflicting = planned("--hours", "1", "--blocks", "2")
    assert conflicting.returncode == 2 and conflicting.stderr.count("\n") == 1


def test_durations_are_shared_between_entries_of_a_workload(tmp_path: Path) -> None:
    keep_past(tmp_path)
    loads = [{"name": "idle"}, {"name": "again", "workload": "file_io", "repeat": 2}]
    basis = fit(tmp_path, plan(blocks=1, workloads=loads), 9).basis
    gaps = BLOCK_S / (BLOCK_S - 5 * GAP_S)
    assert basis.block_s == pytest.approx((BLOCK_S - 5 * GAP_S + 3 * 30) * gaps, abs=0.1)


def test_missing_parameters_of_older_plans_have_their_defaults(tmp_path: Path) -> None:
    past = plan(blocks=1)
    older = json.loads(json.dumps(past))
    for load in older["workloads"]:
        load["parameters"].pop("cache", None)
    keep(tmp_path, plans.freeze(older), walk(older))
    assert fit(tmp_path, past, 9).basis.block_s == pytest.approx(BLOCK_S)


def test_extra_blocks_are_counted_once(tmp_path: Path) -> None:
    keep_past(tmp_path, BLOCK_S + 60)
    extra = {"blocks": 2, "configurations": ["plain", "opal"], "workloads": ["file_io"]}
    without, with_extra = (fit(tmp_path, plan(blocks=1, extra=e), 9).basis for e in (None, extra))
    assert with_extra.block_s == without.block_s
    assert with_extra.ends_s - without.ends_s == pytest.approx(4 * (30 + SWITCH_S))


def test_skipped_workloads_take_no_time(tmp_path: Path) -> None:
    past = plan(blocks=1)
    skipped = {run["run_id"] for run in past["runs"] if run["workload"] == "file_io"}
    walked = [entry for entry in walk(past) if entry.run_id not in skipped]
    skips = [
        Entry(0, walked[-1].t_mono_ns, "b", "void", run_id, "skipped", "no dd.")
        for run_id in skipped
    ]
    keep(tmp_path, past, [*walked[:-1], *skips, walked[-1]], wall_s=300)
    durations = past_durations.read_durations(tmp_path, "target", "modelled")
    assert durations.skipped == {"file_io"} and len(durations.blocks) == 1
    assert fit(tmp_path, past, 9).blocks > 1
