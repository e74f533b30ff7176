"""The table of all checks: the conditions of a fair run (docs/checks.md is made of it)."""

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
    """A reading that must not change during a run: `judge(before, now)` compares two of `read`.

    `read` returns None if the machine does not offer it. With `lasting` the time between the run
    before and this one counts, too.
    """

    read: Callable[[CheckContext], Reading]
    judge: Callable[[Any, Any], Observation]
    lasting: bool = False


@dataclass(frozen=True)
class Wait:
    """A condition that is waited for, the limit, and the check's severity afterwards.

    `word` heads the journal's line; after `limit_s` seconds the check has the severity `then`. If
    that is a warning, the next wait is half as long after one in vain. `help` may act on the
    condition: it gets the seconds waited so far and returns whether it did something; `helped` then
    appears in the finding.
    """

    word: str
    limit_s: float
    then: str
    help: Callable[[CheckContext, float], bool] | None = None
    helped: str = ""


@dataclass(frozen=True)
class Check:
    """One check, a row of the table.

    `when` is `before`, `after` or `during` (then `look` is a Change); `severity` is `note`,
    `warning`, `wait` or `blocker`, which voids the run; `what` names the subject; `why` is a clause
    on the fault, which the observation's facts and `value` fill; `remedy` the cure. If `look`
    returns None, there is no finding.
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
    """Return a function of a check's module by its name in table.toml."""
    module, _, function = name.partition(".")
    return getattr(_MODULES[module], function)


def _check(name: str, when: str, row: dict[str, Any]) -> Check:
    """Build a check from a row of table.toml; its severity is `warning` by default."""
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
