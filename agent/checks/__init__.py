"""Conditions that a fair run needs, inspected before and after it: see `table.TABLE`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from agent.checks import disks
from agent.checks.context import CheckContext, Observation
from agent.checks.smart import Health
from agent.checks.table import TABLE, Change, Check, Wait

Finding = dict[str, Any]
UNREADABLE = "unreadable"
FRESH_S = 5.0  # for so long the temperature of a disk at rest is what it said last
_UNREADABLE_WHY = "it could not be looked at ({error})"

__all__ = [
    "TABLE",
    "Change",
    "Check",
    "CheckContext",
    "Finding",
    "Inspection",
    "Memory",
    "Wait",
    "blockers",
    "glance",
]


@dataclass
class Memory:
    """What the inspections of one suite hand on from run to run.

    `given_up`: how often in a row each check was waited for in vain. A machine that cannot have
    what is wanted, because the room got colder, must not spend its night waiting: each time half
    as long. `last`: what was read after the run before. `health`: what the disks then said of
    themselves, at `health_s`, None where something was wrong, so that they are asked again.
    """

    given_up: dict[str, int] = field(default_factory=dict)
    last: dict[str, Any] = field(default_factory=dict)
    health: dict[str, Health] | None = None
    health_s: float = -math.inf


class Inspection:
    """The checks of one run. `found` is `checks` of run.json: what was seen so far."""

    def __init__(
        self,
        context: CheckContext,
        memory: Memory,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.found: list[Finding] = []
        # Their condition `before` and `after` the run, and how much warmer or colder they may be.
        self.disks: dict[str, Any] = {"limit_k": context.disk_c}
        self._memory = memory
        self._context = context
        self._sleep = sleep
        self._clock = clock
        self._begun: dict[tuple[str, str], Any] = {}

    def before(self, waiting: Callable[[str, str], None]) -> None:
        """Look before the run. What time can fix is waited for; `waiting` is told what, and why."""
        for check in TABLE:
            if check.wait is not None:
                self._wait(check, check.wait, waiting)
        context = self._context.unread(self._memory.health)
        self._memory.health = None
        for check in TABLE:
            if isinstance(check.look, Change):
                now = _read(check.look, context)
                begun = self._memory.last.get(check.name, now) if check.look.lasting else now
                self._begun[check.name, check.when] = begun
            elif check.when == "before" and check.wait is None:
                self._note(check, _look(check.look, context))
        self.disks["before"] = disks.conditions(context)

    def after(self) -> None:
        """Look after the run, and at what changed during it."""
        context = self._context.unread()
        for check in TABLE:
            if isinstance(check.look, Change):
                before = self._begun.get((check.name, check.when))
                now = _read(check.look, context)
                if check.look.lasting:
                    self._memory.last[check.name] = now
                if before is not None and now is not None:
                    self._note(check, check.look.judge(before, now))
            elif check.when == "after":
                self._note(check, _look(check.look, context))
        self.disks["after"] = disks.conditions(context)
        self._memory.health = None if blockers(self.found) else context.health
        self._memory.health_s = self._clock()

    def _wait(self, check: Check, wait: Wait, waiting: Callable[[str, str], None]) -> None:
        assert not isinstance(check.look, Change)
        in_vain = self._memory.given_up.get(check.name, 0) if wait.then == "warning" else 0
        limit_s = wait.limit_s / 2**in_vain
        started_s, waited_s = self._clock(), 0.0
        told = helped = ""
        known = self._memory.health if started_s - self._memory.health_s < FRESH_S else None
        while (seen := _look(check.look, self._context.unread(known))) is not None and not seen.ok:
            known = None
            if waited_s >= limit_s:
                break
            if (why := _why(check, seen)) != told:
                told = why
                waiting(wait.word, why + (f" ({seen.detail})" if seen.detail else ""))
            if wait.help is not None and wait.help(self._context, waited_s):
                helped = wait.helped
            self._sleep(self._context.poll_s)
            waited_s = self._clock() - started_s
        self._memory.given_up[check.name] = in_vain + 1 if seen is not None and not seen.ok else 0
        self._note(check, seen, severity=wait.then)
        if seen is not None and told:
            self.found[-1]["waited_s"] = round(waited_s, 1)
            if helped:
                self.found[-1]["helped"] = helped

    def _note(self, check: Check, seen: Observation | None, severity: str = "") -> None:
        if seen is not None:
            self.found.append(_finding(check, seen, severity))


def blockers(found: list[Finding]) -> list[Finding]:
    """What voids the run."""
    return [c for c in found if c["severity"] == "blocker" and not c["ok"]]


def glance(names: Collection[str], context: CheckContext) -> list[Finding]:
    """The checks of these names that are made before a run, each looked at once; what the machine
    does not offer is left out."""
    rows = [c for c in TABLE if c.name in names and c.when == "before"]
    seen = [(c, _look(c.look, context)) for c in rows if not isinstance(c.look, Change)]
    return [_finding(check, found, "") for check, found in seen if found is not None]


def _finding(check: Check, seen: Observation, severity: str) -> Finding:
    """An observation as run.json holds it."""
    why = "" if seen.ok else _why(check, seen)
    return {
        "name": check.name,
        "when": check.when,
        "severity": severity or check.severity,
        "ok": seen.ok,
        "cause": "" if seen.ok else seen.cause or check.name,
        "facts": {} if seen.ok else dict(seen.facts),
        "value": seen.value,
        "message": "" if seen.ok else f"{why[:1].upper()}{why[1:]}: {check.remedy}.",
    }


def _look(
    look: Callable[[CheckContext], Observation | None], context: CheckContext
) -> Observation | None:
    """One look; what cannot be read where it should be is not in order."""
    try:
        return look(context)
    except (OSError, ValueError) as error:
        return Observation(None, False, {"error": str(error)}, cause=UNREADABLE)


def _read(change: Change, context: CheckContext) -> Any:
    try:
        return change.read(context)
    except (OSError, ValueError):
        return None


def _why(check: Check, seen: Observation) -> str:
    """The clause that says what is wrong."""
    clause = _UNREADABLE_WHY if seen.cause == UNREADABLE else check.why
    return clause.format(value=seen.value, **seen.facts)
