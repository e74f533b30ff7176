"""A suite's `factors`: each configuration once for every combination of their levels.

A level says what differs from the first one, which stays as the inventory has it and keeps the
configuration's name: `type`, `options` (mkfs's) and `mount_options` of the file system, or settings
of the configuration's kind, such as `discard`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from contract.errors import AgentError, ControllerError

_LEVEL = re.compile(r"[a-z0-9]+([_-][a-z0-9]+)*")
_FILESYSTEM_KEYS = ("type", "options", "mount_options")
# Of these a file system has one.
_ACCESS_TIMES = {"atime", "noatime", "relatime", "strictatime"}
MOST_CONFIGURATIONS = 64

Described = Callable[[Mapping[str, Any]], dict[str, Any]]
Pair = list[str]


def multiplied(
    declared: Any,
    stacks: Sequence[Mapping[str, Any]],
    filesystem: Mapping[str, Any],
    pairs: Sequence[Sequence[str]],
    described: Described,
) -> tuple[list[dict[str, Any]], list[Pair]]:
    """The plan's configurations, and contrasts: `pairs` at each combination of levels, then each
    level against its factor's first one, all else alike. Raises ControllerError.
    """
    factors = _checked(declared)
    made: dict[tuple[str, tuple[str, ...]], dict[str, Any]] = {}
    for stack in stacks:
        for levels in itertools.product(*factors.values()):
            changes = [factors[f][level] for f, level in zip(factors, levels, strict=True)]
            made[stack["name"], levels] = _one(
                *(stack, filesystem, _further(factors, levels), changes), described
            )
    if len(made) > MOST_CONFIGURATIONS:
        raise ControllerError(
            f"The suite's factors make {len(made)} configurations, and {MOST_CONFIGURATIONS} are "
            "the most: give it fewer levels or configurations."
        )
    names = {key: one["name"] for key, one in made.items()}
    contrasts = [
        [names[a, levels], names[b, levels]]
        for levels in itertools.product(*factors.values())
        for a, b in pairs
    ]
    for (stack_name, levels), name in names.items():
        for place, factor in enumerate(factors.values()):
            first = next(iter(factor))
            if levels[place] != first:
                base = (*levels[:place], first, *levels[place + 1 :])
                contrasts.append([names[stack_name, base], name])
    return list(made.values()), contrasts


def _further(factors: Mapping[str, Mapping[str, Any]], levels: Sequence[str]) -> list[str]:
    """The levels that are not their factor's first."""
    firsts = [next(iter(factor)) for factor in factors.values()]
    return [level for level, first in zip(levels, firsts, strict=True) if level != first]


def _one(
    stack: Mapping[str, Any],
    filesystem: Mapping[str, Any],
    further: Sequence[str],
    changes: Sequence[Mapping[str, Any]],
    described: Described,
) -> dict[str, Any]:
    volume, settings = dict(filesystem), dict[str, Any]()
    for change in changes:
        if "type" in change:
            volume |= {"type": change["type"], "options": list(change.get("options", ()))}
        elif "options" in change:
            volume["options"] = [*volume["options"], *change["options"]]
        volume["mount_options"] = _joined(volume["mount_options"], change.get("mount_options", ""))
        settings |= {k: v for k, v in change.items() if k not in _FILESYSTEM_KEYS}
    name = ".".join([stack["name"], *further])
    try:
        configuration = described({**stack, **settings, "name": name})
    except AgentError as error:
        raise ControllerError(f"The factors make {name}, which cannot be: {error}") from error
    label = ", ".join([configuration["label"], *(level.replace("_", " ") for level in further)])
    return {**configuration, "label": label, "filesystem": volume}


def _joined(options: str, further: str) -> str:
    words, added = (text.split(",") if text else [] for text in (options, further))
    if _ACCESS_TIMES & set(added):
        words = [word for word in words if word not in _ACCESS_TIMES]
    return ",".join([*words, *added])


def _checked(declared: Any) -> dict[str, dict[str, Mapping[str, Any]]]:
    if not isinstance(declared, Mapping) or not declared:
        raise ControllerError(
            f"The suite's key factors is {declared!r}: give factors by their names."
        )
    levels_so_far: list[str] = []
    for name, levels in declared.items():
        if not isinstance(levels, Mapping) or len(levels) < 2:
            raise ControllerError(f"The factor {name} needs two levels or more, by their names.")
        for level, change in levels.items():
            if not _LEVEL.fullmatch(str(level)) or level in levels_so_far:
                raise ControllerError(
                    f"A level of the factor {name} is called {level!r}: use small letters and "
                    "digits, words joined by - or _, in quotes if YAML reads them as true or "
                    "false, and no name twice."
                )
            if not isinstance(change, Mapping):
                raise ControllerError(
                    f"The level {level} of {name} is {change!r}: say what differs, {{}} if nothing."
                )
            for key, kind in (("type", str), ("options", list), ("mount_options", str)):
                if key in change and not isinstance(change[key], kind):
                    raise ControllerError(
                        f"The {key} of level {level} of {name} is {change[key]!r}: give "
                        f"{'a list of words' if kind is list else 'a word'}."
                    )
        levels_so_far += levels
    return {str(name): dict(levels) for name, levels in declared.items()}
