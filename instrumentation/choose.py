"""Names of things that can be chosen, and the classes behind them, imported only when chosen."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any


class UnknownNameError(Exception):
    """A name that is not registered; the message gives the nearest and all that are."""


def load_class(what: str, name: str, places: Mapping[str, str]) -> type[Any]:
    """The class at `places[name]` (`module:Class`). Raises UnknownNameError."""
    if name not in places:
        near = get_close_matches(name, places, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UnknownNameError(f"No {what} is called {name}.{hint} There are: {', '.join(places)}.")
    module, _, class_name = places[name].partition(":")
    loaded = getattr(import_module(module), class_name)
    assert isinstance(loaded, type)
    return loaded
