"""The entries of a suite's `workloads`: what runs, under which name, how often and where."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contract.errors import ControllerError
from controller.names import unknown
from controller.sequence import CANARY, Turn
from workloads import registry
from workloads.base import ParameterValue, WorkloadError

KEYS = ("name", "workload", "parameters", "repeat", "configurations", "overall")
MOST_REPEATS = 1000
# What reports call the sum over workloads.
RESERVED = ("all",)
_NAME = re.compile(r"[a-z0-9]+([_-][a-z0-9]+)*")


@dataclass(frozen=True)
class Entry:
    """A workload under a name of its own, with all its parameters.

    Without `overall` it is there for a question, and no part of the figure over all workloads.
    """

    turn: Turn
    workload: str
    parameters: Mapping[str, ParameterValue]
    overall: bool = True

    @property
    def name(self) -> str:
        return self.turn.name

    def document(self) -> dict[str, Any]:
        """Its line in the plan."""
        own = {} if self.workload == self.name else {"workload": self.workload}
        aside = {} if self.overall else {"overall": False}
        return {"name": self.name, **own, "parameters": dict(self.parameters), **aside}


def entries(
    suite: Mapping[str, Any], names: Sequence[str], database: str, *, chosen: bool
) -> list[Entry]:
    """The suite's entries on the plan's configurations (`names`).

    `chosen`: these stand in for the suite's own, so what an entry names besides is passed over,
    and an entry that has none of them left is no part of the plan. Raises ControllerError.
    """
    found: list[Entry] = []
    for given in suite["workloads"]:
        entry = _entry(given, names, database, chosen=chosen)
        if any(entry.name == other.name for other in found):
            raise ControllerError(
                f"A suite names the same workload twice: keep one {entry.name}, or give one a "
                f"name of its own and workload: {entry.workload}."
            )
        found.append(entry)
    there = [entry for entry in found if entry.turn.configurations]
    if not there:
        raise ControllerError("A suite needs at least one workload: name one in workloads.")
    return there


def configurations_of(
    what: str, wanted: Any, names: Sequence[str], *, chosen: bool
) -> tuple[str, ...]:
    """Those of the plan's configurations that `wanted` names, in the plan's order; None: all."""
    if wanted is None:
        return tuple(names)
    if not isinstance(wanted, list) or not wanted:
        raise ControllerError(f"The configurations of {what} are {wanted!r}: give a list of names.")
    for name in wanted:
        if name not in names and not chosen:
            raise ControllerError(unknown(f"configuration of {what}", str(name), names))
    return tuple(name for name in names if name in wanted)


def complete(workload: str, given: Mapping[str, Any]) -> dict[str, ParameterValue]:
    """All parameters of a workload. Raises ControllerError."""
    try:
        return dict(registry.complete(workload, given))
    except WorkloadError as error:
        raise ControllerError(str(error)) from error


def _entry(given: Any, names: Sequence[str], database: str, *, chosen: bool) -> Entry:
    if not isinstance(given, Mapping) or "name" not in given:
        raise ControllerError(f"An entry of workloads is {given!r}: give it a name at least.")
    name, workload = given["name"], given.get("workload", given["name"])
    what = f"the workload {name}"
    for key in given:
        if key not in KEYS:
            raise ControllerError(unknown(f"key of {what}", str(key), KEYS))
    _check_name(name, workload)
    return Entry(
        turn=Turn(
            name=name,
            configurations=configurations_of(
                what, given.get("configurations"), names, chosen=chosen
            ),
            repeat=_repeat(what, given.get("repeat", 1)),
        ),
        workload=workload,
        parameters=complete(workload, _parameters(what, workload, given, database)),
        overall=_overall(what, given.get("overall", True)),
    )


def _check_name(name: Any, workload: Any) -> None:
    if CANARY in (name, workload):
        raise ControllerError(
            "The canary is no workload of a suite's list: it runs first and last by itself "
            "(the suite's key canary)."
        )
    if workload not in registry.names():
        raise ControllerError(unknown("workload", str(workload), registry.names()))
    if name == workload:
        return
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in RESERVED:
        raise ControllerError(
            f"{name!r} cannot name an entry of workloads: use small letters and digits, words "
            "joined by - or _, as in sql-large."
        )
    if name in registry.names():
        raise ControllerError(
            f"The entry {name} runs {workload}, but {name} is a workload itself: choose another "
            "name for it."
        )


def _repeat(what: str, value: Any) -> int:
    if type(value) is not int or not 1 <= value <= MOST_REPEATS:
        raise ControllerError(
            f"The repeat of {what} is {value!r}: give a whole number from 1 to {MOST_REPEATS}."
        )
    return value


def _overall(what: str, value: Any) -> bool:
    if type(value) is not bool:
        raise ControllerError(f"overall of {what} is {value!r}: give true or false.")
    return value


def _parameters(
    what: str, workload: str, given: Mapping[str, Any], database: str
) -> dict[str, Any]:
    """The suite's parameters; which database server there is, the target says, not the suite."""
    parameters = given.get("parameters") or {}
    if not isinstance(parameters, Mapping):
        raise ControllerError(
            f"The parameters of {what} are {parameters!r}: give names and values."
        )
    return {"server": database, **parameters} if workload == "sql" else dict(parameters)
