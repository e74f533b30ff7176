"""The questions of a suite: contrasts, comparisons, extra blocks and preconditioning.

Each is declared before a suite's first run and frozen in its plan (data/README.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

from agent.storage.base import DRIVE, PROCESSOR, UNENCRYPTED
from contract import steady_state
from contract.errors import ControllerError
from contract.plan import ACCESSES, MOST_PASSES
from controller.planning.known_names import require_known
from controller.planning.schedule import Turn
from controller.planning.suites import Entry, configurations_of
from workloads.base import UNITS

LOOKS = ("end", "any")


MOST_EXTRA_BLOCKS = 10_000
MOST_ROUND_S = 3600
EXTRA_KEYS = ("blocks", "configurations", "workloads")
COMPARISON_KEYS = ("name", "question", "first", "second", "per", "configurations")
# The specification's own numbers: see contract/steady_state.py.
PRECONDITION: dict[str, Any] = {
    "passes": 2,
    "rounds": steady_state.MOST_ROUNDS,
    "round_s": 60,
    "access": "sequential",
}
SIDE_KEYS = ("workload", "phase")
# The sum of a run's phases without its tail.
ALL_PHASES = "all"
_PHASE = re.compile(r"[A-Za-z0-9]+([.-][A-Za-z0-9]+)*")
_NAME = re.compile(r"[a-z0-9]+([_-][a-z0-9]+)*")


@dataclass(frozen=True)
class Extra:
    """Blocks after the full ones, with a part of the suite."""

    blocks: int
    configurations: tuple[str, ...]
    turns: tuple[Turn, ...]


def contrasts(suite: Mapping[str, Any], stacks: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Pairs of configurations; by default all to the unencrypted, software to the drive.

    In a suite of several `disks` by default within each; and the disks without encryption.
    """
    names = [stack["name"] for stack in stacks]
    bare: dict[str, str] = {}
    for stack in stacks if "disks" in suite else ():
        if stack["encrypted_by"] == UNENCRYPTED:
            bare.setdefault(stack["disk"], stack["name"])
    between = [list(pair) for pair in combinations(bare.values(), 2)]
    if "contrasts" in suite:
        pairs = [list(pair) for pair in suite["contrasts"]]
        require_known("configuration", chain.from_iterable(pairs), names)
        return pairs + between
    by = {stack["name"]: stack["encrypted_by"] for stack in stacks}
    on = {stack["name"]: stack["disk"] if bare else "" for stack in stacks}
    default = {(UNENCRYPTED, DRIVE), (UNENCRYPTED, PROCESSOR), (DRIVE, PROCESSOR)}
    within = [[a, b] for a in names for b in names if (by[a], by[b]) in default and on[a] == on[b]]
    return within + between


def extra(
    suite: Mapping[str, Any], names: Sequence[str], loads: Sequence[Entry], *, chosen: bool
) -> Extra | None:
    """The suite's further blocks; None where it has none, or nothing of them is left."""
    declared = suite.get("extra")
    if declared is None:
        return None
    if not isinstance(declared, Mapping):
        raise ControllerError(f"The suite's key extra is {declared!r}: give it blocks at least.")
    require_known("key of extra", declared, EXTRA_KEYS)
    blocks = declared.get("blocks")
    if type(blocks) is not int or not 0 <= blocks <= MOST_EXTRA_BLOCKS:
        raise ControllerError(
            f"The blocks of extra are {blocks!r}: give a whole number up to {MOST_EXTRA_BLOCKS}."
        )
    configurations = configurations_of(
        "extra", declared.get("configurations"), names, chosen=chosen
    )
    turns = _turns(declared.get("workloads"), suite, loads)
    reached = tuple(n for n in configurations if any(n in turn.configurations for turn in turns))
    if not reached and not chosen:
        raise ControllerError("No workload of extra runs on its configurations: name others.")
    return Extra(blocks, reached, turns) if blocks and reached else None


def _turns(wanted: Any, suite: Mapping[str, Any], loads: Sequence[Entry]) -> tuple[Turn, ...]:
    known = [entry["name"] for entry in suite["workloads"]]
    if wanted is not None and not isinstance(wanted, list):
        raise ControllerError(f"The workloads of extra are {wanted!r}: give a list of names.")
    require_known("workload of extra", wanted or (), known)
    return tuple(load.turn for load in loads if wanted is None or load.name in wanted)


def comparisons(
    suite: Mapping[str, Any], names: Sequence[str], loads: Sequence[Entry], *, chosen: bool
) -> list[dict[str, Any]]:
    """Contrasts within a configuration, between two entries or phases, with all keys filled in.

    Where configurations were `chosen`, those that nothing is left of are no part of the plan.
    """
    declared = suite.get("comparisons")
    if declared is None:
        return []
    if not isinstance(declared, list):
        raise ControllerError(f"The suite's key comparisons is {declared!r}: give a list of them.")
    compared: list[dict[str, Any]] = []
    for one in declared:
        compared.extend(_comparison(one, suite, names, loads, chosen=chosen))
    twice = [one["name"] for one in compared]
    if len(set(twice)) != len(twice):
        raise ControllerError(f"Two comparisons have the same name among {', '.join(twice)}.")
    return compared


def _comparison(
    declared: Any,
    suite: Mapping[str, Any],
    names: Sequence[str],
    loads: Sequence[Entry],
    *,
    chosen: bool,
) -> Iterator[dict[str, Any]]:
    if not isinstance(declared, Mapping) or not _NAME.fullmatch(str(declared.get("name", ""))):
        raise ControllerError(
            f"Invalid comparison {declared!r}: its name must be lower-case letters, digits and "
            "hyphens."
        )
    what = f"the comparison {declared['name']}"
    require_known(f"key of {what}", declared, COMPARISON_KEYS)
    if not isinstance(declared.get("question"), str) or not declared["question"].strip():
        raise ControllerError(f"There is no question in {what}: say what it is to answer.")
    per = declared.get("per")
    if per is not None:
        require_known(f"unit of work in {what}", [per], UNITS)
    sides = {
        key: _side(declared.get(key), f"the {key} of {what}", suite) for key in ("first", "second")
    }
    if sides["first"] == sides["second"]:
        raise ControllerError(f"Both sides of {what} are the same: compare two.")
    named = configurations_of(what, declared.get("configurations"), names, chosen=chosen)
    turns = {load.name: load.turn for load in loads}
    both = [turns.get(side["workload"]) for side in sides.values()]
    common = [name for name in named if all(t and name in t.configurations for t in both)]
    if not chosen and (not common or (declared.get("configurations") and len(common) < len(named))):
        without = ", ".join(name for name in named if name not in common)
        raise ControllerError(
            f"On {without} {what} lacks one of its workloads: name configurations that have both."
        )
    if not common:
        return
    yield {
        "name": declared["name"],
        "question": declared["question"],
        **sides,
        "per": per,
        "configurations": common,
    }


def _side(declared: Any, what: str, suite: Mapping[str, Any]) -> dict[str, str]:
    if not isinstance(declared, Mapping) or "workload" not in declared:
        raise ControllerError(f"{what.capitalize()} is {declared!r}: give its workload and phase.")
    require_known(f"key of {what}", declared, SIDE_KEYS)
    known = [entry["name"] for entry in suite["workloads"]]
    require_known(f"workload in {what}", [declared["workload"]], known)
    phase = declared.get("phase", ALL_PHASES)
    if not isinstance(phase, str) or not _PHASE.fullmatch(phase):
        raise ControllerError(f"The phase in {what} is {phase!r}: name one, as write-large or all.")
    return {"workload": declared["workload"], "phase": phase}


def share(suite: Mapping[str, Any], key: str, otherwise: float) -> float:
    """A share of the ratio, as 0.02 for ±2 %."""
    value = suite.get(key, otherwise)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise ControllerError(
            f"The suite's key {key} is {value!r}: give a share above 0 and below 1, as {otherwise}."
        )
    return float(value)


def looks(suite: Mapping[str, Any]) -> str:
    """Whether the suite is looked at once, at its `end`, or after `any` block."""
    wanted = str(suite.get("looks", LOOKS[0]))
    if wanted not in LOOKS:
        raise ControllerError(
            f"The suite's key looks is {wanted!r}: say end for a number of blocks that is fixed "
            "beforehand, or any for intervals that hold at whatever block the suite is ended."
        )
    return wanted


def precondition(suite: Mapping[str, Any]) -> dict[str, Any] | None:
    """How the disks are brought to a steady state, all keys filled in; None where they are not."""
    declared = suite.get("precondition", False)
    if declared is False:
        return None
    if declared is not True and not isinstance(declared, Mapping):
        raise ControllerError(
            f"The suite's key precondition is {declared!r}: it must be true, false, or its passes, "
            "rounds, round_s and access."
        )
    if suite.get("discard_first"):
        raise ControllerError(
            "The suite says precondition and discard_first: to discard the extent before each "
            "configuration undoes the preconditioning, so take one of them out."
        )
    settings = {**PRECONDITION, **({} if declared is True else declared)}
    require_known("key of precondition", settings, PRECONDITION)
    for key, least, most in (
        ("passes", 1, MOST_PASSES),
        ("rounds", steady_state.WINDOW, steady_state.MOST_ROUNDS),
    ):
        if type(settings[key]) is not int or not least <= settings[key] <= most:
            raise ControllerError(
                f"The {key} of precondition are {settings[key]!r}: it must be an integer from "
                f"{least} to {most}."
            )
    seconds = settings["round_s"]
    if type(seconds) not in (int, float) or not 0 < seconds <= MOST_ROUND_S:
        raise ControllerError(
            f"The round_s of precondition is {seconds!r}: give seconds up to {MOST_ROUND_S}."
        )
    require_known("access of precondition", [settings["access"]], ACCESSES)
    return settings
