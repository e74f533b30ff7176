"""Imports numpy without what it has for AVX-512 alone: exponentials and logarithms that round
otherwise than everywhere else, so that a suite's figures are the same on every x86-64, bit for bit.

Each package of ours that uses numpy imports this first. Programs that we start do not inherit it;
where numpy was imported before, nothing can be done.
"""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module

_SWITCHED_OFF = "NPY_DISABLE_CPU_FEATURES"

if not ("numpy" in sys.modules or _SWITCHED_OFF in os.environ or os.uname().machine != "x86_64"):
    os.environ[_SWITCHED_OFF] = "X86_V4,AVX512_ICL,AVX512_SPR"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImportWarning)  # a numpy that calls them otherwise
        import_module("numpy")
    del os.environ[_SWITCHED_OFF]
