"""Import numpy without its code for AVX-512, so that figures are the same on every x86-64.

Its exponentials and logarithms would round differently there. The package imports this first; numpy
is imported at its first use. Programs that we start do not inherit the setting, and it has no
effect if numpy was imported before.

Libraries that would crash on an old processor are an error here: polars, which warns of it at its
import, and numpy, which needs SSE4.2. OpenBLAS, in numpy and scipy, crashes without AVX2 if the
environment makes it use its code for processors that have it: that choice is dropped.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

from contract.errors import AgentError

POLARS_WARNING = "Missing required CPU features"  # how the warning begins
_SWITCHED_OFF = "NPY_DISABLE_CPU_FEATURES"
_OPENBLAS_CORE = "OPENBLAS_CORETYPE"
# Index of CPUID's leaf in glibc, of its register among the active features, and bit.
_SSE4_2, _AVX2 = (0, 6, 20), (1, 5, 5)


class ProcessorError(AgentError):
    """The processor lacks what a library requires."""

    ROOM = "analysis"


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
        if not _has(_SSE4_2):
            raise ProcessorError("no-sse")
        if _OPENBLAS_CORE in os.environ and not _has(_AVX2):
            del os.environ[_OPENBLAS_CORE]  # for good: scipy loads its own OpenBLAS later
        os.environ[_SWITCHED_OFF] = "X86_V4,AVX512_ICL,AVX512_SPR"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ImportWarning)  # a numpy that calls them otherwise
                load(module)
        finally:
            del os.environ[_SWITCHED_OFF]

    return exec_module


def _has(feature: tuple[int, int, int]) -> bool:
    """Return whether the processor has a feature, by glibc 2.33 or newer (sys/platform/x86.h)."""
    import ctypes  # only where numpy is used

    leaf, register, bit = feature
    try:
        active = ctypes.CDLL(None).__x86_get_cpuid_feature_leaf
    except AttributeError:
        return True
    active.restype = ctypes.POINTER(ctypes.c_uint32 * 8)
    return bool(active(leaf).contents[register] >> bit & 1)


warnings.filterwarnings("error", POLARS_WARNING, RuntimeWarning)
if not ("numpy" in sys.modules or _SWITCHED_OFF in os.environ or os.uname().machine != "x86_64"):
    sys.meta_path.insert(0, _Finder())
