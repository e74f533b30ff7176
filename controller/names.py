"""Names that a user gives, and the nearest where there is none such (standard library alone)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

import workloads

SUITES = Path(workloads.__file__).parent / "suites"


def suite_names(folder: Path = SUITES) -> list[str]:
    """Names of the suites there are."""
    return sorted(path.stem for path in folder.glob("*.yml"))


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """A sentence that names the nearest known name."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}."
    return f"There is no {what} called {name!r}; {hint}"
