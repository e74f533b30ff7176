"""Attempts at runs, from journals written by hand."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from contract.attempts import MOST_IN_ONE_BOOT, History, spans
from contract.journal import AGENT_KILLED, FAILED, REPEAT, SKIPPED, TARGET_DOWN, Entry


def journal(*lines: tuple[float, str, str], boot_id: str = "a", seq: int = 0) -> list[Entry]:
    """Return entries from (seconds, state, run id); the state may be `void:cause`."""
    split = [(second, *state.partition(":")[::2], run_id) for second, state, run_id in lines]
    return [
        Entry(number, int(second * 1e9), boot_id, state, run_id, cause)
        for number, (second, state, cause, run_id) in enumerate(split, seq)
    ]


FINISHED = journal(
    (0, "suite-started", ""),
    (1, "switching", "r1"),
    (5, "running", "r1"),
    (6, "waiting:load", "r1"),
    (9, "running", "r1"),
    (19, "proving", "r1"),
    (20, "finished", "r1"),
)


def test_waiting_is_subtracted_from_an_attempts_times() -> None:
    (attempt,) = History(FINISHED).attempts
    assert attempt.finished and not attempt.void and attempt.state == "finished"
    assert (attempt.lead_s, attempt.worked_s, attempt.switches_s) == (5, 15 - 3, [4])
    assert [entry.state for entry in attempt.since_running] == ["running", "proving", "finished"]


def test_a_span_across_boots_has_no_seconds() -> None:
    later = journal((3, "finished", "r1"), boot_id="b", seq=6)
    (attempt,) = History([*FINISHED[:-1], *later]).attempts
    assert attempt.finished and attempt.worked_s is None
    assert spans([*FINISHED[:-1], *later])[-1].seconds is None


def test_a_repeated_attempt_is_void_and_keeps_its_times() -> None:
    again = journal((50, f"void:{REPEAT}", "r1"), (51, "running", "r1"), seq=7)
    history = History([*FINISHED, *again])
    first, second = history.attempts
    assert first.void is again[0] and first.finished is FINISHED[-1] and first.worked_s == 12
    assert second.state == "running" and history.account("r1").open is second
    assert not history.account("r1").finished and history.account("r1").failed == 1
    assert second.lead_s == 1, "since the line that asked for it"


def test_a_skipped_run_has_an_attempt_without_a_step() -> None:
    history = History(journal((0, f"void:{SKIPPED}", "r1")))
    (attempt,) = history.attempts
    assert attempt.begun is None and history.account("r1").cannot
    assert history.void_in_a_row == 0, "it is not the machine"


@pytest.mark.parametrize(
    ("causes", "due"),
    [
        ([FAILED] * 2, True),
        ([FAILED] * 3, False),
        ([TARGET_DOWN] * (MOST_IN_ONE_BOOT - 1), True),
        ([AGENT_KILLED] * MOST_IN_ONE_BOOT, False),
    ],
)
def test_a_run_is_due_until_its_attempts_are_used_up(causes: Iterable[str], due: bool) -> None:
    lines = [line for cause in causes for line in ((0, "running", "r"), (1, f"void:{cause}", "r"))]
    history = History(journal(*lines))
    assert history.account("r").due(attempts=3, boot_id="a") == due
    ended = [*lines, (2, "suite-finished", ""), (3, "suite-started", "")]
    assert History(journal(*ended)).account("r").due(attempts=3, boot_id="a")


def test_voids_before_suite_started_belong_to_the_starting_agent() -> None:
    """An agent voids open and repeated attempts before `suite-started`."""
    killed = journal(
        (30, "running", "r2"),
        (90, f"void:{AGENT_KILLED}", "r2"),
        (90, f"void:{REPEAT}", "r1"),
        (91, "suite-started", ""),
        (92, "running", "r2"),
        (95, f"void:{FAILED}", "r2"),
        seq=7,
    )
    between = spans([*FINISHED, *killed])
    assert [span.after.seq for span in between if span.starting] == [8, 9, 10]
    assert between[7].attempt is not None and between[7].attempt.void is killed[1]
