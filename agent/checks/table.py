"""Conditions that a fair run needs: the flat table of all checks (docs/checks.md is made of it)."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agent.checks import disks, machine, processor
from agent.checks.context import CheckContext, Observation


@dataclass(frozen=True)
class Change:
    """What must not change while a run lasts: `read` at both ends, judged by `judge(before, now)`.

    `read` gives None where the machine does not offer it. With `lasting` the time between the run
    before and this one counts, too.
    """

    read: Callable[[CheckContext], Any]
    judge: Callable[[Any, Any], Observation]
    lasting: bool = False


@dataclass(frozen=True)
class Wait:
    """What is waited for, how long, and what the check counts as afterwards.

    `word` heads the journal's line; after `limit_s` seconds the check has the severity `then`. A
    mere warning that was waited for in vain is waited for half as long the next time. `help` may do
    something about it: it gets the seconds waited so far and returns whether it did; `helped` then
    stands in the finding.
    """

    word: str
    limit_s: float
    then: str
    help: Callable[[CheckContext, float], bool] | None = None
    helped: str = ""


@dataclass(frozen=True)
class Check:
    """A row.

    `when` is `before`, `after` or `during` (then `look` is a Change); `severity` is `note`,
    `warning`, `wait` or `blocker`, which voids the run; `what` names what is looked at; `why`, a
    clause that the observation's facts and `value` fill, what is wrong; `remedy` what to do. A
    look that gives None found nothing to look at: no finding.
    """

    name: str
    when: str
    severity: str
    what: str
    why: str
    look: Callable[[CheckContext], Observation | None] | Change
    remedy: str
    wait: Wait | None = None


Look = Callable[[CheckContext], Observation | None] | Change
_LOOKS: dict[tuple[str, str], Look] = {
    ("held", "before"): machine.held,
    ("suite-room", "before"): machine.suite_room,
    ("load", "before"): machine.load,
    ("temperature", "before"): processor.temperature,
    ("disk-temperature", "before"): disks.temperature,
    ("mounted", "before"): machine.mounted,
    ("free-room", "before"): machine.free_room,
    ("powercap", "before"): machine.powercap,
    ("governor", "before"): processor.governor,
    ("turbo", "before"): processor.turbo,
    ("memory", "before"): machine.memory,
    ("swap", "before"): machine.swap,
    ("timers", "before"): machine.timers,
    ("disk-health", "before"): disks.health,
    ("disk-errors", "before"): disks.errors_of_suite,
    ("firmware", "before"): disks.firmware,
    ("disk-link", "before"): disks.link,
    ("c-states", "during"): Change(processor.idle_states, processor.idle_states_changed),
    ("throttle-core", "during"): Change(
        partial(processor.throttles, part="core"), processor.throttled
    ),
    ("throttle-package", "during"): Change(
        partial(processor.throttles, part="package"), processor.throttled
    ),
    ("clock", "during"): Change(machine.wall_offset_ns, machine.stepped, lasting=True),
    ("suspend", "during"): Change(machine.sleep_ns, machine.suspended),
    ("stolen-time", "during"): Change(machine.stolen_s, machine.stolen),
    ("kernel-errors", "during"): Change(machine.kernel_lines, machine.grave),
    ("kernel-log", "during"): Change(machine.kernel_lines, machine.suspicious),
    ("disk-errors", "during"): Change(disks.medium_errors, disks.grown),
    ("disk-throttle", "during"): Change(disks.throttles, disks.grown),
    ("disk-link", "during"): Change(disks.links, disks.link_changed),
    ("disk-io-errors", "during"): Change(disks.io_errors, disks.grown),
    ("swap", "after"): machine.swap,
    ("disk-health", "after"): disks.health,
}
_WAITS = {
    "held": Wait("held", 4 * 3600, "blocker"),
    "suite-room": Wait("room", 3600, "blocker"),
    "load": Wait("load", 180, "warning"),
    "temperature": Wait(
        "temperature", 180, "warning", processor.warm_up, "a short load was used to warm it up"
    ),
    "disk-temperature": Wait("disk-temperature", 120, "warning"),
}


def _read() -> tuple[Check, ...]:
    """Return the rows of table.toml with what looks, in their order."""
    rows = tomllib.loads(Path(__file__).with_name("table.toml").read_text(encoding="utf-8"))
    return tuple(
        Check(**row, look=_LOOKS[row["name"], row["when"]], wait=_WAITS.get(row["name"]))
        for row in rows["check"]
    )


TABLE = _read()
