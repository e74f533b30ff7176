"""Energy sources by name, and what goes wrong when one is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contract.extensions import ExtensionError, Group, installed
from contract.problem import ProblemError


class SourceError(ProblemError):
    """A source cannot be used here; the message is a sentence with the remedy."""


_GROUP = Group("energy source", "fde.sources", "instrumentation.sources", "name")
names = _GROUP.names
load = _GROUP.load


def coverage_files() -> list[Path]:
    """Return the files of installed packages that state what their sources' quantities cover."""
    names = [point.name for point in installed(_GROUP.entry_points)]
    return list(dict.fromkeys(file for name in names if (file := _attribute(name, "coverage"))))


def is_undeclared(name: str) -> bool:
    """Whether a source is of an installed package that does not state what it covers."""
    is_installed = any(point.name == name for point in installed(_GROUP.entry_points))
    return is_installed and not _attribute(name, "coverage")


def is_present(name: str) -> bool:
    """Whether this machine may have such a source; True where only opening it can show that."""
    try:
        return bool(getattr(load(name), "is_present", lambda: True)())
    except ExtensionError:
        return True  # opening raises what is wrong with it


def disturbs_disks(name: str) -> bool:
    """Whether reading it changes what disks take, so that no measurement of disks has it beside."""
    return bool(_attribute(name, "disturbs_disks"))


def _attribute(name: str, attribute: str) -> Any:
    """Return what a source's class states; None where it states nothing or cannot be loaded."""
    try:
        return getattr(load(name), attribute, None)
    except ExtensionError:
        return None


def opened(name: str, **settings: bool) -> Any:
    """Open a source.

    Raises SourceError and ExtensionError.
    """
    return load(name).open(**settings)
