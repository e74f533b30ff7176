"""Names and files that a user gives: the nearest where there is none such, or nothing that can be
read (standard library alone)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import workloads
from contract import names, strict_json

SUITES = Path(workloads.__file__).parent / "suites"


def suite_names(folder: Path = SUITES) -> list[str]:
    """Names of the suites there are."""
    return sorted(path.stem for path in folder.glob("*.yml"))


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """A sentence that names the nearest known name."""
    return names.unknown(what, name, list(known))


def document(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is none that can be read."""
    try:
        found = strict_json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
