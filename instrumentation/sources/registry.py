"""Energy sources by name, and what goes wrong when one is opened."""

from __future__ import annotations

from typing import Any

from contract.extensions import Group


class SourceError(Exception):
    """A source cannot be used here; the message is a sentence with the way out."""


_GROUP = Group("energy source", "fde.sources", "instrumentation.sources", "name")


def names() -> tuple[str, ...]:
    return _GROUP.names()


def load(name: str) -> type[Any]:
    """The class of a source. Raises ExtensionError."""
    return _GROUP.load(name)
