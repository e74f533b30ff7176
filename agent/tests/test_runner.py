"""Order, resumption and voiding of runs; the storage and its proof are stand-ins here."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path

import pytest

from agent import measure, runner
from agent.checks import Check
from agent.checks.context import Observation
from agent.storage.proof import MISMATCHES, Proof
from agent.system import admission, limits
from agent.system.admission import Bounds
from agent.tests.injections import fail_at, lines_of
from agent.tests.suite_lab import Action, Lab, blocks_document, entries
from contract import journal, plan
from contract.problem import Problem
from workloads.base import Context


@pytest.fixture
def lab(three_blocks: Lab) -> Lab:
    return three_blocks


def test_a_whole_suite_in_the_order_of_its_plan(lab: Lab) -> None:
    assert lab.execute() == 0
    finished = [run_id for state, run_id in lab.states() if state == "finished"]
    assert finished == [run.run_id for run in lab.plan.runs]
    # Entered once a configuration and block, also where the block's last is the next one's first.
    entered = [call for call in lab.stack.calls if call not in ("bare", "read")]
    assert entered == ["plain", "opal", "opal", "plain", "plain", "opal"]
    assert lab.stack.calls[-2:] == ["bare", "read"]
    per_run = [s for s, r in lab.states() if r == lab.plan.runs[0].run_id]
    assert per_run == ["switching", "running", "proving", "finished"]


def test_what_a_run_leaves_behind(lab: Lab) -> None:
    def spend(context: Context) -> None:
        (context.disk / "file").write_text("x")
        lab.energy.write_text("5000\n")

    lab.acts["idle"] = spend
    lab.execute()
    record = lab.run_json(0)
    assert [phase["name"] for phase in record["phases"]] == ["work", "tail"]
    counter = record["phases"][0]["counters"][0]
    assert (counter["start"]["energy_uj"], counter["end"]["energy_uj"]) == (1000, 5000)
    assert counter["start"]["t_after_ns"] <= record["phases"][0]["t_start_ns"]
    assert record["phases"][0]["t_end_ns"] <= counter["end"]["t_before_ns"]
    assert record["phases"][0]["work"] == {"files": 1}
    assert record["plan_sha256"] == lab.plan.sha256
    assert list(lab.stack.mount_point.iterdir()) == []


def test_runs_have_a_folder_in_common_that_goes_with_the_suite(lab: Lab, tmp_path: Path) -> None:
    counts: list[int] = []

    def keep(context: Context) -> None:
        counts.append(len(list(context.shared.iterdir())))
        (context.shared / f"{len(counts)}").touch()

    lab.acts["idle"] = keep
    assert lab.execute() == 0
    assert counts == list(range(6))
    assert not list(tmp_path.glob(f"{measure.SCRATCH_PREFIX}*"))


def test_runs_of_a_configuration_that_cannot_be_had_are_skipped_with_the_reason(lab: Lab) -> None:
    lab.stack.lacks = {"opal": "This kernel has no gcm(aes): leave the configuration out."}
    assert lab.execute() == 0
    skipped = [run.run_id for run in lab.plan.runs if run.configuration == "opal"]
    voids = [each for each in entries(lab) if each.state == "void"]
    assert [each.run_id for each in voids] == skipped
    assert {each.cause for each in voids} == {journal.SKIPPED}
    assert {each.detail for each in voids} == set(lab.stack.lacks.values())
    assert "opal" not in lab.stack.calls


def test_no_run_begins_that_would_not_end_in_time_and_the_next_start_goes_on(lab: Lab) -> None:
    def end(_context: Context) -> None:
        admission.store(lab.folder, Bounds(seconds=0.0))

    lab.acts["file_io"] = end
    assert lab.execute() == 0
    finished = sum(state == "finished" for state, _ in lab.states())
    last = entries(lab)[-1]
    assert 0 < finished < len(lab.plan.runs)
    assert last.state == "suite-finished" and last.detail.endswith(f"{12 - finished} left")
    assert lab.stack.calls[-2:] == ["bare", "read"]
    admission.store(lab.folder, Bounds())
    lab.acts.clear()
    assert lab.execute() == 0
    assert [r for s, r in lab.states() if s == "finished"] == [r.run_id for r in lab.plan.runs]


def test_a_failing_workload_voids_its_run_only(lab: Lab) -> None:
    def fail(_context: Context) -> None:
        raise ValueError("no such luck")

    lab.acts["file_io"] = fail
    assert lab.execute() == 0
    # More void runs than the limit in all, but never so many in a row.
    assert list(lab.last().values()).count("void") == 6 > runner.MAX_FAILURES_IN_A_ROW
    assert list(lab.last().values()).count("finished") == 6
    assert lab.run_json(1)["status"] == "void"
    assert "no such luck" in lab.run_json(1)["void_reason"]
    assert lab.void_facts() == [{"at": "workload", "error": "ValueError"}] * 6
    folder = lab.folder / "runs" / lab.plan.runs[1].run_id
    assert "Traceback" in (folder / "failure.txt").read_text()


def test_a_failed_proof_voids_the_run(lab: Lab) -> None:
    facts = {"field": "encryption", "found": "rot13", "planned": "aes"}
    mismatch = Problem.from_wording(MISMATCHES, "luks", facts)
    lab.proof = Proof(False, (mismatch,))
    assert lab.execute() == 1
    assert "finished" not in lab.last().values()
    assert lab.run_json(0)["void_reason"] == mismatch.sentence
    assert {"at": "proof", "mismatches": "luks"} in lab.void_facts()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_check_that_fails_voids_the_run_by_its_name(
    lab: Lab, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    observation = Observation(4096, False)
    words = ("swap in use", "memory is swapped out to a disk")
    row = Check("swap", when, "blocker", *words, lambda _context: observation, "swapoff -a")
    monkeypatch.setattr("agent.checks.TABLE", (row,))
    assert lab.execute() == 1
    assert {"at": "check", "checks": "swap"} in lab.void_facts()
    assert lab.run_json(0)["void_reason"] == "Memory is swapped out to a disk: swapoff -a."


def test_storage_that_fails_again_and_again_fails_the_suite(lab: Lab) -> None:
    lab.stack.refuse = {"plain", "opal"}
    assert lab.execute() == 1
    states = [state for state, _ in lab.states()]
    assert states.count("void") == runner.MAX_FAILURES_IN_A_ROW
    assert states[-1] == "suite-failed"
    assert lab.stack.calls[-1] == "bare"


def test_storage_that_fails_once_voids_and_goes_on(lab: Lab) -> None:
    lab.stack.refuse = {"opal"}
    assert lab.execute() == 0
    by_configuration = {(run.configuration, lab.last()[run.run_id]) for run in lab.plan.runs}
    assert by_configuration == {("plain", "finished"), ("opal", "void")}
    assert {fact["at"] for fact in lab.void_facts()} == {"storage"}


def test_resuming_repeats_what_did_not_finish_and_nothing_else(lab: Lab) -> None:
    def fail(_context: Context) -> None:
        raise ValueError("once")

    lab.acts["file_io"] = fail
    lab.execute()
    first = (lab.folder / "runs" / lab.plan.runs[0].run_id / "run.json").read_bytes()
    lab.acts.clear()
    before = len(lab.states())
    assert lab.execute() == 0
    again = {run_id for state, run_id in lab.states()[before:] if state == "running"}
    assert again == {run.run_id for run in lab.plan.runs if run.workload == "file_io"}
    assert set(lab.last().values()) == {"finished"}
    assert first == (lab.folder / "runs" / lab.plan.runs[0].run_id / "run.json").read_bytes()
    aside = lab.folder / "runs" / f"{lab.plan.runs[1].run_id}.void-1" / "run.json"
    assert json.loads(aside.read_text())["status"] == "void"
    before = len(lab.states())
    assert lab.execute() == 0  # nothing left to do, which whoever follows must hear
    assert lab.states()[before:] == [("suite-finished", "")]


def test_a_crash_in_the_middle_is_a_run_that_is_repeated(lab: Lab) -> None:
    writer = journal.Journal(lab.folder / "journal.jsonl")
    writer.append("suite-started")
    writer.append("finished", lab.plan.runs[0].run_id)
    writer.append("running", lab.plan.runs[1].run_id)
    writer.close()
    lab.execute()
    run_ids = [run_id for state, run_id in lab.states()[3:] if state == "running"]
    assert run_ids == [run.run_id for run in lab.plan.runs[1:]]


def test_a_signal_voids_the_run_and_leaves_the_storage_bare(lab: Lab) -> None:
    def stop(_context: Context) -> None:
        lab.stack.impatient = True  # a second signal must not break the tidying up
        os.kill(os.getpid(), signal.SIGTERM)

    lab.acts["file_io"] = stop
    before = signal.getsignal(signal.SIGTERM)
    with limits.stoppable():
        assert lab.execute() == 1
    assert signal.getsignal(signal.SIGTERM) == before
    assert lab.states()[-2:] == [("void", lab.plan.runs[1].run_id), ("suite-failed", "")]
    assert lab.stack.calls[-1] == "bare"
    lab.acts.clear()
    lab.stack.impatient = False
    assert lab.execute() == 0
    assert set(lab.last().values()) == {"finished"}


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (lambda context: context.phase("inner").__enter__(), "within phase 'work'"),
        (lambda _context: (_ for _ in ()).throw(OSError(28, "No space left")), "No space left"),
    ],
)
def test_reasons_reach_the_journal(lab: Lab, act: Action, reason: str) -> None:
    lab.acts["file_io"] = act
    lab.execute()
    void = [entry for entry in entries(lab) if entry.state == "void"]
    assert void
    assert all(reason in entry.detail for entry in void)


def test_the_seed_is_the_same_for_all_configurations_of_a_block(lab: Lab) -> None:
    seeds: dict[tuple[int, str], set[int]] = {}
    for run in lab.plan.runs:
        seeds.setdefault((run.block, run.workload), set()).add(measure.seed_of(lab.plan, run))
    assert all(len(group) == 1 for group in seeds.values())
    assert len({min(group) for group in seeds.values()}) == len(seeds)
    assert all(0 <= seed < 2**31 for group in seeds.values() for seed in group)


def test_an_asset_is_compared_before_the_first_run_and_its_sum_kept(lab: Lab) -> None:
    clip = lab.folder.parent / "clip"
    clip.write_bytes(b"a clip")
    lab.assets = ("clip",)
    entry = {"path": str(clip), "sha256": "0" * 64, "sums": None}
    lab.plan = plan.parse(plan.freeze({**blocks_document(), "assets": {"clip": entry}}))
    assert lab.execute() == 1
    ended = entries(lab)[-1]
    assert ended.state == "suite-failed"
    assert f"The asset clip ({clip}) has the SHA-256" in ended.detail
    assert not (lab.folder / "runs").exists()
    entry["sha256"] = hashlib.sha256(b"a clip").hexdigest()
    lab.plan = plan.parse(plan.freeze({**blocks_document(), "assets": {"clip": entry}}))
    assert lab.execute() == 0
    kept = json.loads((lab.folder / "provenance" / "before.json").read_text(encoding="utf-8"))
    assert kept["assets"] == {"clip": entry["sha256"]}


def test_a_locked_range_that_can_be_read_fails_the_suite_each_time(lab: Lab) -> None:
    lab.stack.reads = {"S": None}
    for _ in range(2):
        assert lab.execute() == 1
        entry = entries(lab)[-1]
        assert entry.state == "suite-failed"
        assert "The locked range of S can be read" in entry.detail


def test_an_internal_error_within_a_run_ends_bare(lab: Lab, tmp_path: Path) -> None:
    """At every tenth line that a suite of one block comes to from its first run on."""
    files = {measure.__file__, runner.__file__}
    lines = lines_of(lab.execute, files)
    first = next(n for n, line in enumerate(lines) if line[0] == measure.__file__)
    ends = []
    for number, line in enumerate(lines[first::10]):
        other = Lab(tmp_path / f"other-{number}")
        fail_at(other.execute, line)
        ends.append(line if other.stack.entered else None)
    assert len(ends) > 15 and not any(ends)
