"""A suite's `factors`: each configuration once for every combination of their levels.

A level has what differs from the first one, which stays as the inventory has it and keeps the
configuration's name: `type`, `options` (mkfs's) and `mount_options` of the file system, or settings
of the configuration's kind, such as `discard`.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from agent.storage import registry
from contract.errors import AgentError, ControllerError
from contract.plan import Configuration, Filesystem
from controller.planning.suites import Level

# A file system has one of these.
_ACCESS_TIMES = {"atime", "noatime", "relatime", "strictatime"}
MOST_CONFIGURATIONS = 64
Pair = tuple[str, str]


def fill_in(configuration: Configuration) -> Configuration:
    """Return a configuration with all settings, and what the analysis needs to know of its kind.

    Raises AgentError.
    """
    complete = registry.fill_in(configuration)
    encrypted_by = registry.load(complete.kind).encrypted_by
    return replace(complete, label=registry.label(complete), encrypted_by=encrypted_by)


def multiply(
    factors: Mapping[str, Mapping[str, Level]],
    configurations: Sequence[Configuration],
    filesystem: Filesystem,
    pairs: Sequence[Pair],
) -> tuple[list[Configuration], list[Pair]]:
    """Return each configuration at each combination of levels, and the contrasts between them.

    These are `pairs` at each combination, then each level against its factor's first one, all else
    alike. Raises ControllerError.
    """
    names = Counter(level for levels in factors.values() for level in levels)
    if twice := [level for level, times in names.items() if times > 1]:
        raise ControllerError("level-twice", level=twice[0])
    count = len(configurations) * math.prod(map(len, factors.values()))
    if count > MOST_CONFIGURATIONS:
        raise ControllerError("too-many-configurations", count=count, most=MOST_CONFIGURATIONS)
    combinations = list(itertools.product(*factors.values()))
    firsts = combinations[0]
    made = {
        (configuration.name, levels): _combine(
            configuration,
            filesystem,
            [name for name, first in zip(levels, firsts, strict=True) if name != first],
            [factor[name] for factor, name in zip(factors.values(), levels, strict=True)],
        )
        for configuration in configurations
        for levels in combinations
    }
    contrasts = [
        (made[base, levels].name, made[other, levels].name)
        for levels in combinations
        for base, other in pairs
    ]
    for (name, levels), configuration in made.items():
        for place, first in enumerate(firsts):
            if levels[place] != first:
                base_levels = (*levels[:place], first, *levels[place + 1 :])
                contrasts.append((made[name, base_levels].name, configuration.name))
    return list(made.values()), contrasts


def _combine(
    configuration: Configuration,
    filesystem: Filesystem,
    changed_levels: Sequence[str],
    levels: Sequence[Level],
) -> Configuration:
    """Return a configuration at these levels, named and labelled after those not their first."""
    settings = dict(configuration.settings)
    for level in levels:
        options = filesystem.options if level.type is None else ()
        words, added = (
            text.split(",") if text else []
            for text in (filesystem.mount_options, level.mount_options)
        )
        if _ACCESS_TIMES & set(added):
            words = [word for word in words if word not in _ACCESS_TIMES]
        mount_options = ",".join([*words, *added])
        file_type = level.type or filesystem.type
        filesystem = Filesystem(file_type, (*options, *level.options), mount_options)
        settings |= level.settings
    name = ".".join([configuration.name, *changed_levels])
    try:
        combined = fill_in(replace(configuration, name=name, settings=settings))
    except AgentError as error:
        raise ControllerError("factors-invalid", configuration=name, error=error) from error
    label = ", ".join([combined.label, *(level.replace("_", " ") for level in changed_levels)])
    return replace(combined, label=label, filesystem=filesystem)
