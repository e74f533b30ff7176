"""The conditions of the papers' figures and claims, and those in which a suite differs from them.

They are in data/reference/conditions.csv (README.md there), each with its place in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from analysis.published.reference import rows
from analysis.suite.records import Suite
from contract.parameters import ParameterValue

# Kinds of disks, which are their names in plans, and what to call them.
MEDIA = {
    "hdd": "a hard disk",
    "sshd": "a hybrid disk",
    "ssd": "a disk that does not turn",
    "flash": "a flash drive",
    "": "a disk of unknown kind",
}


@dataclass(frozen=True)
class Condition:
    """The value of a setting in a paper, and the words for another one.

    It is for a workload (any if empty), phases that begin with one of `phases`, and comparisons
    with a configuration whose name begins with `configuration`. The setting is a parameter of the
    workload or of the storage stack, its `kind`, the `medium` of its disk, or the number of `disks`
    that are compared. `value` may be a choice of several, separated by blanks.
    """

    paper: str
    place: str
    workload: str
    phases: tuple[str, ...]
    configuration: str
    setting: str
    value: str
    difference: str

    def is_about(self, compared: Compared) -> bool:
        """Return whether it is about these, and not about a medium that their sentence states."""
        if self.setting == "medium" and any(compared.media.values()):
            return False
        names, phases = compared.names, compared.phases
        return (
            self.workload in ("", compared.workload)
            and (not self.configuration or any(n.startswith(self.configuration) for n in names))
            and (not self.phases or any(p == "all" or p.startswith(self.phases) for p in phases))
        )


@cache
def conditions(paper: str) -> tuple[Condition, ...]:
    """Return the conditions of a paper."""
    return tuple(
        Condition(**{**row, "phases": tuple(row["phases"].split())})  # type: ignore[arg-type]
        for row in rows("conditions")
        if row["paper"] == paper
    )


def medium_of(suite: Suite, configuration: str) -> str:
    """Return the kind of a configuration's disk by its name, else by whether it turns, or ``."""
    role = suite.disk_of(configuration)
    turns = {"1": "hdd", "0": "ssd"}
    return (
        role if role in MEDIA else turns.get(suite.machine.get(f"disks.{role}.rotational", ""), "")
    )


@dataclass(frozen=True)
class Compared:
    """What of a suite is held beside a paper: an entry's phases on some configurations.

    `names` are ours by those of the paper, `media` the paper's kinds of disk of ours. `under` has
    settings that the sentence itself states, which precede the paper's.
    """

    workload: str
    entry: str
    phases: Sequence[str]
    names: Mapping[str, str]
    media: Mapping[str, str]
    under: Mapping[str, str]


def differences(suite: Suite, paper: str, compared: Compared) -> tuple[str, ...]:
    """Return how conditions here differ from the paper's; an unrecorded one does not count."""
    texts = [
        f"on {MEDIA[medium_of(suite, ours)]}"
        for ours, medium in compared.media.items()
        if medium and medium_of(suite, ours) != medium
    ]
    about = [c for c in conditions(paper) if c.is_about(compared)]
    stated = [(setting, value, f"{setting} {{}}") for setting, value in compared.under.items()]
    stated += [(c.setting, c.value, c.difference) for c in about if c.setting not in compared.under]
    for setting, value, words in stated:
        others = [
            ours for ours in _settings(suite, compared, setting) if ours not in value.split(" ")
        ]
        texts += [words.format(MEDIA.get(ours, ours)) for ours in others]
    return tuple(dict.fromkeys(texts))


def _settings(suite: Suite, compared: Compared, setting: str) -> list[str]:
    """Return the values of a setting in the suite: those of a list, or of each configuration."""
    ours = list(compared.names.values())
    if setting == "disks":
        disks = len({suite.disk_of(name) for name in ours})
        return [str(disks)] if len(ours) > 1 else []
    if setting == "medium":
        return [medium for name in ours if (medium := medium_of(suite, name))]
    entry = suite.entries.get(compared.entry)
    if entry is not None and setting in entry.parameters:
        return _text(entry.parameters[setting]).replace(", ", ",").split(",")
    stacks = [suite.stacks[name] for name in ours if name in suite.stacks]
    if setting == "kind":
        return [stack.kind for stack in stacks]
    return [_text(stack.settings[setting]) for stack in stacks if setting in stack.settings]


def _text(value: ParameterValue) -> str:
    """Return a value as conditions.csv has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.15g}" if isinstance(value, float) else str(value)
