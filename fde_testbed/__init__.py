"""The library: `from fde_testbed import Suite` (docs/library.md); the command `fde`.

Our packages keep short names (`analysis`, `contract`, …). They are in this folder where the testbed
is installed, above it in a checkout. Importing this package puts that folder first, so that files
of the same names in the current folder or on PYTHONPATH are not taken for ours.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis import Suite, SuiteError, load, to_pandas

__all__ = ["Suite", "SuiteError", "load", "to_pandas"]

_HERE = Path(__file__).resolve().parent
_FOLDER = _HERE if (_HERE / "contract").is_dir() else _HERE.parent


def _put_ours_first() -> None:
    """Put our packages first on sys.path, and unload others of the same names."""
    if sys.path[:1] != [str(_FOLDER)]:
        sys.path.insert(0, str(_FOLDER))
    names = {path.parent.name for path in _FOLDER.glob("*/__init__.py")} & set(sys.modules)
    for name in names - {__name__}:
        places = getattr(sys.modules[name], "__path__", ())
        if _FOLDER / name not in [Path(place).resolve() for place in places]:
            for module in [m for m in sys.modules if m.partition(".")[0] == name]:
                del sys.modules[module]


_put_ours_first()


def __getattr__(name: str) -> Any:
    """Import a name on first access, because the command needs no tables."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("analysis"), name)
