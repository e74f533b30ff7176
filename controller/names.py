"""Names that a user gives, and the nearest where there is none such (standard library alone)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import workloads
from contract import names

SUITES = Path(workloads.__file__).parent / "suites"


def suite_names(folder: Path = SUITES) -> list[str]:
    """Names of the suites there are."""
    return sorted(path.stem for path in folder.glob("*.yml"))


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """A sentence that names the nearest known name."""
    return names.unknown(what, name, list(known))
