"""Conditions that a fair run needs, inspected before and after it: see `table.TABLE`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from agent.checks import disks
from agent.checks.context import CheckContext, Observation
from agent.checks.table import TABLE, Change, Check, Reading, Wait
from contract.disks import Health
from contract.documents import RunDisks
from contract.examination import Finding
from contract.problem import Problem

UNREADABLE = "unreadable"
FRESH_S = 5.0  # for so long the temperature of a disk at rest is what it said last
_UNREADABLE_WHY = "it could not be looked at ({error})"

__all__ = [
    "TABLE",
    "Change",
    "Check",
    "CheckContext",
    "Inspection",
    "Memory",
    "Wait",
    "blockers",
    "glance",
    "problem_of",
]


def make_finding(check: Check, observation: Observation, severity: str = "") -> Finding:
    """Return the finding of a check, worded by its row where it is not `ok`."""
    row = (check.name, check.when, severity or check.severity, observation.ok)
    if observation.ok:
        return Finding(*row, "", {}, observation.value, "")
    why = _why(check, observation)
    message = f"{why[:1].upper()}{why[1:]}: {check.remedy}."
    cause = observation.cause or check.name
    return Finding(*row, cause, dict(observation.facts), observation.value, message)


def problem_of(finding: Finding) -> Problem:
    """Return the problem of a check that is not `ok`, worded by its row."""
    check = next(row for row in TABLE if (row.name, row.when) == (finding.name, finding.when))
    why = _why(check, Observation(finding.value, False, finding.facts, cause=finding.cause))
    sentence, remedy = (f"{text[:1].upper()}{text[1:]}." for text in (why, check.remedy))
    return Problem(finding.cause, dict(finding.facts), sentence, remedy)


@dataclass
class Memory:
    """State that the inspections of one suite hand on from run to run.

    `given_up`: how often in a row each check was waited for in vain. A machine that cannot meet a
    condition, because the room got colder, must not spend its night waiting: each time half as
    long. `last`: readings after the run before. `health`: the disks' reports at `health_s`; None if
    something was wrong, so that they are read again.
    """

    given_up: dict[str, int] = field(default_factory=dict)
    last: dict[str, Reading] = field(default_factory=dict)
    health: dict[str, Health] | None = None
    health_s: float = -math.inf


class Inspection:
    """The checks of one run. `findings` become `checks` of run.json."""

    def __init__(
        self,
        context: CheckContext,
        memory: Memory,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.findings: list[Finding] = []
        self.disks = RunDisks(limit_k=context.disk_c)
        self._memory = memory
        self._context = context
        self._sleep = sleep
        self._clock = clock
        self._begun: dict[tuple[str, str], Reading] = {}

    def before(self, waiting: Callable[[str, str], None]) -> None:
        """Make the checks before a run, waiting for what time can fix.

        `waiting` is called with the name of what is waited for, and the reason.
        """
        for check in TABLE:
            if check.wait is not None:
                self._wait(check, check.wait, waiting)
        context = self._context.unread(self._memory.health)
        self._memory.health = None
        for check in TABLE:
            if isinstance(check.look, Change):
                current = _read(check.look, context)
                begun = (
                    self._memory.last.get(check.name, current) if check.look.lasting else current
                )
                self._begun[check.name, check.when] = begun
            elif check.when == "before" and check.wait is None:
                self._note(check, _look(check.look, context))
        self.disks = replace(self.disks, before=disks.conditions(context))

    def after(self) -> None:
        """Make the checks after the run, and compare what was read before it."""
        context = self._context.unread()
        for check in TABLE:
            if isinstance(check.look, Change):
                before = self._begun.get((check.name, check.when))
                current = _read(check.look, context)
                if check.look.lasting:
                    self._memory.last[check.name] = current
                if before is not None and current is not None:
                    self._note(check, check.look.judge(before, current))
            elif check.when == "after":
                self._note(check, _look(check.look, context))
        self.disks = replace(self.disks, after=disks.conditions(context))
        self._memory.health = None if blockers(self.findings) else context.health
        self._memory.health_s = self._clock()

    def _wait(self, check: Check, wait: Wait, waiting: Callable[[str, str], None]) -> None:
        assert not isinstance(check.look, Change)
        in_vain = self._memory.given_up.get(check.name, 0) if wait.then == "warning" else 0
        limit_s = wait.limit_s / 2**in_vain
        started_s, waited_s = self._clock(), 0.0
        reported = helped = ""
        recent_health = self._memory.health if started_s - self._memory.health_s < FRESH_S else None
        while True:
            observation = _look(check.look, self._context.unread(recent_health))
            recent_health = None
            if observation is None or observation.ok or waited_s >= limit_s:
                break
            if (why := _why(check, observation)) != reported:
                reported = why
                waiting(wait.word, why + (f" ({observation.detail})" if observation.detail else ""))
            if wait.help is not None and wait.help(self._context, waited_s):
                helped = wait.helped
            self._sleep(self._context.poll_s)
            waited_s = self._clock() - started_s
        failed = observation is not None and not observation.ok
        self._memory.given_up[check.name] = in_vain + 1 if failed else 0
        if observation is not None:
            finding = make_finding(check, observation, wait.then)
            if reported:
                finding = replace(finding, waited_s=round(waited_s, 1), helped=helped)
            self.findings.append(finding)

    def _note(self, check: Check, observation: Observation | None) -> None:
        if observation is not None:
            self.findings.append(make_finding(check, observation))


def blockers(findings: list[Finding]) -> list[Finding]:
    """Return what voids the run."""
    return [finding for finding in findings if finding.severity == "blocker" and not finding.ok]


def glance(names: Collection[str], context: CheckContext) -> list[Finding]:
    """Make the checks of these names that come before a run, each once.

    Checks that the machine does not support are left out.
    """
    rows = [c for c in TABLE if c.name in names and c.when == "before"]
    looks = [(c, _look(c.look, context)) for c in rows if not isinstance(c.look, Change)]
    return [make_finding(check, look) for check, look in looks if look is not None]


def _look(
    look: Callable[[CheckContext], Observation | None], context: CheckContext
) -> Observation | None:
    """Make one observation; a file that cannot be read where it should be is a failed one."""
    try:
        return look(context)
    except (OSError, ValueError) as error:
        return Observation(None, False, {"error": str(error)}, cause=UNREADABLE)


def _read(change: Change, context: CheckContext) -> Reading:
    try:
        return change.read(context)
    except (OSError, ValueError):
        return None


def _why(check: Check, observation: Observation) -> str:
    """Return the clause on what is wrong."""
    clause = _UNREADABLE_WHY if observation.cause == UNREADABLE else check.why
    return clause.format(value=observation.value, **observation.facts)
