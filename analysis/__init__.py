"""From a sealed suite folder to joules, verdicts and a report.

`Suite.open(path)` gives a suite's runs, joules, power, contrasts and payback, `load` the joules of
many suites in one table; `to_pandas` converts any table. The names of `__all__` and their columns
are stable (docs/library.md).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from analysis import rounding  # noqa: F401 - before numpy and polars

if TYPE_CHECKING:
    from analysis.library import Suite, to_pandas
    from analysis.stats.results import load
    from analysis.suite.records import SuiteError

__all__ = ["Suite", "SuiteError", "load", "to_pandas"]
_MODULES = {
    "Suite": "analysis.library",
    "SuiteError": "analysis.suite.records",
    "load": "analysis.stats.results",
    "to_pandas": "analysis.library",
}


def __getattr__(name: str) -> Any:
    """Import a name at its first use, so that importing a module of ours loads no tables."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
