"""Energy sources by name.

Each is a class with `open()` (the machine's own counters; raises SourceError, or keeps what went
wrong as readings that failed), `names` (of its zones), `read()` (`{zone: Reading | ReadFailure}`,
every zone of `names`; never raises) and `close()`.
"""

from __future__ import annotations

from typing import Any

from instrumentation.choose import load_class

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
