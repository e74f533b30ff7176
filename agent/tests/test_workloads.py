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
from agent.tests.suite_lab import Lab, blocks_document, entries
from contract import plan
from contract.journal import SKIPPED
from contract.tests.refusal import refuses
from workloads.base import Context, Needs, Workload

MIB, GIB = 2**20, 2**30


@pytest.fixture
def lab(three_blocks: Lab) -> Lab:
    return three_blocks


def with_variant(one: Lab) -> None:
    """Add the suite's second workload under a name of its own, and twice in a block."""
    document = blocks_document()
    document["workloads"][1] = {"name": "big", "workload": "file_io", "parameters": {"x": 1}}
    for run in document["runs"]:
        if run["workload"] == "file_io":
            run.update(workload="big", run_id=f"{run['run_id'][:-7]}big.1", repeat=1)
    one.plan = plan.parse(plan.freeze(document))


def test_an_entry_runs_its_workload_under_its_own_name(lab: Lab) -> None:
    with_variant(lab)
    calls: list[dict[str, Any]] = []
    lab.acts["file_io"] = lambda context: calls.append(dict(context.parameters))
    assert lab.execute() == 0
    assert calls == [{"x": 1}, {"x": 1}]
    record = lab.run_json(1)
    assert record["workload"] == "big" and record["parameters"] == {"x": 1}
    assert record["program"] == "the act of file_io"
    assert lab.run_json(0)["program"] == "the act of idle"


def test_a_run_tells_the_processors_and_how_busy_they_were(lab: Lab) -> None:
    def spin(_context: Context) -> None:
        end_s = time.process_time() + 0.3
        while time.process_time() < end_s:
            pass

    lab.acts["idle"] = spin
    assert lab.execute() == 0
    record = lab.run_json(0)
    assert record["cpus"] == os.cpu_count()
    work = record["phases"][0]
    assert work["cpu_busy_s"] > 0
    assert record["phases"][-1]["cpu_busy_s"] >= 0
    assert work["cpu_stolen_s"] >= 0


def test_busy_is_all_but_idle_and_waiting_and_steal_is_what_others_took(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  1 20 300 4000 50000 600000 7000000 80000000 1 1\ncpu0 9 9 9 9\n")
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    assert marks.cpus_s(stat) == pytest.approx((7600321 / ticks_per_s, 80000000 / ticks_per_s))


def test_what_is_left_out_is_told_with_its_reason(lab: Lab) -> None:
    lab.acts["idle"] = lambda context: context.leave_out("twofish", "There is no module: load it.")
    assert lab.execute() == 0
    left_out = [{"what": "twofish", "reason": "There is no module: load it."}]
    assert lab.run_json(0)["left_out"] == left_out
    assert lab.run_json(1)["left_out"] == []


def test_what_is_kept_is_summed_and_of_this_try_alone(lab: Lab) -> None:
    tries: list[int] = []

    def keep(context: Context) -> None:
        tries.append(1)
        assert list(context.kept.iterdir()) == []
        (context.kept / "fio").mkdir()
        (context.kept / "fio" / f"{len(tries)}.json").write_text("{}")
        (context.kept / ".hidden").write_text("no")
        (context.kept / "link").symlink_to("fio/1.json")
        if len(tries) == 1:
            raise ValueError("the first try")

    document = {**blocks_document(), "attempts": 2}
    lab.plan = plan.parse(plan.freeze(document))
    lab.acts["idle"] = keep
    assert lab.execute() == 0
    run_id = lab.plan.runs[0].run_id
    aside = lab.folder / "runs" / f"{run_id}.void-1"
    assert pack.kept_sums(aside) == {"fio/1.json": hashlib.sha256(b"{}").hexdigest()}
    assert lab.run_json(0)["kept"] == {"fio/2.json": hashlib.sha256(b"{}").hexdigest()}
    assert lab.run_json(1)["kept"] == {}

    out = io.BytesIO()
    (lab.folder / "plan.json").write_text("{}")
    pack.pack(lab.folder, out)
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as tar:
        names = [name for name in tar.getnames() if "/kept/" in name]
    assert f"suite/runs/{run_id}/kept/fio/2.json" in names
    assert not [name for name in names if name.endswith((".hidden", "link"))]


def test_what_cannot_run_is_skipped_and_the_suite_ends_well(lab: Lab) -> None:
    lab.reasons["file_io"] = ["file_io needs dd: install it.", "And more."]
    assert lab.execute() == 0
    skipped = [entry for entry in entries(lab) if entry.state == "void"]
    assert len(skipped) == 6, "each once"
    assert all(
        (entry.cause, entry.detail) == (SKIPPED, "file_io needs dd: install it. And more.")
        for entry in skipped
    )
    assert entries(lab)[-1].detail == "6 finished, 0 void, 6 skipped"
    record = lab.run_json(1)
    assert record["status"] == "skipped"
    assert record["void_reason"] == "file_io needs dd: install it. And more."
    lab.reasons.clear()
    assert lab.execute() == 0, "once it is installed, a suite that is started again runs it"
    assert set(lab.last().values()) == {"finished"}


@pytest.mark.parametrize("may_skip", [(), ("file_io",)])
def test_a_suite_goes_without_a_workload_only_where_that_is_meant(
    lab: Lab, may_skip: tuple[str, ...]
) -> None:
    lab.reasons["file_io"] = ["file_io needs dd: install it."]
    lab.plan = replace(lab.plan, may_skip=may_skip)
    assert lab.execute() == (0 if may_skip else 1)
    ended = entries(lab)[-1].detail
    if not may_skip:
        assert ended.startswith("file_io cannot run here: file_io needs dd: install it.")
        assert "fde run --skip file_io" in ended
        assert not (lab.folder / "runs").exists()


def test_a_workload_that_breaks_while_it_is_asked_is_skipped(
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = lab.load

    def broken(parameters: object, _assets: object) -> list[str]:
        raise KeyError(parameters)

    def load(name: str) -> Workload:
        workload = real(name)
        if name == "file_io":
            monkeypatch.setattr(workload, "requires", broken)
        return workload

    monkeypatch.setattr("workloads.registry.load", load)
    with_variant(lab)
    assert lab.execute() == 0
    assert "KeyError({'x': 1})" in lab.run_json(1)["void_reason"]
    assert entries(lab)[-1].detail == "2 finished, 0 void, 2 skipped"


def test_too_little_room_or_memory_is_told_before_the_first_run(
    lab: Lab,
) -> None:
    lab.needs = {"idle": Needs(disk_bytes=GIB), "file_io": Needs(memory_bytes=2**60)}
    assert lab.execute() == 1
    ended = entries(lab)[-1]
    assert ended.state == "suite-failed"
    assert "idle needs 1.0 GiB on the file system under test, which has 973 MiB" in ended.detail
    assert "file_io needs 1073741824.0 GiB of memory" in ended.detail
    assert not (lab.folder / "runs").exists()
    lab.reasons["file_io"] = ["file_io cannot run."]
    lab.needs["idle"] = Needs(disk_bytes=GIB * 9 // 10)
    assert lab.execute() == 0, "what is skipped needs nothing"


def test_what_a_run_writes_is_left_out_where_it_is_not_known(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.needs = {"idle": Needs(disk_bytes=GIB)}
    assert needs.written_bytes(lab.plan) == {"idle": GIB, "file_io": 0}
    known = {"idle": lab.load("idle")}
    monkeypatch.setattr("workloads.registry.load", lambda name: known[name])
    assert needs.written_bytes(lab.plan) == {"idle": GIB}


def test_what_earlier_runs_keep_is_not_needed_once_more(lab: Lab) -> None:
    def interrupt(_context: Context) -> None:
        lab.needs["idle"] = Needs(scratch_bytes=2**60)
        raise Stop

    lab.acts["file_io"] = interrupt
    assert lab.execute() == 1
    lab.acts.clear()
    assert lab.execute() == 0, "one run was finished before: the need is no longer looked at"
    assert set(lab.last().values()) == {"finished"}


def test_scratch_is_needed_by_each_workload_once(lab: Lab, tmp_path: Path) -> None:
    document = blocks_document()
    document["workloads"].append({"name": "big", "workload": "idle", "parameters": {}})
    three = plan.parse(plan.freeze(document))
    free_bytes = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    lab.needs = {"idle": Needs(scratch_bytes=free_bytes * 6 // 10)}
    needs.check(three, tmp_path)
    lab.needs["file_io"] = Needs(scratch_bytes=free_bytes * 6 // 10)
    with refuses("scratch-too-small", names="idle, file_io"):
        needs.check(three, tmp_path)
