"""Order, resumption and voiding of runs; the storage and its proof are stand-ins here."""

from __future__ import annotations

import hashlib
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
from agent.tests.suite_lab import Lab, entries, failing
from contract import journal
from contract.problem import Problem
from workloads.base import Context


def test_a_suite_runs_in_the_order_of_its_plan(suite: Lab) -> None:
    assert suite.execute() == 0
    assert suite.finished() == [run.run_id for run in suite.plan.runs]
    # Entered once a configuration and block, also where the block's last is the next one's first.
    entered = [call for call in suite.stack.calls if call not in ("bare", "read")]
    assert entered == ["plain", "opal", "opal", "plain", "plain", "opal"]
    assert suite.stack.calls[-2:] == ["bare", "read"]
    assert suite.states_of(0) == ["switching", "running", "proving", "finished"]


def test_a_run_leaves_its_record_and_no_files(suite: Lab) -> None:
    def spend(context: Context) -> None:
        (context.disk / "file").write_text("x")
        suite.energy.write_text("5000\n")

    suite.acts["idle"] = spend
    suite.execute()
    record = suite.run_json(0)
    assert [phase["name"] for phase in record["phases"]] == ["work", "tail"]
    counter = record["phases"][0]["counters"][0]
    assert (counter["start"]["energy_uj"], counter["end"]["energy_uj"]) == (1000, 5000)
    assert counter["start"]["t_after_ns"] <= record["phases"][0]["t_start_ns"]
    assert record["phases"][0]["t_end_ns"] <= counter["end"]["t_before_ns"]
    assert record["phases"][0]["work"] == {"files": 1}
    assert record["plan_sha256"] == suite.plan.sha256
    assert list(suite.stack.mount_point.iterdir()) == []


def test_the_shared_folder_is_removed_after_the_suite(suite: Lab, tmp_path: Path) -> None:
    counts: list[int] = []

    def keep(context: Context) -> None:
        counts.append(len(list(context.shared.iterdir())))
        (context.shared / f"{len(counts)}").touch()

    suite.acts["idle"] = keep
    assert suite.execute() == 0
    assert counts == list(range(6))
    assert not list(tmp_path.glob(f"{measure.SCRATCH_PREFIX}*"))


def test_runs_of_an_unavailable_configuration_are_skipped_with_the_reason(suite: Lab) -> None:
    suite.stack.lacks = {"opal": "This kernel has no gcm(aes): leave the configuration out."}
    assert suite.execute() == 0
    skipped = [run.run_id for run in suite.plan.runs if run.configuration == "opal"]
    voids = suite.voids()
    assert [each.run_id for each in voids] == skipped
    assert {each.cause for each in voids} == {journal.SKIPPED}
    assert {each.detail for each in voids} == set(suite.stack.lacks.values())
    assert "opal" not in suite.stack.calls


def test_no_run_begins_beyond_its_bounds_and_the_next_start_continues(suite: Lab) -> None:
    def end(_context: Context) -> None:
        admission.store(suite.folder, Bounds(seconds=0.0))

    suite.acts["file_io"] = end
    assert suite.execute() == 0
    finished = len(suite.finished())
    last = entries(suite)[-1]
    assert 0 < finished < len(suite.plan.runs)
    assert last.state == "suite-finished" and last.detail.endswith(f"{12 - finished} left")
    assert suite.stack.calls[-2:] == ["bare", "read"]
    admission.store(suite.folder, Bounds())
    suite.acts.clear()
    assert suite.execute() == 0
    assert suite.finished() == [run.run_id for run in suite.plan.runs]


def test_a_failing_workload_voids_its_run_only(suite: Lab) -> None:
    suite.acts["file_io"] = failing
    assert suite.execute() == 0
    # More void runs than the limit in all, but never so many in a row.
    assert list(suite.last().values()).count("void") == 6 > runner.MAX_FAILURES_IN_A_ROW
    assert list(suite.last().values()).count("finished") == 6
    assert suite.run_json(1)["status"] == "void"
    assert suite.run_json(1)["void_reason"].endswith(": ValueError: no such luck")
    assert all("no such luck" in void.detail for void in suite.voids())
    assert suite.void_facts() == [{"at": "workload", "error": "ValueError"}] * 6
    assert "Traceback" in (suite.run_folder(1) / "failure.txt").read_text()


def test_a_failed_proof_voids_the_run(suite: Lab) -> None:
    facts = {"field": "encryption", "found": "rot13", "planned": "aes"}
    mismatch = Problem.from_wording(MISMATCHES, "luks", facts)
    suite.proof = Proof(False, (mismatch,))
    assert suite.execute() == 1
    assert "finished" not in suite.last().values()
    assert suite.run_json(0)["void_reason"] == mismatch.sentence
    assert {"at": "proof", "mismatches": "luks"} in suite.void_facts()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_check_that_fails_voids_the_run_by_its_name(
    suite: Lab, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    observation = Observation(4096, False)
    words = ("swap in use", "memory is swapped out to a disk")
    row = Check("swap", when, "blocker", *words, lambda _context: observation, "swapoff -a")
    monkeypatch.setattr("agent.checks.TABLE", (row,))
    assert suite.execute() == 1
    assert {"at": "check", "checks": "swap"} in suite.void_facts()
    assert suite.run_json(0)["void_reason"] == "Memory is swapped out to a disk: swapoff -a."


def test_storage_that_always_fails_fails_the_suite(suite: Lab) -> None:
    suite.stack.refuse = {"plain", "opal"}
    assert suite.execute() == 1
    states = [state for state, _ in suite.states()]
    assert states.count("void") == runner.MAX_FAILURES_IN_A_ROW
    assert states[-1] == "suite-failed"
    assert suite.stack.calls[-1] == "bare"


def test_storage_that_fails_once_voids_the_run_only(suite: Lab) -> None:
    suite.stack.refuse = {"opal"}
    assert suite.execute() == 0
    by_configuration = {(run.configuration, suite.last()[run.run_id]) for run in suite.plan.runs}
    assert by_configuration == {("plain", "finished"), ("opal", "void")}
    assert {fact["at"] for fact in suite.void_facts()} == {"storage"}


def test_resuming_repeats_only_unfinished_runs(suite: Lab) -> None:
    suite.acts["file_io"] = failing
    suite.execute()
    first = (suite.run_folder(0) / "run.json").read_bytes()
    suite.acts.clear()
    before = len(suite.states())
    assert suite.execute() == 0
    again = {run_id for state, run_id in suite.states()[before:] if state == "running"}
    assert again == {run.run_id for run in suite.plan.runs if run.workload == "file_io"}
    assert set(suite.last().values()) == {"finished"}
    assert first == (suite.run_folder(0) / "run.json").read_bytes()
    assert suite.read(f"runs/{suite.plan.runs[1].run_id}.void-1/run.json")["status"] == "void"
    before = len(suite.states())
    assert suite.execute() == 0  # nothing left to do, which whoever follows must hear
    assert suite.states()[before:] == [("suite-finished", "")]


def test_a_signal_voids_the_run_and_leaves_the_storage_bare(suite: Lab) -> None:
    def stop(_context: Context) -> None:
        suite.stack.impatient = True  # a second signal must not break the tidying up
        os.kill(os.getpid(), signal.SIGTERM)

    suite.acts["file_io"] = stop
    before = signal.getsignal(signal.SIGTERM)
    with limits.stoppable():
        assert suite.execute() == 1
    assert signal.getsignal(signal.SIGTERM) == before
    assert suite.states()[-2:] == [("void", suite.plan.runs[1].run_id), ("suite-failed", "")]
    assert suite.stack.calls[-1] == "bare"
    suite.acts.clear()
    suite.stack.impatient = False
    assert suite.execute() == 0
    assert set(suite.last().values()) == {"finished"}


def test_the_seed_is_the_same_for_all_configurations_of_a_block(suite: Lab) -> None:
    seeds: dict[tuple[int, str], set[int]] = {}
    for run in suite.plan.runs:
        seeds.setdefault((run.block, run.workload), set()).add(measure.seed_of(suite.plan, run))
    assert all(len(group) == 1 for group in seeds.values())
    assert len({min(group) for group in seeds.values()}) == len(seeds)
    assert all(0 <= seed < 2**31 for group in seeds.values() for seed in group)


def test_an_asset_is_compared_before_the_first_run_and_its_sum_recorded(suite: Lab) -> None:
    clip = suite.folder.parent / "clip"
    clip.write_bytes(b"a clip")
    suite.assets = ("clip",)
    entry = {"path": str(clip), "sha256": "0" * 64, "sums": None}
    suite.change(assets={"clip": entry})
    assert suite.execute() == 1
    ended = entries(suite)[-1]
    assert ended.state == "suite-failed"
    assert f"The asset clip ({clip}) has the SHA-256" in ended.detail
    assert not (suite.folder / "runs").exists()
    entry["sha256"] = hashlib.sha256(b"a clip").hexdigest()
    suite.change(assets={"clip": entry})
    assert suite.execute() == 0
    assert suite.read("provenance/before.json")["assets"] == {"clip": entry["sha256"]}


def test_a_locked_range_that_can_be_read_fails_the_suite_each_time(suite: Lab) -> None:
    suite.stack.reads = {"S": None}
    for _ in range(2):
        assert suite.execute() == 1
        entry = entries(suite)[-1]
        assert entry.state == "suite-failed"
        assert "The locked range of S can be read" in entry.detail


def test_an_internal_error_within_a_run_ends_bare(suite: Lab, tmp_path: Path) -> None:
    """At every tenth line that a suite of one block comes to from its first run on."""
    files = {measure.__file__, runner.__file__}
    lines = lines_of(suite.execute, files)
    first = next(n for n, line in enumerate(lines) if line[0] == measure.__file__)
    ends = []
    for number, line in enumerate(lines[first::10]):
        other = Lab(tmp_path / f"other-{number}")
        fail_at(other.execute, line)
        ends.append(line if other.stack.entered else None)
    assert len(ends) > 15 and not any(ends)
