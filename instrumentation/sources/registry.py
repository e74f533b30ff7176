"""Energy sources by name, and what goes wrong when one is opened."""

from __future__ import annotations

from typing import Any

from contract.extensions import ExtensionError, Group, installed
from contract.problem import ProblemError


class SourceError(ProblemError):
    """A source cannot be used here; the message is a sentence with the remedy."""


_GROUP = Group("energy source", "fde.sources", "instrumentation.sources", "name")
names = _GROUP.names
load = _GROUP.load


def is_installed(name: str) -> bool:
    """Whether a source of that name comes from an installed package, not from this tree."""
    return any(point.name == name for point in installed(_GROUP.entry_points))


def is_present(name: str) -> bool:
    """Whether this machine may have such a source; True where only opening it can show that."""
    try:
        return bool(getattr(load(name), "is_present", lambda: True)())
    except ExtensionError:
        return True  # opening raises what is wrong with it


def disturbs_disks(name: str) -> bool:
    """Whether reading it changes what disks take, so that no measurement of disks has it beside."""
    try:
        return bool(getattr(load(name), "disturbs_disks", False))
    except ExtensionError:
        return False


def opened(name: str, **settings: bool) -> Any:
    """Open a source.

    Raises SourceError and ExtensionError.
    """
    return load(name).open(**settings)
