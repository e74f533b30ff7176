"""Check of names that a user types against the existing ones; only the standard library."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import workloads
from contract.errors import ControllerError
from contract.names import unknown_name

SUITES = Path(workloads.__file__).parent / "suites"


def suite_names(folder: Path = SUITES) -> list[str]:
    """Return the names of all suites, sorted."""
    return sorted(path.stem for path in folder.glob("*.yml"))


def require_known(kind: str, names: Iterable[str], choices: Collection[str]) -> None:
    """Raise ControllerError for the first name that is not a choice, with the nearest choice."""
    for name in names:
        if name not in choices:
            raise ControllerError(unknown_name(kind, name, choices))


def inventories_beside(path: Path) -> list[str]:
    """List the inventories next to a path: folders with Ansible's files; /etc has only `hosts`."""
    names = ("*/hosts.y*ml", "*/hosts.ini", "*/group_vars")
    return sorted({str(file.parent) for name in names for file in path.parent.glob(name)})
