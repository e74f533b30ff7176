"""Remaining time and sentences, from hand-written journals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from contract import plan as plans
from contract.attempts import History
from contract.journal import Entry
from contract.status import SuiteStatus
from controller.session import progress, progress_text
from controller.tests.examples import ANSWER, NOW, journal, plan

PLAN = plans.parse(plan(blocks=1))
IDS = [run.run_id for run in PLAN.runs]


def test_remaining_time_is_unknown_before_the_first_finished_run() -> None:
    entries = journal([(0, "suite-started", ""), (1, "switching", IDS[0]), (2, "running", IDS[0])])
    assert progress.remaining_s(PLAN, History(entries)) is None


def test_remaining_runs_cost_the_mean_of_their_workload() -> None:
    """Two runs took 10 s and 30 s, with 4 s before each; two runs of both workloads remain."""
    first, second = PLAN.runs[0], PLAN.runs[1]
    assert first.workload != second.workload
    entries = journal(
        [
            (0, "suite-started", ""),
            (1, "switching", first.run_id),
            (4, "running", first.run_id),
            (14, "finished", first.run_id),
            (18, "running", second.run_id),
            (48, "finished", second.run_id),
        ]
    )
    assert progress.remaining_s(PLAN, History(entries)) == pytest.approx(2 * 10 + 2 * 30 + 4 * 4)


def test_void_attempts_add_to_the_remaining_time() -> None:
    """After a void attempt of 20 s and a finished run of 10 s, the five others cost 30 s each."""
    lines = [
        (0, "suite-started", ""),
        (0, "running", IDS[0]),
        (10, "finished", IDS[0]),
        (10, "running", IDS[1]),
        (30, "void", IDS[1]),
    ]
    entries = journal(lines)
    assert PLAN.runs[1] in progress.unfinished(PLAN, History(entries))
    assert progress.remaining_s(PLAN, History(entries)) == pytest.approx(5 * (10 + 20))


def test_power_cuts_add_nothing_to_the_remaining_time() -> None:
    lines = [(0, "running", IDS[0]), (500, "void", IDS[0])]
    entries = journal(lines)
    assert progress.void_costs_s(History(entries)) == [pytest.approx(500)]
    cut = [entries[0], replace(entries[1], cause="target-down")]
    assert progress.void_costs_s(History(cut)) == []


@pytest.mark.parametrize(
    ("state", "run_id", "cause", "detail", "start"),
    [
        ("waiting", IDS[2], "secrets", "The keys are not here yet.", "waiting: The keys are not"),
        ("void", IDS[2], "target-down", "power cut", "run 3 (opal file_io) was interrupted: power"),
        ("void", IDS[2], "repeat", "meter0 was silent", "run 3 (opal file_io) is run again: met"),
        ("void", IDS[2], "failed", "proof failed", "run 3 (opal file_io) is void: proof failed"),
        ("suite-failed", "", "", "no disk", "suite failed: no disk"),
        ("preconditioning", "", "", "pass 1 of 2", "preconditioning: sed pass 1 of 2"),
        ("preconditioned", "", "", "", "preconditioned: sed"),
    ],
)
def test_entries_as_sentences(state: str, run_id: str, cause: str, detail: str, start: str) -> None:
    facts = {"disk": "sed", "sha256": 64 * "0"} if state.startswith("precondition") else {}
    entry = replace(journal([(0, state, run_id)])[0], cause=cause, detail=detail, facts=facts)
    sentence = progress_text.event(PLAN, entry) or ""
    assert sentence.startswith(start) and "sha256" not in sentence
    assert progress_text.event(PLAN, replace(entry, state="running")) is None


def test_preconditioning_adds_nothing_to_the_remaining_time() -> None:
    lines = [(0, "suite-started", ""), (1, "preconditioning", ""), (9000, "preconditioned", "")]
    entries = journal([*lines, (9004, "running", IDS[0]), (9014, "finished", IDS[0])])
    assert History(entries).attempts[0].lead_s == pytest.approx(4)
    assert progress_text.event(PLAN, entries[1]) == "preconditioning"


def test_a_status_in_one_line() -> None:
    first = PLAN.runs[0]
    entries = journal(
        [
            (0, "suite-started", ""),
            (0, "running", first.run_id),
            (60, "finished", first.run_id),
            (60, "running", IDS[1]),
            (61, "void", IDS[1]),
            (61, "running", IDS[2]),
        ]
    )
    run = PLAN.runs[2]
    assert progress_text.compact(status(entries, watts={"system": 12.345})) == (
        f"block 1 of 1, run 3 of 6: measuring {run.workload} on {run.configuration}, "
        "about 6 min left, 1 void, system 12.3 W"
    )


def status(entries: Sequence[Entry], watts: Mapping[str, float] | None = None) -> SuiteStatus:
    return progress.suite_status(
        PLAN, entries, watts=watts or {}, gaps={}, events=(), since_s=0.0, moment=NOW
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5, "less than a minute"),
        (60, "about 1 min"),
        (61, "about 2 min"),
        (5900, "about 99 min"),
        (5941, "about 1 h 40 min"),
        (7300, "about 2 h 10 min"),
        (7141, "about 2 h 00 min"),
    ],
)
def test_remaining_time_is_rounded_up(seconds: float, text: str) -> None:
    assert progress_text.about(seconds) == text


def test_a_block_is_complete_once_none_of_its_runs_is_due() -> None:
    document = plan(blocks=2)
    suite = plans.parse(document)
    first, second = [[r.run_id for r in suite.runs if r.block == number] for number in (0, 1)]

    def complete(*lines: tuple[str, str]) -> int:
        return progress.complete_blocks(suite, History(journal((0, *line) for line in lines)))

    finished = [("finished", run_id) for run_id in first]
    assert complete(*finished[:-1]) == 0
    assert complete(*finished[:-1], ("void", first[-1])) == 0, "it is tried again"
    assert complete(*finished) == complete(*finished, ("finished", second[0])) == 1
    assert complete(*finished[:-1], *[("void", first[-1])] * suite.attempts) == 1, "it is given up"
    assert complete(*finished, *(("finished", run_id) for run_id in second)) == 2


def test_changes_so_far_in_one_line() -> None:
    assert progress_text.changes(ANSWER) == "Opal +0.6 %, AES-128 +41.0 % after block 2 (modelled)"
    many = replace(ANSWER, origin="measured", ratios={f"c{n}": 1 - n / 10 for n in range(6)})
    line = progress_text.changes(many)
    assert (
        line == "c0 +0.0 %, c1 -10.0 %, c2 -20.0 %, c3 -30.0 %, more in status.json after block 2"
    )
    assert progress_text.changes(replace(ANSWER, ratios={})).startswith("nothing to compare")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(45.2, "45 s"), (59.7, "1 min 00 s"), (200, "3 min 20 s"), (3725, "1 h 02 min")],
)
def test_durations_as_text(seconds: float, text: str) -> None:
    assert progress_text.minutes(seconds) == text


def test_a_skipped_run_is_counted_separately_and_not_due() -> None:
    lines = [(0, "suite-started", ""), (0, "running", IDS[0]), (10, "finished", IDS[0])]
    entries = journal([*lines, (11, "void", IDS[1])])
    entries[-1] = replace(entries[-1], cause="skipped", detail="install it.")
    counts = status(entries)
    assert (counts.finished, counts.void, counts.skipped, counts.repeated) == (1, 0, 1, 0)
    assert PLAN.runs[1] not in progress.unfinished(PLAN, History(entries))
    assert "1 skipped" in progress_text.compact(status(entries))
    sentence = progress_text.event(PLAN, entries[-1])
    assert sentence is not None and sentence.endswith("is skipped: install it.")
