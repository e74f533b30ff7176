"""Energy sources by name, and what goes wrong when one is opened."""

from __future__ import annotations

from typing import Any

from instrumentation.choose import load_class


class SourceError(Exception):
    """A source cannot be used here; the message is a sentence with the way out."""


_PLACES = {
    "powercap": "instrumentation.sources.powercap:PowercapSource",
    "perf": "instrumentation.sources.perf:PerfSource",
    "pyrapl": "instrumentation.sources.pyrapl:PyraplSource",
}


def names() -> tuple[str, ...]:
    """All sources, in the order in which a report names them."""
    return tuple(_PLACES)


def load(name: str) -> type[Any]:
    """The class of a source. Raises UnknownNameError."""
    return load_class("energy source", name, _PLACES)
