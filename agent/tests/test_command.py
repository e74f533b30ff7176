"""Programs are given time as long as they are seen to work, and are named without their options."""

from __future__ import annotations

import itertools

import pytest

from agent.system import command
from agent.system.command import CommandError, Progress, listening, run
from contract.tests.refusal import refuses

SLEEP = ["sh", "-c", "cat; sleep 3; echo done"]


def test_a_program_that_works_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "LOOK_S", 0.1)
    numbers, clauses = itertools.count(), list[str]()
    with listening(clauses.append):
        output = run(
            SLEEP, stdin=b"in ", timeout_s=1, progress=Progress(lambda: str(next(numbers)), 2**40)
        )
    assert output.out == "in done\n"
    assert clauses and all(clause.startswith("sh goes on, ") for clause in clauses)


@pytest.mark.parametrize(
    "progress",
    [None, Progress(lambda: "the same", 2**40), Progress(iter(map(str, range(999))).__next__)],
    ids=["none", "stands", "too small for so long"],
)
def test_a_program_without_progress_is_killed(
    progress: Progress | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "LOOK_S", 0.1)
    with refuses("program-silent", program="sleep"):
        run(["sleep", "99"], timeout_s=0.5, progress=progress)


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["sh", "-c", "exit 3"], "sh"),
        (["false", "--offset", "16777216"], "false"),
        (["false", "remove", "--retry", "x"], "false remove"),
        (["false", "luksFormat"], "false luksFormat"),
        (["env", "A=b", "false", "-o", "C=1", "install"], "false"),
        (["nsenter", "--mount=/proc/self/ns/mnt", "--", "false", "/mnt"], "false"),
    ],
)
def test_names_of_programs_omit_the_values_of_options(argv: list[str], name: str) -> None:
    with pytest.raises(CommandError) as failed:
        run(argv)
    assert str(failed.value).startswith(f"{name} failed with exit code ")
