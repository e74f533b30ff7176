"""The notebook's cells, run from top to bottom on a suite."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

Cells = dict[str, Any]  # by name
SCRIPT = Path(__file__).parents[1] / "notebook.py"


def notebook_of(folder: Path) -> Cells:
    """Return the names that they leave. Pictures are drawn into memory and closed."""
    plt.switch_backend("agg")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FDE_SUITE_DIR", str(folder))
        patch.setattr(plt, "show", lambda: plt.close("all"))
        return runpy.run_path(str(SCRIPT))
