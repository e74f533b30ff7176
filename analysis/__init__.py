"""From a sealed suite folder to joules, verdicts and a report; `load` gives the joules alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.stats.results import load

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    """Import `load` when it is asked for: what only wants a module of ours needs no tables."""
    if name != "load":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from analysis.stats.results import load

    return load
