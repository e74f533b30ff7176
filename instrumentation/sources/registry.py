"""Energy sources by name, and the errors of opening one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contract.extensions import ExtensionError, Group, installed
from contract.problem import ProblemError


class SourceError(ProblemError):
    """A source that cannot be used here; the message is a sentence with the remedy."""


_GROUP = Group("energy source", "fde.sources", "instrumentation.sources", "name")
names = _GROUP.names
load = _GROUP.load


def coverage_files() -> list[Path]:
    """Return the files in which installed packages declare what their sources cover."""
    names = [point.name for point in installed(_GROUP.entry_points)]
    return list(dict.fromkeys(file for name in names if (file := _attribute(name, "coverage"))))


def is_undeclared(name: str) -> bool:
    """Return whether a source is of an installed package that does not declare what it covers."""
    is_installed = any(point.name == name for point in installed(_GROUP.entry_points))
    return is_installed and not _attribute(name, "coverage")


def is_present(name: str) -> bool:
    """Return whether this machine may have such a source; True if only opening it can show that."""
    try:
        return bool(getattr(load(name), "is_present", lambda: True)())
    except ExtensionError:
        return True  # opening it raises the error


def disturbs_disks(name: str) -> bool:
    """Return whether reading it changes the power of disks, so that suites omit it."""
    return bool(_attribute(name, "disturbs_disks"))


def _attribute(name: str, attribute: str) -> Any:
    """Return an attribute of a source's class; None if it has none or cannot be loaded."""
    try:
        return getattr(load(name), attribute, None)
    except ExtensionError:
        return None


def open_source(name: str, **settings: bool) -> Any:
    """Open a source. Raises SourceError, ExtensionError."""
    return load(name).open(**settings)
