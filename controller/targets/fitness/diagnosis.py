"""A check of the list: what it looks at, and the outcomes that it can have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agent.preflight import Facts
from contract.command_results import CheckOutcome, State
from contract.errors import AgentError
from contract.examination import SleepState
from contract.plan import TargetDocument
from contract.problem import Problem
from controller.targets.answers import Examination
from controller.targets.fitness.noise import Noise
from controller.targets.fitness.probe import Probe
from controller.targets.survey import TargetAnswer


def _outcome(state: State, sentence: str, remedy: str = "", /, **facts: Any) -> CheckOutcome:
    """Return an outcome; `judge` fills its code in."""
    return CheckOutcome("", state, sentence, remedy, facts)


passed = partial(_outcome, "pass")
warned = partial(_outcome, "warn")  # it makes a suite's figures worse
failed = partial(_outcome, "fail")  # no suite starts with it
not_made = partial(_outcome, "not_made")


def refused(problem: Problem, remedy: str = "", **facts: Any) -> CheckOutcome:
    """Return the outcome of a problem; `remedy` is for one that has none."""
    facts = {**problem.facts, **facts, "cause": problem.code}
    return CheckOutcome("", "fail", problem.sentence, problem.remedy or remedy, facts)


def problem_of(error: AgentError) -> Problem:
    """Return an error's first problem; one that has only a text becomes a problem of that text."""
    return error.problems[0] if error.code else Problem("error", {}, f"{str(error).rstrip('.')}.")


@dataclass(frozen=True)
class Host:
    """The controller: `out` is where suites go, `names` are of its processes."""

    out: Path
    sleep: SleepState
    free_bytes: int
    names: frozenset[str]


FIRST_SUITE = "smoke"


@dataclass(frozen=True)
class Scene:
    """All answers of one target, its meters and the controller, before they are judged.

    `answer` is None where the target could not be asked, as `unreached` explains; `probes` are by
    meter, `noise` is None where it was not measured. The size of `suite` decides what changes could
    be detected.
    """

    target: TargetDocument
    answer: TargetAnswer | None
    unreached: Problem | None
    host: Host
    probes: Mapping[str, Probe]
    noise: Noise | None = None
    noise_error: str = ""
    suite: str = FIRST_SUITE

    @property
    def examined(self) -> Examination:
        """The target's examination; without any part where it was not reached."""
        return self.answer.examined if self.answer else Examination()

    @property
    def facts(self) -> Facts:
        """The facts of a target that was reached."""
        assert self.answer is not None
        return self.answer.facts

    def unavailable(self, part: str) -> CheckOutcome:
        """Return the outcome of a check whose part of the examination is None."""
        return not_made(f"{self.examined.errors.get(part, 'It was not looked at').rstrip('.')}.")


Judge = Callable[[Scene], Iterable[CheckOutcome]]


def by_part(part: str, judge: Callable[[Scene, Any], Iterable[CheckOutcome]]) -> Judge:
    """Return a judge of a part of the examination; without that its check is not made."""

    def judge_part(scene: Scene) -> Iterable[CheckOutcome]:
        value = getattr(scene.examined, part)
        return [scene.unavailable(part)] if value is None else judge(scene, value)

    return judge_part


@dataclass(frozen=True)
class Check:
    """A row of the list: `code` is of all its outcomes, `about` names what it looks at.

    With `needs_target` it cannot be made where the target was not reached; a refusal of
    agent.preflight whose code is among `refusals` is its outcome.
    """

    code: str
    about: str
    judge: Judge
    needs_target: bool = True
    refusals: tuple[str, ...] = ()
