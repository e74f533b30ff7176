"""The form of a check: the facts that it judges, and its possible outcomes."""

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
from controller.targets.fitness.step import StepResponse
from controller.targets.survey import TargetAnswer


def _outcome(state: State, sentence: str, remedy: str = "", /, **facts: Any) -> CheckOutcome:
    """Build an outcome, whose code `judge` fills in."""
    return CheckOutcome("", state, sentence, remedy, facts)


passed = partial(_outcome, "pass")
warned = partial(_outcome, "warn")  # the figures of a suite get worse
failed = partial(_outcome, "fail")  # prevents the start of a suite
not_made = partial(_outcome, "not_made")


def refused(problem: Problem, remedy: str = "", **facts: Any) -> CheckOutcome:
    """Build the failure of a problem; `remedy` applies if the problem has none."""
    facts = {**problem.facts, **facts, "cause": problem.code}
    return CheckOutcome("", "fail", problem.sentence, problem.remedy or remedy, facts)


def problem_of(error: AgentError) -> Problem:
    """Return an error's first problem, or a problem with its text if it has no code."""
    return error.problems[0] if error.code else Problem("error", {}, f"{str(error).rstrip('.')}.")


@dataclass(frozen=True)
class Host:
    """Facts of the controller: `out` is the folder of suites, `names` are those of processes."""

    out: Path
    sleep: SleepState
    free_bytes: int
    names: frozenset[str]


FIRST_SUITE = "smoke"


@dataclass(frozen=True)
class Scene:
    """The facts of a target, its meters and the controller, before they are judged.

    `answer` is None if the target was not reached, for the reason `unreached`; `probes` are by name
    of the meter, and so are `responses` to a step of load, None before one; `noise` is None unless
    it was measured. The detectable changes are those of `suite`.
    """

    target: TargetDocument
    answer: TargetAnswer | None
    unreached: Problem | None
    host: Host
    probes: Mapping[str, Probe]
    noise: Noise | None = None
    noise_error: str = ""
    suite: str = FIRST_SUITE
    responses: Mapping[str, StepResponse | None] | None = None

    @property
    def examined(self) -> Examination:
        """The target's examination; without any part if it was not reached."""
        return self.answer.examined if self.answer else Examination()

    @property
    def facts(self) -> Facts:
        """The facts of a target that was reached."""
        assert self.answer is not None
        return self.answer.facts

    def unavailable(self, part: str) -> CheckOutcome:
        """Build the outcome of a check whose part of the examination is None."""
        return not_made(f"{self.examined.errors.get(part, 'It was not looked at').rstrip('.')}.")


Judge = Callable[[Scene], Iterable[CheckOutcome]]


def by_part(part: str, judge: Callable[[Scene, Any], Iterable[CheckOutcome]]) -> Judge:
    """Return a judge that applies `judge` to a part of the examination, unless it is None."""

    def judge_part(scene: Scene) -> Iterable[CheckOutcome]:
        value = getattr(scene.examined, part)
        return [scene.unavailable(part)] if value is None else judge(scene, value)

    return judge_part


@dataclass(frozen=True)
class Check:
    """A check: `code` is the code of its outcomes, `about` names its subject.

    With `needs_target` it is not made if the target was not reached. A refusal of agent.preflight
    whose code is in `refusals` is the check's outcome.
    """

    code: str
    about: str
    judge: Judge
    needs_target: bool = True
    refusals: tuple[str, ...] = ()
