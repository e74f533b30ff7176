"""Import numpy without its code for AVX-512, so that figures are the same on every x86-64.

Its exponentials and logarithms would round differently there. The package imports this first; numpy
is imported at its first use. Programs that we start do not inherit the setting, and it has no
effect if numpy was imported before.

Polars warns at its import that it will crash on a processor; that becomes an error here.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

POLARS_WARNING = "Missing required CPU features"  # how the warning begins
_SWITCHED_OFF = "NPY_DISABLE_CPU_FEATURES"


class _Finder:
    """A finder of numpy whose loader runs with the features switched off.

    It stays installed because polars looks up numpy's spec without importing it.
    """

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name != "numpy":
            return None
        sys.meta_path.remove(self)  # else it would be asked again
        spec = find_spec(name)
        sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            load = _switched_off(spec.loader.exec_module)
            spec.loader.exec_module = load  # type: ignore[method-assign, assignment]
        return spec


def _switched_off(load: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    def exec_module(module: ModuleType) -> None:
        os.environ[_SWITCHED_OFF] = "X86_V4,AVX512_ICL,AVX512_SPR"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ImportWarning)  # a numpy that calls them otherwise
                load(module)
        finally:
            del os.environ[_SWITCHED_OFF]

    return exec_module


warnings.filterwarnings("error", POLARS_WARNING, RuntimeWarning)
if not ("numpy" in sys.modules or _SWITCHED_OFF in os.environ or os.uname().machine != "x86_64"):
    sys.meta_path.insert(0, _Finder())
