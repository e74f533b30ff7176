"""How often a run is tried, what a request changes, and how long one may take: real processes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent import cli, requests
from agent.tests.suite_lab import Lab, entries, failing, is_complete, killed, planned_runs
from contract import journal
from contract.errors import AgentError
from workloads.base import Context


def test_a_void_run_is_tried_again_at_once_and_in_its_place(one_block: Lab) -> None:
    tried: list[str] = []

    def fail_twice(_context: Context) -> None:
        tried.append("x")
        if len(tried) < 3:
            failing(_context)

    one_block.acts["file_io"] = fail_twice
    assert one_block.execute() == 0
    assert is_complete(one_block)
    assert one_block.states_of(1).count("void") == 2
    order = [entry.run_id for entry in entries(one_block) if entry.state in ("void", "finished")]
    assert order == [one_block.plan.runs[n].run_id for n in (0, 1, 1, 1, 2, 3)]
    # A fresh file system for every try after a void one.
    again = ["switching", "running"]
    assert one_block.states_of(1)[:7] == ["running", "void", *again, "void", *again]


def test_restarts_of_the_agent_do_not_add_attempts(one_block: Lab) -> None:
    one_block.acts["file_io"] = failing
    assert one_block.execute() == 0
    assert one_block.states_of(1).count("void") == one_block.plan.attempts == 3
    # Whoever starts a suite again that had ended wants it tried again.
    assert one_block.execute() == 0
    assert one_block.states_of(1).count("void") == 6


def test_a_hanging_run_is_void_and_its_programs_are_killed(one_block: Lab) -> None:
    one_block.change(run_limit_s=0.5, attempts=1)
    pids = one_block.folder.parent / "pids"
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

    one_block.acts["file_io"] = hang
    # Not in this process: it would adopt orphans of other tests.
    assert not killed(one_block, lambda _n, _line: None)
    void = one_block.voids()
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


def request(one_block: Lab, index: int, seq: int) -> int:
    options = ["--suite-dir", str(one_block.folder), "--run", one_block.plan.runs[index].run_id]
    return cli.main(["request-repeat", *options, "--seq", str(seq), "--reason", "meter  gone"])


def finished_seq(one_block: Lab, index: int) -> int:
    line = ("finished", one_block.plan.runs[index].run_id)
    return next(e.seq for e in reversed(entries(one_block)) if (e.state, e.run_id) == line)


def test_a_request_repeats_a_finished_run_once(
    one_block: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert one_block.execute() == 0
    seq, before = finished_seq(one_block, 1), len(entries(one_block))
    assert request(one_block, 1, seq) == request(one_block, 1, seq) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert answers == [{"changed": True}, {"changed": False}]
    with (one_block.folder / requests.FILE).open("a") as file:
        file.write('{"run_id": "torn')
    assert one_block.execute() == 0
    after = entries(one_block)[before:]
    assert (after[0].cause, after[0].detail) == ("repeat", "meter gone")
    assert {e.run_id for e in after} == {"", one_block.plan.runs[1].run_id}
    assert is_complete(one_block)
    assert finished_seq(one_block, 1) > seq
    # Once folded it is over.
    count = len(entries(one_block))
    assert one_block.execute() == 0
    assert [e.state for e in entries(one_block)[count:]] == ["suite-finished"]


def test_a_request_during_the_suite_is_served_before_its_end(one_block: Lab) -> None:
    asked: list[int] = []

    def ask(_context: Context) -> None:
        if not asked and one_block.states_of(1)[-1:] == ["finished"]:
            asked.append(finished_seq(one_block, 1))
            assert request(one_block, 1, asked[0]) == 0

    one_block.acts["idle"] = ask
    assert one_block.execute() == 0
    assert asked and finished_seq(one_block, 1) > asked[0]
    assert is_complete(one_block)


def test_requests_never_use_a_runs_last_attempt(one_block: Lab) -> None:
    assert one_block.execute() == 0
    for _ in range(4):
        assert request(one_block, 0, finished_seq(one_block, 0)) == 0
        assert one_block.execute() == 0
    assert one_block.states_of(0).count("finished") == one_block.plan.attempts
    assert is_complete(one_block)


def test_locked_ranges_are_read_once_a_suite(one_block: Lab) -> None:
    one_block.stack.reads = {"S": "ENODATA"}
    assert one_block.execute() == 0
    assert request(one_block, 0, finished_seq(one_block, 0)) == 0
    assert one_block.execute() == 0
    assert one_block.states_of(0).count("finished") == 2
    assert one_block.stack.calls.count("read") == 1
    assert one_block.read("provenance/after.json")["locked_reads"] == {
        "S": {"error": "ENODATA", "link_before": None, "link_after": None}
    }


def test_a_request_does_not_renew_the_attempts_of_other_runs(one_block: Lab) -> None:
    one_block.acts["file_io"] = failing
    assert one_block.execute() == 0
    assert request(one_block, 0, finished_seq(one_block, 0)) == 0
    assert one_block.execute() == 0
    assert one_block.states_of(0).count("finished") == 2
    assert one_block.states_of(1).count("void") == 3


@pytest.mark.parametrize("seq", [-1, 0, 10_000])
def test_a_request_for_a_line_that_finishes_no_run_is_refused(
    one_block: Lab, seq: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert one_block.execute() == 0
    assert request(one_block, 0, seq) == 1
    assert "does not finish" in capsys.readouterr().err
    assert not (one_block.folder / requests.FILE).exists()


def test_five_void_runs_in_a_row_stop_the_suite_across_restarts(
    one_block: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = journal.Journal(one_block.folder / "journal.jsonl")
    writer.append("suite-started")
    for run in one_block.plan.runs:
        writer.append("running", run.run_id)
        writer.append("void", run.run_id, "dm cipher is 'rot13'", "failed")
    writer.close()
    order = [(run.block, run.configuration, run.workload) for run in one_block.plan.runs]
    one_block.change(runs=planned_runs([*order, (0, "plain", "idle")]))

    def refuse(_name: str) -> None:
        raise AgentError("The disk is gone: plug it in.")

    monkeypatch.setattr(one_block.stack, "enter", refuse)
    assert one_block.execute() == 1
    ended = entries(one_block)[-1]
    assert ended.state == "suite-failed"
    assert "5 runs in a row were void" in ended.detail
    assert "The disk is gone" in ended.detail
