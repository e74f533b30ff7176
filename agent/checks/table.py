"""Conditions that a fair run needs: the flat table of all checks (docs/checks.md is made of it)."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agent.checks import disks, machine, processor, settings
from agent.checks.context import CheckContext, Observation
from agent.checks.kernel_log import Line

Counts = dict[str, int]
Reading = int | str | Counts | dict[str, str] | tuple[float, ...] | list[Line] | None


@dataclass(frozen=True)
class Change:
    """What must not change while a run lasts: `read` at both ends, judged by `judge(before, now)`.

    `read` gives None where the machine does not offer it. With `lasting` the time between the run
    before and this one counts, too.
    """

    read: Callable[[CheckContext], Reading]
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


_MODULES = {"disks": disks, "machine": machine, "processor": processor, "settings": settings}


def _function(name: str) -> Any:
    """Return a function of these modules by its name in table.toml."""
    module, _, function = name.partition(".")
    return getattr(_MODULES[module], function)


def _check(name: str, when: str, row: dict[str, Any]) -> Check:
    """Return a row of table.toml with what looks: a warning, where it has no other severity."""
    read = _function(row.pop("read"))
    if arguments := row.pop("with", None):
        read = partial(read, **arguments)
    judge, lasting = row.pop("judge", None), row.pop("lasting", False)
    wait = row.pop("wait", None)
    if wait and "help" in wait:
        wait["help"] = _function(wait["help"])
    look = Change(read, _function(judge), lasting) if judge else read
    row = {"severity": "wait" if wait else "warning"} | row
    return Check(name, when, **row, look=look, wait=Wait(**wait) if wait else None)


_FILE = Path(__file__).with_suffix(".toml")
TABLE = tuple(
    _check(name, when, row)
    for when, rows in tomllib.loads(_FILE.read_text(encoding="utf-8")).items()
    for name, row in rows.items()
)
