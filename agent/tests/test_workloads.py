"""What runs tell of their workloads: entries, what was kept and left out, skipped, or too large."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import marks, needs, pack
from agent.system.limits import Stop
from agent.tests.suite_lab import Lab, blocks_document, entries, failing
from contract import plan
from contract.journal import SKIPPED
from contract.tests.refusal import refuses
from workloads.base import Context, Needs, Workload

MIB, GIB = 2**20, 2**30


def with_variant(suite: Lab) -> None:
    """Add the suite's second workload under a name of its own, and twice in a block."""
    document = blocks_document()
    document["workloads"][1] = {"name": "big", "workload": "file_io", "parameters": {"x": 1}}
    for run in document["runs"]:
        if run["workload"] == "file_io":
            run.update(workload="big", run_id=f"{run['run_id'][:-7]}big.1", repeat=1)
    suite.change(**document)


def test_an_entry_runs_its_workload_under_its_own_name(suite: Lab) -> None:
    with_variant(suite)
    calls: list[dict[str, Any]] = []
    suite.acts["file_io"] = lambda context: calls.append(dict(context.parameters))
    assert suite.execute() == 0
    assert calls == [{"x": 1}, {"x": 1}]
    record = suite.run_json(1)
    assert record["workload"] == "big" and record["parameters"] == {"x": 1}
    assert record["program"] == "the act of file_io"
    assert suite.run_json(0)["program"] == "the act of idle"


def test_a_run_records_processors_and_their_load(suite: Lab) -> None:
    def spin(_context: Context) -> None:
        end_s = time.process_time() + 0.3
        while time.process_time() < end_s:
            pass

    suite.acts["idle"] = spin
    assert suite.execute() == 0
    record = suite.run_json(0)
    assert record["cpus"] == os.cpu_count()
    work = record["phases"][0]
    assert work["cpu_busy_s"] > 0
    assert record["phases"][-1]["cpu_busy_s"] >= 0
    assert work["cpu_stolen_s"] >= 0


def test_busy_excludes_idle_and_iowait_and_steal_is_separate(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  1 20 300 4000 50000 600000 7000000 80000000 1 1\ncpu0 9 9 9 9\n")
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    assert marks.cpus_s(stat) == pytest.approx((7600321 / ticks_per_s, 80000000 / ticks_per_s))


def test_left_out_work_is_recorded_with_its_reason(suite: Lab) -> None:
    suite.acts["idle"] = lambda context: context.leave_out(
        "twofish", "There is no module: load it."
    )
    assert suite.execute() == 0
    left_out = [{"what": "twofish", "reason": "There is no module: load it."}]
    assert suite.run_json(0)["left_out"] == left_out
    assert suite.run_json(1)["left_out"] == []


def test_kept_files_have_sums_and_are_of_this_attempt(suite: Lab) -> None:
    tries: list[int] = []

    def keep(context: Context) -> None:
        tries.append(1)
        assert list(context.kept.iterdir()) == []
        (context.kept / "fio").mkdir()
        (context.kept / "fio" / f"{len(tries)}.json").write_text("{}")
        (context.kept / ".hidden").write_text("no")
        (context.kept / "link").symlink_to("fio/1.json")
        if len(tries) == 1:
            failing(context)

    suite.change(**blocks_document(), attempts=2)
    suite.acts["idle"] = keep
    assert suite.execute() == 0
    run_id = suite.plan.runs[0].run_id
    aside = suite.folder / "runs" / f"{run_id}.void-1"
    assert pack.kept_sums(aside) == {"fio/1.json": hashlib.sha256(b"{}").hexdigest()}
    assert suite.run_json(0)["kept"] == {"fio/2.json": hashlib.sha256(b"{}").hexdigest()}
    assert suite.run_json(1)["kept"] == {}

    out = io.BytesIO()
    (suite.folder / "plan.json").write_text("{}")
    pack.pack(suite.folder, out)
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as tar:
        names = [name for name in tar.getnames() if "/kept/" in name]
    assert f"suite/runs/{run_id}/kept/fio/2.json" in names
    assert not [name for name in names if name.endswith((".hidden", "link"))]


def test_a_workload_that_cannot_run_is_skipped(suite: Lab) -> None:
    suite.reasons["file_io"] = ["file_io needs dd: install it.", "And more."]
    assert suite.execute() == 0
    reason = "file_io needs dd: install it. And more."
    skipped = [(entry.cause, entry.detail) for entry in suite.voids()]
    assert skipped == [(SKIPPED, reason)] * 6, "each once"
    assert entries(suite)[-1].detail == "6 finished, 0 void, 6 skipped"
    record = suite.run_json(1)
    assert (record["status"], record["void_reason"]) == ("skipped", reason)
    suite.reasons.clear()
    assert suite.execute() == 0, "once it is installed, a suite that is started again runs it"
    assert set(suite.last().values()) == {"finished"}


@pytest.mark.parametrize("may_skip", [(), ("file_io",)])
def test_a_workload_may_be_missing_only_if_the_plan_allows(
    suite: Lab, may_skip: tuple[str, ...]
) -> None:
    suite.reasons["file_io"] = ["file_io needs dd: install it."]
    suite.plan = replace(suite.plan, may_skip=may_skip)
    assert suite.execute() == (0 if may_skip else 1)
    ended = entries(suite)[-1].detail
    if not may_skip:
        assert ended.startswith("file_io cannot run here: file_io needs dd: install it.")
        assert "fde run --skip file_io" in ended
        assert not (suite.folder / "runs").exists()


def test_a_workload_whose_requires_fails_is_skipped(
    suite: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = suite.load

    def broken(parameters: object, _assets: object) -> list[str]:
        raise KeyError(parameters)

    def load(name: str) -> Workload:
        workload = real(name)
        if name == "file_io":
            monkeypatch.setattr(workload, "requires", broken)
        return workload

    monkeypatch.setattr("workloads.registry.load", load)
    with_variant(suite)
    assert suite.execute() == 0
    assert "KeyError({'x': 1})" in suite.run_json(1)["void_reason"]
    assert entries(suite)[-1].detail == "2 finished, 0 void, 2 skipped"


def test_too_little_room_or_memory_is_reported_before_the_first_run(suite: Lab) -> None:
    suite.needs = {"idle": Needs(disk_bytes=GIB), "file_io": Needs(memory_bytes=2**60)}
    assert suite.execute() == 1
    ended = entries(suite)[-1]
    assert ended.state == "suite-failed"
    assert "idle needs 1.0 GiB on the file system under test, which has 973 MiB" in ended.detail
    assert "file_io needs 1073741824.0 GiB of memory" in ended.detail
    assert not (suite.folder / "runs").exists()
    suite.reasons["file_io"] = ["file_io cannot run."]
    suite.needs["idle"] = Needs(disk_bytes=GIB * 9 // 10)
    assert suite.execute() == 0, "what is skipped needs nothing"


def test_unknown_written_bytes_are_left_out(suite: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    suite.needs = {"idle": Needs(disk_bytes=GIB)}
    assert needs.written_bytes(suite.plan) == {"idle": GIB, "file_io": 0}
    workloads = {"idle": suite.load("idle")}
    monkeypatch.setattr("workloads.registry.load", lambda name: workloads[name])
    assert needs.written_bytes(suite.plan) == {"idle": GIB}


def test_scratch_of_earlier_runs_is_not_needed_again(suite: Lab) -> None:
    def interrupt(_context: Context) -> None:
        suite.needs["idle"] = Needs(scratch_bytes=2**60)
        raise Stop

    suite.acts["file_io"] = interrupt
    assert suite.execute() == 1
    suite.acts.clear()
    assert suite.execute() == 0, "one run was finished before: the need is no longer looked at"
    assert set(suite.last().values()) == {"finished"}


def test_scratch_is_summed_once_for_each_workload(suite: Lab, tmp_path: Path) -> None:
    document = blocks_document()
    document["workloads"].append({"name": "big", "workload": "idle", "parameters": {}})
    three = plan.parse(plan.freeze(document))
    free_bytes = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    suite.needs = {"idle": Needs(scratch_bytes=free_bytes * 6 // 10)}
    needs.check(three, tmp_path)
    suite.needs["file_io"] = Needs(scratch_bytes=free_bytes * 6 // 10)
    with refuses("scratch-too-small", names="idle, file_io"):
        needs.check(three, tmp_path)
