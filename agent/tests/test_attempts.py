"""How often a run is tried, what a request changes, and how long one may take: real processes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent import cli, requests
from agent.tests.suite_lab import Lab, entries, killed, sound
from contract import journal, plan
from contract.errors import AgentError
from workloads.base import Context


@pytest.fixture
def lab(one_block: Lab) -> Lab:
    return one_block


def changed(lab: Lab, **keys: object) -> None:
    """Give the same suite other keys in its plan."""
    document = json.loads((lab.folder / "plan.json").read_text()) | keys
    lab.plan = plan.parse(plan.freeze(document))
    (lab.folder / "plan.json").write_text(json.dumps(plan.freeze(document)))


def states_of(lab: Lab, index: int) -> list[str]:
    run_id = lab.plan.runs[index].run_id
    return [entry.state for entry in entries(lab) if entry.run_id == run_id]


def test_a_void_run_is_tried_again_at_once_and_in_its_place(lab: Lab) -> None:
    tried: list[str] = []

    def fail_twice(_context: Context) -> None:
        tried.append("x")
        if len(tried) < 3:
            raise ValueError("no such luck")

    lab.acts["file_io"] = fail_twice
    assert lab.execute() == 0
    assert sound(lab) == {run.run_id for run in lab.plan.runs}
    assert states_of(lab, 1).count("void") == 2
    order = [entry.run_id for entry in entries(lab) if entry.state in ("void", "finished")]
    assert order == [lab.plan.runs[n].run_id for n in (0, 1, 1, 1, 2, 3)]
    # A fresh file system for every try after a void one.
    assert states_of(lab, 1)[:7] == [
        "running",
        "void",
        *["switching", "running", "void"],
        *[
            "switching",
            "running",
        ],
    ]


def test_no_more_tries_than_the_plan_allows_over_starts_of_the_agent(lab: Lab) -> None:
    def fail(_context: Context) -> None:
        raise ValueError("never")

    lab.acts["file_io"] = fail
    assert lab.execute() == 0
    assert states_of(lab, 1).count("void") == lab.plan.attempts == 3
    # Whoever starts a suite again that had ended wants it tried again.
    assert lab.execute() == 0
    assert states_of(lab, 1).count("void") == 6


def test_a_workload_that_cannot_run_here_is_not_tried_again(lab: Lab) -> None:
    lab.reasons["file_io"] = ["install it."]
    assert lab.execute() == 0
    assert states_of(lab, 1) == states_of(lab, 3) == ["void"]


def test_a_run_that_hangs_is_void_and_all_it_started_is_gone(lab: Lab) -> None:
    changed(lab, run_limit_s=0.5, attempts=1)
    pids = lab.folder.parent / "pids"
    hanging = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n"
        f"with open({str(pids)!r}, 'a') as file: file.write(f'{{os.getpid()}}\\n')\n"
        "time.sleep(1000)\n"
    )

    def hang(_context: Context) -> None:
        process = subprocess.Popen([sys.executable, "-c", hanging])
        while len(pids.read_text().split() if pids.exists() else []) < 2:
            time.sleep(0.01)
        try:
            process.wait()
        finally:
            process.wait()  # tidying up that would hang as well

    lab.acts["file_io"] = hang
    # Not in this process: it would adopt orphans of other tests.
    assert not killed(lab, lambda _n, _line: None)
    void = [entry for entry in entries(lab) if entry.state == "void"]
    assert len(void) == 2
    assert void[0].detail == "file_io took longer than 0.5 s (run_limit_s of the plan)."
    assert void[0].facts == {"at": "time", "limit_s": 0.5}
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) >= 2
    assert not [pid for pid in started if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def request(lab: Lab, index: int, seq: int) -> int:
    options = ["--suite-dir", str(lab.folder), "--run", lab.plan.runs[index].run_id]
    return cli.main(["request-repeat", *options, "--seq", str(seq), "--reason", "meter  gone"])


def finished_seq(lab: Lab, index: int) -> int:
    run_id = lab.plan.runs[index].run_id
    return next(
        e.seq for e in reversed(entries(lab)) if (e.state, e.run_id) == ("finished", run_id)
    )


def test_a_request_has_a_finished_run_repeated_once(
    lab: Lab,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert lab.execute() == 0
    seq, before = finished_seq(lab, 1), len(entries(lab))
    assert request(lab, 1, seq) == request(lab, 1, seq) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert answers == [{"changed": True}, {"changed": False}]
    with (lab.folder / requests.FILE).open("a") as file:
        file.write('{"run_id": "torn')
    assert lab.execute() == 0
    after = entries(lab)[before:]
    assert (after[0].cause, after[0].detail) == ("repeat", "meter gone")
    assert {e.run_id for e in after} == {"", lab.plan.runs[1].run_id}
    assert sound(lab) == {run.run_id for run in lab.plan.runs}
    assert finished_seq(lab, 1) > seq
    # Once folded it is over.
    done = len(entries(lab))
    assert lab.execute() == 0
    assert [e.state for e in entries(lab)[done:]] == ["suite-finished"]


def test_a_request_during_the_suite_is_met_before_it_ends(lab: Lab) -> None:
    asked: list[int] = []

    def ask(_context: Context) -> None:
        if not asked and states_of(lab, 1)[-1:] == ["finished"]:
            asked.append(finished_seq(lab, 1))
            assert request(lab, 1, asked[0]) == 0

    lab.acts["idle"] = ask
    assert lab.execute() == 0
    assert asked and finished_seq(lab, 1) > asked[0]
    assert sound(lab) == {run.run_id for run in lab.plan.runs}


def test_requests_never_cost_a_run_its_last_try(lab: Lab) -> None:
    assert lab.execute() == 0
    for _ in range(4):
        assert request(lab, 0, finished_seq(lab, 0)) == 0
        assert lab.execute() == 0
    assert states_of(lab, 0).count("finished") == lab.plan.attempts
    assert sound(lab) == {run.run_id for run in lab.plan.runs}


def test_locked_ranges_are_read_once_a_suite(lab: Lab) -> None:
    lab.stack.reads = {"S": "ENODATA"}
    assert lab.execute() == 0
    assert request(lab, 0, finished_seq(lab, 0)) == 0
    assert lab.execute() == 0
    assert states_of(lab, 0).count("finished") == 2
    assert lab.stack.calls.count("read") == 1
    kept = json.loads((lab.folder / "provenance" / "after.json").read_text())["locked_reads"]
    assert kept == {"S": {"error": "ENODATA", "link_before": None, "link_after": None}}


def test_a_request_does_not_give_others_their_tries_again(lab: Lab) -> None:
    def fail(_context: Context) -> None:
        raise ValueError("never")

    lab.acts["file_io"] = fail
    assert lab.execute() == 0
    assert request(lab, 0, finished_seq(lab, 0)) == 0
    assert lab.execute() == 0
    assert states_of(lab, 0).count("finished") == 2
    assert states_of(lab, 1).count("void") == 3


@pytest.mark.parametrize("seq", [-1, 0, 10_000])
def test_a_request_that_means_nothing_is_refused(
    lab: Lab,
    seq: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert lab.execute() == 0
    assert request(lab, 0, seq) == 1
    assert "does not finish" in capsys.readouterr().err
    assert not (lab.folder / requests.FILE).exists()


def test_distinct_runs_in_a_row_stop_the_suite_also_over_kills(
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = journal.Journal(lab.folder / "journal.jsonl")
    writer.append("suite-started")
    for run in lab.plan.runs:
        writer.append("running", run.run_id)
        writer.append("void", run.run_id, "dm cipher is 'rot13'", "failed")
    writer.close()
    changed(lab, runs=[*json.loads((lab.folder / "plan.json").read_text())["runs"], _fifth(lab)])

    def refuse(_name: str) -> None:
        raise AgentError("The disk is gone: plug it in.")

    monkeypatch.setattr(lab.stack, "enter", refuse)
    assert lab.execute() == 1
    ended = entries(lab)[-1]
    assert ended.state == "suite-failed"
    assert "5 runs in a row were void" in ended.detail


def _fifth(lab: Lab) -> dict[str, object]:
    one = json.loads((lab.folder / "plan.json").read_text())["runs"][0]
    return {**one, "run_id": "0004-b00-plain-idle", "index": 4}
