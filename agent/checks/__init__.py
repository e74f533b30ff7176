"""Conditions that a fair run needs, inspected before and after it: see `table.TABLE`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent.checks.table import TABLE, Check, Scene

Finding = dict[str, Any]

__all__ = ["Check", "Finding", "Inspection", "Scene", "blockers"]


class Inspection:
    """The checks of one run. `found` is `checks` of run.json: what was seen so far."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.found: list[Finding] = []

    def before(self, waiting: Callable[[str], None]) -> None:
        """Look before the run. What time mends is waited for; `waiting` is told what, and why."""
        del waiting  # no check waits yet
        self._look("before")

    def after(self) -> None:
        """Look after the run, and at what changed during it."""
        self._look("after")
        self.found += _throttled(self.found)

    def _look(self, when: str) -> None:
        for check in (check for check in TABLE if check.when == when):
            value, ok = check.look(self._scene)
            self.found.append(
                {
                    "name": check.name,
                    "when": when,
                    "severity": check.severity,
                    "ok": ok,
                    "value": value,
                    "message": "" if ok else f"{check.name} is {value}: {check.mend}.",
                }
            )


def blockers(found: list[Finding]) -> list[str]:
    """Messages of what voids the run."""
    return [c["message"] for c in found if c["severity"] == "blocker" and not c["ok"]]


def _throttled(found: list[Finding]) -> list[Finding]:
    """A finding if the throttle counters rose between `before` and `after`; else nothing."""
    counts = [c["value"] for c in found if c["name"] == "throttle" and c["value"] is not None]
    if len(counts) != 2 or counts[0] == counts[1]:
        return []
    return [
        {
            "name": "throttled",
            "when": "after",
            "severity": "blocker",
            "ok": False,
            "value": counts[1] - counts[0],
            "message": "the processor throttled during the run: cool the machine.",
        }
    ]
