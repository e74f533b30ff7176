"""Check names that a user gives against the known ones (standard library alone)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import workloads
from contract.errors import ControllerError
from contract.names import unknown_name

SUITES = Path(workloads.__file__).parent / "suites"


def suite_names(folder: Path = SUITES) -> list[str]:
    """Return the names of all suites."""
    return sorted(path.stem for path in folder.glob("*.yml"))


def require_known(what: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raise ControllerError for the first name that is not known, with the nearest one."""
    for name in names:
        if name not in known:
            raise ControllerError(unknown_name(what, name, known))


def inventories_beside(path: Path) -> list[str]:
    """List the inventories in the folder of a path: folders with a file of hosts."""
    files = path.parent.glob("*/hosts*")
    return sorted({str(file.parent) for file in files})
