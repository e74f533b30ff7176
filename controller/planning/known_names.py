"""Names that a user gives, and the nearest where there is none such (standard library alone)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import workloads
from contract.errors import ControllerError
from contract.names import unknown

SUITES = Path(workloads.__file__).parent / "suites"


def suite_names(folder: Path = SUITES) -> list[str]:
    """Names of the suites there are."""
    return sorted(path.stem for path in folder.glob("*.yml"))


def require_known(what: str, names: Iterable[Any], known: Collection[str]) -> None:
    """ControllerError on the first of the given names that is none of the known ones."""
    for name in names:
        if name not in known:
            raise ControllerError(unknown(what, str(name), known))
